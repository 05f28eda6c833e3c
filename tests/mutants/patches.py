"""The patches beside this file: one wrong step of the engine each, and what has to find it.

A patch begins with what is wrong, and then has the lines

    Seed: 17                    seeds of the simulation from this one on find it, or
    Story: module::name         this test of the simulation finds it, or
    Case: test_x.py::test_y[…]  this test case of the conformance suite finds it, on a face of Rust
    Shows: told late|never told what it says then, as a regular expression
    Sample: yes                 it is one of those that `make gate` plants
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

FIELD = re.compile(r"^(Seed|Story|Case|Shows|Sample): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Patch:
    """One wrong step of the engine."""

    path: Path
    what: str
    seed: int | None
    story: str | None
    case: str | None
    shows: str
    is_sample: bool

    @property
    def name(self) -> str:
        """The name of the fault."""
        return self.path.stem

    @property
    def files(self) -> list[str]:
        """The files that it changes."""
        return re.findall(r"^\+\+\+ b/(.+)$", self.path.read_text(encoding="utf-8"), re.MULTILINE)

    def apply(self, tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
        """Applies it to a tree that is no repository, or part of one."""
        command = ["git", "-C", str(tree), "apply", *options, str(self.path)]
        ceiling = {"GIT_CEILING_DIRECTORIES": str(tree.parent)}
        return subprocess.run(command, env=os.environ | ceiling, capture_output=True, text=True, check=False)


def read(path: Path) -> Patch:
    """Reads the head of a patch."""
    head, _, _ = path.read_text(encoding="utf-8").partition("\n--- ")
    fields = dict(FIELD.findall(head))
    seed = int(fields["Seed"]) if "Seed" in fields else None
    what, _, _ = head.partition("\n")
    is_sample = fields.get("Sample") == "yes"
    return Patch(path, what, seed, fields.get("Story"), fields.get("Case"), fields["Shows"], is_sample)


def patches() -> list[Patch]:
    """All patches, by name."""
    return [read(path) for path in sorted(HERE.glob("*.patch"))]


def named(names: Iterable[str]) -> list[Patch]:
    """The patches of these names, or all."""
    wanted = set(names)
    found = [patch for patch in patches() if not wanted or patch.name in wanted]
    if missing := wanted - {patch.name for patch in found}:
        raise SystemExit(f"there is no patch {', '.join(sorted(missing))}")
    return found
