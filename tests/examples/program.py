"""Programs that stand in a page, as programs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from support.clock import until

EXAMPLES = Path(__file__).parent
ROOT = EXAMPLES.parents[1]

NODE_PACKAGES = {"redlock-rs": ROOT / "node"}
"""The Node package that is under test, by the name by which programs import it."""


def environment(urls: Sequence[str]) -> dict[str, str]:
    """That of a program with these nodes."""
    return {**os.environ, "REDLOCK_URLS": ",".join(urls), "PYTHONPATH": str(EXAMPLES)}


def link_packages(directory: Path, packages: Mapping[str, Path]) -> None:
    """Lets Node programs in `directory` import these."""
    for name, path in packages.items():
        link = directory / "node_modules" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)


def interpreted(directory: Path, language: str, code: str) -> list[str]:
    """Writes a program with `code`, and returns its command; `work.py` and `work.mjs` provide `work`."""
    if language == "python":
        path = directory / "program.py"
        command = [sys.executable, str(EXAMPLES / "work.py")]
    else:
        path = directory / "program.mjs"
        command = ["node", str(EXAMPLES / "work.mjs")]
    path.write_text(code)
    return [*command, str(path)]


class Running:
    """A program with a `work`, as `interpreted` has, that runs beside others; a context manager that ends it."""

    def __init__(self, urls: Sequence[str], directory: Path, *command: str) -> None:
        self._said = directory / "said"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                command, cwd=directory, env=environment(urls), stdin=subprocess.PIPE, stdout=said, stderr=said
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def said(self) -> str:
        """Its output, errors included."""
        return self._said.read_text()

    @property
    def works(self) -> bool:
        """Whether its `work` has begun."""
        return "working" in self.said.splitlines()

    def wait_for_work(self) -> None:
        """Returns when it is at its `work`."""
        until(lambda: self.works or self._process.poll() is not None, "the program works, or ends")
        assert self.works, self.said

    def end(self) -> bool:
        """Lets its `work` end, and returns whether the program came to its own end."""
        self._process.communicate(b"\n", timeout=30)
        return self._process.returncode in {0, -signal.SIGKILL}
