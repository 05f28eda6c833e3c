"""The code of `core/docs/command-line.md`: what a shell runs, and what it prints."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from examples.program import ROOT

PAGE = (ROOT / "core" / "docs" / "command-line.md").read_text(encoding="utf-8")

_SECTION = re.compile(r"^#{2,3} (.+)\n", re.M)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)


@dataclass(frozen=True)
class Example:
    """A block of code in a section of the page."""

    title: str
    """The section's title, and its number if it is not the first block there."""
    language: str
    code: str
    output: str | None
    """What the page says that it prints."""


def _examples() -> dict[str, Example]:
    found: dict[str, Example] = {}
    _, *sections = _SECTION.split(PAGE)
    for section, text in zip(sections[::2], sections[1::2], strict=True):
        for number, (language, code, output) in enumerate(_BLOCK.findall(text), 1):
            title = section if number == 1 else f"{section} {number}"
            found[title] = Example(title, language, code, output or None)
    return found


EXAMPLES = _examples()
"""Every block of the page, by its title."""


def masked(text: str, host: str) -> str:
    """Returns what a command has printed without what differs from one run to the next.

    The page has a host of its own, times of its own and columns that are as wide as these.
    """
    text = re.sub(r"\d+(\.\d+)?", "0", text.replace(host, "web-0"))
    text = re.sub(r"0 (?:ms|s|min|h|d)\b(?: 0 (?:s|min|h)\b)?", "0 s", text)
    return re.sub(r" {2,}", "  ", text)


@dataclass(frozen=True)
class Job:
    """A line of a crontab."""

    schedule: str
    command: str


def crontab(text: str) -> tuple[dict[str, str], list[Job]]:
    """Reads a crontab: its variables and its jobs."""
    variables: dict[str, str] = {}
    jobs: list[Job] = []
    for line in text.splitlines():
        if assigned := re.fullmatch(r"(\w+)=(.*)", line):
            variables[assigned[1]] = assigned[2]
        else:
            *fields, command = line.split(None, 5)
            jobs.append(Job(" ".join(fields), command))
    return variables, jobs


def entry(dockerfile: str) -> list[str]:
    """Reads what a container runs: its entry point, and then its command."""
    words: list[str] = []
    for instruction in ("ENTRYPOINT", "CMD"):
        found = re.search(rf"^{instruction} \[(.*)\]$", dockerfile, re.M)
        assert found, f"no {instruction}"
        words += [word.rstrip(",") for word in shlex.split(found[1])]
    return words
