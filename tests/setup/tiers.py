"""Writes into `tests/TIERS.md` which tests `make test` leaves out, as their sources say.

python tests setup.tiers
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from support.process import TESTS

PAGE = TESTS / "TIERS.md"
BEGIN, END = "<!-- python tests setup.tiers writes from here -->", "<!-- to here -->"

ALL, GATE = "`make test-all`", "`make gate`"
"""Who runs what `make test` leaves out. `make test-all` runs all of it."""

IGNORED = re.compile(r'#\[ignore\s*=\s*"make test-all: ((?:[^"\\]|\\.)*)"\].*?\bfn (\w+)', re.S)


class LeftOut(NamedTuple):
    """A test, all of it or some of its cases, why `make test` leaves it out, and who runs it."""

    place: str
    test: str
    how_much: str
    reason: str
    runs: str


def left_out() -> list[LeftOut]:
    """Returns all tests that only `make test-all` runs."""
    found = []
    for folder in ("core", "tests", "python"):
        for file in (TESTS.parent / folder).rglob("*.[pr][ys]"):
            place = str(file.relative_to(TESTS.parent))
            if not {"node_modules", "target"} & set(file.parts):
                text = file.read_text(encoding="utf-8")
                found += [LeftOut(place, *each) for each in (in_python if file.suffix == ".py" else in_rust)(text)]
    return sorted(set(found))


def in_rust(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Finds the tests that are ignored with a reason that begins with `make test-all: `."""
    for reason, test in IGNORED.findall(text):
        yield test, "all", re.sub(r"\\\n\s*", "", reason), ALL


def in_python(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Finds the marks `test_all`, those that have a name included."""
    if "test_all" not in text:
        return
    module = ast.parse(text)
    assigned = {ast.unparse(node.targets[0]): node.value for node in ast.walk(module) if isinstance(node, ast.Assign)}
    named = {name: reason for name, value in assigned.items() if (reason := reason_of(value))}
    if "pytestmark" in named:
        yield "each test", "all", *named["pytestmark"]
    # A mark stands at a function, in it, or in a list of cases that has a name.
    places = {name: value for name, value in assigned.items() if name not in named}
    functions = (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    for name, place in [*places.items(), *((node.name, node) for node in functions)]:
        for node in ast.walk(place):
            if reason := reason_of(node, named):
                yield name, "all" if node in getattr(place, "decorator_list", []) else "some cases", *reason


def reason_of(node: ast.AST, named: dict[str, tuple[str, str]] | None = None) -> tuple[str, str] | None:
    """Returns the reason of a mark `test_all` and who runs the test, or those of a name that stands for one."""
    match node:
        case ast.Call(func=ast.Attribute(attr="test_all"), args=[ast.Constant(value=str(reason))], keywords=[]):
            return reason, ALL
        case ast.Call(
            func=ast.Attribute(attr="test_all"),
            args=[ast.Constant(value=str(reason))],
            keywords=[ast.keyword(arg="gate", value=ast.Constant(value=True))],
        ):
            return reason, GATE
        case ast.Call(func=ast.Attribute(attr="test_all")):
            raise ValueError(f"{ast.unparse(node)}: a mark that leaves a test out needs its reason as a literal")
        case ast.Name(id=name) if named:
            return named.get(name)
    return None


def written(page: str) -> str:
    """Returns the page with the list of today."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    rows = ["| test | left out | reason | run by |", "| --- | --- | --- | --- |"]
    rows += [f"| `{place}`: `{test}` | {' | '.join(rest)} |" for place, test, *rest in left_out()]
    return "\n".join([head + BEGIN, "", *rows, "", END + tail])


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
