"""The programs of `core/docs/frameworks.md`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from examples.program import ROOT

PAGE = (ROOT / "core" / "docs" / "frameworks.md").read_text(encoding="utf-8")

FILES: dict[str, str] = dict(re.findall(r"\b[Ii]n `([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.M | re.S))
"""Each program, by its file."""

COMMANDS = [shlex.split(line) for line in re.findall(r"^```sh\n(.*)\n```$", PAGE, re.M)]
"""Each command."""


def command(program: str) -> list[str]:
    """The arguments that the page gives to a program."""
    (arguments,) = (arguments for name, *arguments in COMMANDS if name == program)
    return arguments


def write(directory: Path, *names: str) -> None:
    """Writes these programs as they stand in the page."""
    for name in names:
        (directory / name).write_text(FILES[name], encoding="utf-8")
