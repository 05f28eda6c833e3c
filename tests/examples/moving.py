"""The code of `core/docs/moving.md`: what uses another library, and what becomes of it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from examples.program import ROOT
from support.servers import Cluster

PAGE = (ROOT / "core" / "docs" / "moving.md").read_text(encoding="utf-8")

_SECTION = re.compile(r"^## (.+)\n", re.M)
_BLOCK = re.compile(r"^([^\n]*)\n\n```(\w+)[^\n]*\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A program in the page."""

    language: str
    code: str


@dataclass(frozen=True)
class Move:
    """A program that uses another library, and the one that it becomes."""

    name: str
    before: Block
    after: Block

    @property
    def nodes(self) -> int:
        """How many nodes it has: three, if it takes several addresses."""
        return 3 if "split(" in self.before.code else 1

    @property
    def keys(self) -> list[str]:
        """The lock's keys, by which both have to mean the same."""
        names: list[str] = re.findall(r'"(\S+:17)"', self.after.code)
        assert names
        return names

    def is_free(self, nodes: Cluster) -> bool:
        """Whether others can have the lock: what is killed right after its release may leave keys on a minority."""
        return all(sum(node.command("EXISTS", key) == 1 for node in nodes) <= self.nodes // 2 for key in self.keys)

    def is_taken(self, nodes: Cluster) -> bool:
        """Whether others can have none of its names."""
        return all(sum(node.command("EXISTS", key) == 1 for node in nodes) > self.nodes // 2 for key in self.keys)


def _moves() -> list[Move]:
    moves: list[Move] = []
    _, *sections = _SECTION.split(PAGE)
    for library, text in zip(sections[::2], sections[1::2], strict=True):
        befores: list[Block] = []
        count: Counter[str] = Counter()
        for said, language, code in _BLOCK.findall(text):
            block = Block(language, code)
            if said != "After:":
                assert re.search(r"\bbefore\b.*:$", said, re.I), f"{library}: neither before nor after: {said}"
                befores.append(block)
                continue
            for before in befores:
                count[library] += 1
                moves.append(Move(f"{library} {count[library]}", before, block))
            befores = []
        assert not befores, f"{library}: nothing becomes of the last code"
    return moves


MOVES = _moves()
"""Every program of the page that uses another library, in the page's order."""
