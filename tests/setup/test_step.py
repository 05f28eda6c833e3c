"""A step of a make goal, and one beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STEP = Path(__file__).with_name("step.py")


@pytest.mark.parametrize(("command", "beside"), [(0, 0), (0, 1), (1, 0)])
def test_a_step_fails_if_one_of_two_does(tmp_path: Path, command: int, beside: int) -> None:
    # It writes what it took into the folder that it is in.
    step = tmp_path / "tests" / "setup" / "step.py"
    step.parent.mkdir(parents=True)
    shutil.copy(STEP, step)
    words = ["main", "--show", "--beside", "other", f"sleep 1; echo said; exit {beside}", "--", "sh", "-c"]
    done = subprocess.run(
        [sys.executable, step, *words, f"exit {command}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode != 0) == bool(command or beside)
    assert ("said" in done.stderr) == bool(beside), "only a failure shows what a step has said"
    told = subprocess.run(
        [sys.executable, step, "--times", "--budget", "9"], capture_output=True, text=True, check=True
    )
    assert "of 9: other " in told.stdout, "it has ended, and its time is known"
