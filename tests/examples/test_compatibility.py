"""The page about other libraries has the results of the tests with them, in the pinned versions."""

from __future__ import annotations

import json
import re

from peers.compatibility import HERE, PAGE, ROWS, SEEN, page


def test_the_page_is_what_was_seen() -> None:
    assert PAGE.read_text() == page(json.loads(SEEN.read_text())), "run make interop, or tests/peers/compatibility.py"


def test_all_was_seen() -> None:
    assert json.loads(SEEN.read_text()).keys() == {row.name for row in ROWS}
    assert "not seen" not in PAGE.read_text()


def test_the_peers_are_described() -> None:
    described = dict(re.findall(r"^\| `([\w-]+)` \| (.*?) \|", (HERE / "README.md").read_text(), re.MULTILINE))
    assert described.keys() == {row.name for row in ROWS}
    for row in ROWS:
        assert row.version in described[row.name] or described[row.name].startswith("the same")
