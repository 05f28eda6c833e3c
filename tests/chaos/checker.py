"""The program `redlock-history`, which reads the history and judges it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Judgement:
    """The program's judgement."""

    good: bool
    summary: str
    violations: tuple[str, ...] = ()


def judge(program: Path, history: Path, *rules: str) -> Judgement:
    """Runs the program on the history, a file of JSON lines; `rules` are options of its command line."""
    with history.open() as lines:
        # Ctrl-C is for this process alone.
        done = subprocess.run(
            [program, *rules], stdin=lines, capture_output=True, text=True, check=False, start_new_session=True
        )
    if done.returncode not in (0, 1):
        return Judgement(False, f"the checker ended with {done.returncode}", tuple(done.stderr.splitlines()))
    summary, *violations = done.stdout.splitlines()
    return Judgement(done.returncode == 0, summary, tuple(violations))
