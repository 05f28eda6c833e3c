"""Runs of the program, for tests of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.process import python


def seeds(count: int, in_make_test: int) -> list[object]:
    """The first seeds of schedules, of which `make test` goes through a few."""
    more = pytest.mark.test_all("it is another seed of the same schedule")
    return [*range(in_make_test), *(pytest.param(seed, marks=more) for seed in range(in_make_test, count))]


def played(out: Path, *given: str) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end."""
    command = [*python("chaos.chaos"), "--out", str(out), *given]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def broken(report: str) -> set[str]:
    """The promises that a report says are broken."""
    return set(re.findall(r"^ (\w[\w ]*\w) +BAD ", report, re.M))
