"""A plugin that runs test cases with planted faults, and writes which of them failed and where.

Each `--plant 'FAULT test_file.py::test_case[variant]'` runs one test case with the faulty driver in the place of
Python's faces. Plugins, servers and files are loaded once for all of them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator
from pathlib import Path

import pytest

from support.process import python

FAULTY = shlex.join(python("conformance.drivers.faulty"))
FACES = ("python", "asyncio")

FAILURES = pytest.StashKey[dict[str, list[str]]]()
"""The failing lines of each test case that has run, by its fault and its story; empty if it passed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options for the faults and for the file that is written."""
    parser.addoption("--plant", action="append", default=[], metavar="FAULT STORY", help="run a story with a fault")
    parser.addoption("--plant-report", type=Path, required=True, metavar="FILE", help="where failing lines are written")


def pytest_configure(config: pytest.Config) -> None:
    """Begins without failures."""
    config.stash[FAILURES] = {}


@pytest.fixture(autouse=True)
def plant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts the faulty driver with the fault of this test case."""
    commands = [f"{face}={FAULTY} --fault {request.param}" for face in FACES]
    monkeypatch.setattr(request.config.option, "driver", commands)


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives each function the faults of its stories; the last word of an id is the fault."""
    function = f"{metafunc.definition.path.name}::{metafunc.definition.name}"
    faults: dict[str, None] = {}
    for each in metafunc.config.getoption("--plant"):
        fault, _, story = each.partition(" ")
        if story.partition("[")[0] == function:
            faults[fault] = None
    metafunc.parametrize("plant", faults, indirect=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the stories with their own faults."""
    wanted = set(config.getoption("--plant"))
    items[:] = [item for item in items if planted(item) in wanted]


def planted(item: pytest.Item) -> str:
    """The fault and the story of a test case, as `--plant` has them."""
    assert isinstance(item, pytest.Function)
    fault = item.callspec.params["plant"]
    # The fault is the last word in the brackets, or the only one.
    return f"{fault} {item.nodeid.rpartition('/')[2].removesuffix(f'[{fault}]').replace(f'-{fault}]', ']')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keeps the lines that failed and their messages: the lines above them were right."""
    report = yield
    failures = item.config.stash[FAILURES]
    lines = failures.setdefault(planted(item), [])
    if report.failed:
        lines += [line for line in report.longreprtext.splitlines() if line.startswith((">", "E "))] or ["failed"]
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the failures."""
    report: Path = session.config.getoption("--plant-report")
    report.write_text(json.dumps(session.config.stash[FAILURES]), encoding="utf-8")
