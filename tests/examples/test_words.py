"""Turns of speech that readers stumble over do not come back into pages and messages."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TICS = {
    r"\bso long\b(?! as)": "for that long",
    r"\bfor ever\b": "forever, as long as it takes",
    r"\ball the same\b(?! to)": "anyway, still",
    r"\bby how much\b": "how much earlier",
    r"\bat most so many\b": "at most N",
    r"\bmended\b": "fixed",
    r"\banew\b": "again",
    r"\bin good order\b": "cleanly",
    r"\b[Aa]ll else\b": "everything else",
    r"\b(?:know|knows|known) nothing of\b": "does not use, does not know",
    r"\band the like\b": "the whole list",
    r"\bcounts? suspend\b": "keeps running while the machine sleeps",
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b)[a-z]": "is not a",
    r"\bagain and again\b": "repeatedly, keep coming back",
    r"\bruns? out\b": "expires",
    r"\bit does with\b|\bdo with the\b": "needs only",
    r"(?:^|[.:|] )Who(?:ever)? [a-z]+s\b[^?|]*\.": "a noun: the holder, a process",
    r"\bkeeps? off\b": "holds back",
    r"\btime-outs?\b": "timeout",
    r"\btells? of\b": "reports",
    r"\b(?:is|are|was|were) told\b": "is notified, gets",
    r"\bcomes? to (?:its|their) turn\b": "gets its turn",
    r"\bneeds? a person\b": "needs action",
    r"\bany more\b": "no longer",
    r"\bgo(?:es)? on\b": "continues, is under way",
    r"\bfrom the (?:acquire|release) on\b": "counted from the acquire",
    r"\bThere, ": "the library's name: In rslock,",
    r"\b[Nn]othing of it\b": "none of them",
    r"\boftener\b": "more often",
}
"""Turns of speech of pages and messages, and what to write instead."""

PAGES = ("core/docs/", "site/pages/", ".github/", "README.md", "core/README.md", "python/README.md", "node/README.md")

CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
"""What a page quotes: programs, names and the titles of tests."""

LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)* (?:[^"\\\n]|\\.)*)"')


@functools.cache
def sources() -> list[str]:
    """Every file of the repository."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.splitlines() if (ROOT / path).is_file()]


@functools.cache
def prose() -> list[tuple[str, str]]:
    """The text of each page, on one line for each of its own."""
    pages = [path for path in sources() if path.startswith(PAGES) and path.endswith(".md")]
    return [(path, CODE.sub(lambda code: "\n" * code[0].count("\n"), (ROOT / path).read_text())) for path in pages]


@functools.cache
def messages() -> list[tuple[str, str]]:
    """What the engine and its program say: their strings, without those of unit tests."""
    engine = [path for path in sources() if path.startswith("core/src/") and path.endswith(".rs")]
    engine = [path for path in engine if "/testing/" not in path and not path.endswith("testing.rs")]
    shown = []
    for path in engine:
        code = (ROOT / path).read_text().split("#[cfg(test)]")[0]
        lines = [line for line in code.splitlines() if not line.lstrip().startswith("//")]
        shown.append((path, "\n".join(literal for line in lines for literal in LITERAL.findall(line))))
    return shown


@pytest.mark.parametrize("tic", TICS)
def test_nobody_stumbles_over(tic: str) -> None:
    found = [
        f"{path}: …{text[max(0, match.start() - 40) : match.end() + 20]}…"
        for path, text in [*prose(), *messages()]
        for match in re.finditer(tic.replace(" ", r"\s+") if tic[0] != "(" else tic, text, re.M)
    ]
    assert not found, f"write {TICS[tic]}:\n" + "\n".join(found)
