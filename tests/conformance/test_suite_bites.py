"""The suite finds planted faults: a suite that never fails proves nothing.

drivers/faulty.py replaces Python's faces in separate runs. With each of its faults, the test case that
`tables/found.json` names must fail. Without a fault, the same test cases must pass.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from conformance.conftest import under_test
from conformance.driver import table
from conformance.drivers.faulty import FAULTS
from support.process import python

HERE = Path(__file__).parent

Failures = dict[str, list[str]]
"""The failing lines of each story with its fault."""

Found = tuple[str, str, str]
"""A fault, the test case that finds it, and the text of the failing line."""

FOUND: list[Found] = [(row["fault"], row["story"], row["fails"]) for row in table("found")["cases"]]

FIRST: list[Found] = list({found[1].partition("::")[0]: found for found in reversed(FOUND)}.values())
"""A fault for each file of stories: the first one that it finds."""

CHUNK = 8
"""How many test cases one run of pytest has: enough to start it rarely, and few enough for one time limit."""


def chunks(found: list[Found]) -> pytest.MarkDecorator:
    """A test case for each chunk. Stories of all files are in each one, because those of some files take long."""
    number = -(-len(found) // CHUNK)
    parts = [found[at::number] for at in range(number)]
    return pytest.mark.parametrize("found", parts, ids=[f"chunk {at}" for at in range(1, number + 1)])


def command(config: pytest.Config, stories: Iterable[str], *options: str) -> list[str]:
    """Runs test cases apart from this run."""
    # Plugins take as long to load as the test cases to run, and these need one alone.
    words = [*python("pytest"), "-q", "--all", "--disable-plugin-autoload", "-p", "pytest_timeout", *options]
    # There is one server, so that the ids of test cases do not name it.
    words += ["--server", str(under_test(config)[0])]
    if directory := config.getoption("--driver-dir"):
        words += ["--driver-dir", str(directory)]
    return [*words, *(str(HERE / story) for story in stories)]


def failures(
    config: pytest.Config, tmp_path: Path, plants: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], str]:
    """Runs stories with their faults; returns the failing lines of each, none if it passed, and the output."""
    report = tmp_path / "failures.json"
    options = ["-p", "conformance.planted", "--plant-report", str(report)]
    for fault, story in plants:
        options += ["--plant", f"{fault} {story}"]
    # A function is collected with all its faults.
    functions = dict.fromkeys(story.partition("[")[0] for _, story in plants)
    result = subprocess.run(command(config, functions, *options), capture_output=True, text=True, check=False)
    output = result.stdout + result.stderr
    assert report.exists(), output
    failed: Failures = json.loads(report.read_text(encoding="utf-8"))
    missing = {f"{fault} {story}" for fault, story in plants} - failed.keys()
    assert not missing, f"unknown stories: {missing}\n{output}"
    return failed, output


def must_be_found(config: pytest.Config, tmp_path: Path, found: list[Found]) -> None:
    """Fails with the names of the faults that their stories have not found, or not for the reason."""
    failed, output = failures(config, tmp_path, [(fault, story) for fault, story, _ in found])
    wrong = {}
    for fault, story, why in found:
        lines = "\n".join(failed[f"{fault} {story}"])
        if not lines or why not in lines:
            wrong[f"{fault} {story}"] = f"not {why!r}, but {lines}" if lines else "nothing was found"
    assert not wrong, "\n".join([*(f"{planted}: {what}" for planted, what in wrong.items()), output])


@pytest.mark.timeout(600)
@chunks(FIRST)
def test_a_fault_is_found_by_each_file(pytestconfig: pytest.Config, tmp_path: Path, found: list[Found]) -> None:
    must_be_found(pytestconfig, tmp_path, found)


@pytest.mark.test_all("a fault is found by each file of stories already")
@pytest.mark.timeout(600)
@chunks([found for found in FOUND if found not in FIRST])
def test_every_other_fault_is_found(pytestconfig: pytest.Config, tmp_path: Path, found: list[Found]) -> None:
    must_be_found(pytestconfig, tmp_path, found)


@pytest.mark.test_all("the stories run with the drivers of Python, from which the faulty one is derived")
@pytest.mark.timeout(600)
@chunks(FOUND)
def test_without_a_fault_nothing_is_found(pytestconfig: pytest.Config, tmp_path: Path, found: list[Found]) -> None:
    failed, output = failures(pytestconfig, tmp_path, [("none", story) for _, story, _ in found])
    assert not any(failed.values()), output


def test_every_fault_has_its_story() -> None:
    assert {*(fault for fault, _, _ in FOUND), "none"} == FAULTS.keys()
