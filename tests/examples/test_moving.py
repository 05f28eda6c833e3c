"""The code after a move in `core/docs/moving.md` runs. The code before it runs in `tests/peers`."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.moving import MOVES, PAGE, Move
from examples.program import NODE_PACKAGES, Running, interpreted, link_packages
from support.clock import until
from support.servers import Cluster

# Rust's code is compiled with the crate's documentation.
INTERPRETED = [move for move in MOVES if move.after.language != "rust"]


def test_every_program_is_run() -> None:
    known = [block.code for move in MOVES for block in (move.before, move.after)]
    assert sorted(set(known)) == sorted({text.split("\n", 1)[1] for text in PAGE.split("```")[1::2]})
    assert {move.before.language for move in MOVES} == {"python", "js", "rs"}


@pytest.mark.parametrize("move", INTERPRETED, ids=lambda move: move.name)
def test_after(move: Move, tmp_path: Path) -> None:
    link_packages(tmp_path, NODE_PACKAGES)
    with Cluster(move.nodes) as nodes:
        command = interpreted(tmp_path, move.after.language, move.after.code)
        with Running(nodes.urls, tmp_path, *command) as program:
            program.wait_for_work()
            assert move.is_taken(nodes)
            assert program.end(), program.said
        assert program.said == "working\n"
        until(lambda: move.is_free(nodes), "it is released")
