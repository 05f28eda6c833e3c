"""The suite finds planted faults: a suite that never fails proves nothing.

tests/drivers/faulty.py takes the place of the face `python` in a run of its own; with each of its faults the story that
is about it must fail, and without a fault the same stories must pass.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FAULTY = HERE.parent / "drivers" / "faulty.py"

FOUND_BY = {
    "blind-release": (
        "test_loss.py::test_late_release_leaves_the_next_holder_alone[one node-python]",
        "nodes.has(name)",
    ),
    "held-for-ever": (
        "test_loss.py::test_nobody_is_told_that_an_expired_lock_is_held[python]",
        "latest_end_ns",
    ),
    "falling-fence": ("test_pairs.py::test_hand_over[one node-python-python]", "the history is wrong"),
    "two-holders": ("test_pairs.py::test_hand_over[one node-python-python]", "the history is wrong"),
    "never-told": ("test_loss.py::test_expiry_is_told[python]", "NoneType"),
}


def run(config: pytest.Config, fault: str, *stories: str) -> subprocess.CompletedProcess[str]:
    """Runs stories with the faulty driver."""
    command = [sys.executable, "-m", "pytest", "-q", "--driver", f"python={sys.executable} {FAULTY} --fault {fault}"]
    if directory := config.getoption("--driver-dir"):
        command += ["--driver-dir", str(directory)]
    paths = [str(HERE / story) for story in stories]
    return subprocess.run([*command, *paths], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("fault", FOUND_BY)
def test_fault_is_found(pytestconfig: pytest.Config, fault: str) -> None:
    story, why = FOUND_BY[fault]
    result = run(pytestconfig, fault, story)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, f"nothing was found:\n{result.stdout}{result.stderr}"
    assert why in result.stdout


def test_without_a_fault_nothing_is_found(pytestconfig: pytest.Config) -> None:
    result = run(pytestconfig, "none", *dict.fromkeys(story for story, _ in FOUND_BY.values()))
    assert result.returncode == 0, result.stdout + result.stderr
