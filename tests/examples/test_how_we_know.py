"""The page `core/docs/how-we-know.md`: what it cites exists, the promise is there word for word, no row is empty."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from setup.tiers import left_out

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "core" / "docs"
PAGE = (DOCS / "how-we-know.md").read_text()
PROMISE = (DOCS / "promise.md").read_text()
SCENARIOS = 232

CHECK = re.compile(r"`([\w/.-]+)::([^`]+)`")
DEFINITIONS = {
    ".py": r'def {name}\(|^    Kind\("{name}"',
    ".rs": r"fn {name}\(",
    ".mjs": r'"{name}"',
}
VARIANT = r'"{variant}"|def {variant}\('


WHERE = re.compile(r" \(in (`make [a-z-]+`)\)")
"""Stands behind a check that `make test` leaves out altogether, and says what runs it."""


def rows(columns: int) -> list[list[str]]:
    """The rows of the tables that have as many columns, without their heads."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return [row for row in lines if len(row) == columns and row[0] != "promise" and not row[0].startswith("---")]


def missing(check: tuple[str, str]) -> str | None:
    """The missing part of a check that the page cites."""
    path, name = check
    file = ROOT / path
    if not file.is_file():
        return f"{path} does not exist"
    name, _, variant = name.removesuffix("]").partition("[")
    text = file.read_text()
    for pattern, wanted in ((DEFINITIONS[file.suffix], name), (VARIANT, variant)):
        if wanted and not re.search(pattern.format(name=re.escape(wanted), variant=re.escape(wanted)), text, re.M):
            return f"{path} has no {wanted}"
    return None


def unguarded(row: Sequence[str]) -> bool:
    """Whether a row neither cites a check nor says that there is none."""
    return not CHECK.search(row[-1]) and "**Nothing**" not in row[-1]


def test_what_is_cited_exists() -> None:
    cited = sorted(set(CHECK.findall(PAGE)))
    assert len(cited) > SCENARIOS
    assert not [what for check in cited if (what := missing(check))]


def test_a_check_that_make_test_leaves_out_says_so() -> None:
    left = {(place, test): runs for place, test, how_much, _, runs in left_out() if how_much == "all"}
    wrong = []
    for check in CHECK.finditer(PAGE):
        said, (place, test) = WHERE.match(PAGE, check.end()), check.groups()
        if (said and said[1]) != left.get((place, test), left.get((place, "each test"))):
            wrong.append(check[0])
    assert not wrong


def test_the_whole_promise_is_there() -> None:
    clauses = rows(2)
    promise = PROMISE.split("\n## In full\n")[1].split("\n## ")[0]
    assert " ".join(clause for clause, _ in clauses).split() == promise.split(), "it is not the promise word for word"
    assert not [clause for clause, *rest in clauses if unguarded(rest)]


def test_every_scenario_is_there() -> None:
    scenarios = rows(4)
    assert f" {SCENARIOS} failure scenarios" in PAGE
    assert [row[0] for row in scenarios] == [str(number) for number in range(1, SCENARIOS + 1)]
    assert not [row[:2] for row in scenarios if unguarded(row)]


@pytest.mark.parametrize("check", ["no/file.py::test_x", "python/tests/test_block.py::test_nothing"])
def test_what_does_not_exist_is_missed(check: str) -> None:
    assert missing(CHECK.findall(f"`{check}`")[0])
