"""Each option has its section on the page, and its examples run. Those in Rust are an example of the crate."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redlock

from examples.program import NODE_PACKAGES, link_packages
from support.process import TESTS
from support.tls import CA, CLIENT, CLIENT_KEY

PAGE = (TESTS.parent / "core" / "docs" / "options.md").read_text(encoding="utf-8")
PROGRAM = (TESTS.parent / "core" / "examples" / "options.rs").read_text(encoding="utf-8")

ROWS = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", PAGE, re.M)
"""The options of the table."""

SECTIONS = {
    name: (takers, *examples)
    for name, takers, *examples in re.findall(
        r"^### `(\w+)`\n\n((?:Every|Only).+?\.)\s.+?\n\n"
        r"```python\n(.+?)\n```\n\n```js\n(.+?)\n```\n\n```rust\n(.+?)\n```$",
        PAGE,
        re.M | re.S,
    )
}
"""Who takes it, and the examples in Python, Node and Rust of each option."""

CLIENT_ONLY = "Only a client takes it."
SETNX = 'a lock with `protocol="setnx"`'


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that examples name, in which the program runs."""
    for file, name in {CA: "ca.pem", CLIENT: "client.pem", CLIENT_KEY: "client.key"}.items():
        shutil.copy(file, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_option_of_the_table_has_its_section_and_an_example_in_rust() -> None:
    assert list(SECTIONS) == ROWS
    assert set(re.findall(r"let _ = (.+);", PROGRAM)) == {rust for *_, rust in SECTIONS.values()}


@pytest.mark.parametrize("name", SECTIONS)
def test_in_python(name: str, files: Path) -> None:
    eval(SECTIONS[name][1], {"redlock": redlock})


def test_in_node(files: Path) -> None:
    link_packages(files, NODE_PACKAGES)
    code = ['import { lock, Redlock } from "redlock-rs";', *(f"{node};" for *_, node, _ in SECTIONS.values())]
    (files / "options.mjs").write_text("\n".join(code))
    subprocess.run(["node", "options.mjs"], check=True, timeout=30)


def test_who_takes_it() -> None:
    """What the page says of a kind of lock is what this kind refuses."""
    client = redlock.Redlock("memory://options")
    made: dict[str, Callable[[dict[str, Any]], object]] = {
        "a lock of one name": lambda options: client.lock("report", **options),
        "a semaphore": lambda options: client.semaphore("report", 2, **options),
        "a lock of several names": lambda options: client.lock_all(["report", "index"], **options),
        "a lock for readers": lambda options: client.lock("report", shared=True, **options),
        "an election": lambda options: client.election("report", **options),
        SETNX: lambda options: client.lock("report", **{"protocol": "setnx"} | options),
    }
    for name, (takers, python, *_) in SECTIONS.items():
        example = ast.parse(python, mode="eval").body
        assert isinstance(example, ast.Call)
        (value,) = (ast.literal_eval(each.value) for each in example.keywords if each.arg == name)
        taken = []
        for shape, make in made.items():
            try:
                make({name: value})
                taken.append(shape)
            except redlock.LockInvalidArgument:
                pass
        refused = [shape for shape in made if shape not in taken]
        if not taken:
            said = CLIENT_ONLY
        elif len(refused) > len(taken):
            said = f"Only {' or '.join(shape for shape in taken if shape != SETNX)} takes it."
        else:
            said = f"Every lock takes it{', except ' if refused else ''}{' and '.join(refused)}."
        assert takers == said, name
