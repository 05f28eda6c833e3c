"""Runs of the program, for tests of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from support.process import python


def played(out: Path, *given: str) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end."""
    command = [*python("chaos.chaos"), "--out", str(out), *given]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def broken(report: str) -> set[str]:
    """The promises that a report says are broken."""
    return set(re.findall(r"^ (\w[\w ]*\w) +BAD ", report, re.M))
