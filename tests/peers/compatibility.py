"""The page `core/docs/compatibility.md`, of `peers.toml` and what the tests saw; run as a program, it writes it."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "core" / "docs" / "compatibility.md"
SEEN = HERE / "seen.json"

TOOLS = {"go": "go", "java": "mvn"}
"""What the peers of a language need and not every machine has."""

Seen = Mapping[str, Mapping[str, str]]
"""For each peer, what was looked at and what was seen."""

HEAD = """\
# Beside other lock libraries

This library and another one exclude each other on one key if both use the plain protocol: `SET key token NX PX ttl`,
delete it if the value is still mine. "Yes" was seen on real servers: each waited while the other held the lock,
acquired it after the other's release, and the two never held it at the same time under contention. `make interop` runs
these tests and writes this page.
"""

SHARED = """\
## What is shared

- **Exclusion**, if both list the same nodes and use the same key. If a library adds a prefix to its names, give ours
  the whole key: `redlock.lock("{key}")` is the lock `foo` of {prefixed}.
- **`inspect`** shows a lock of another library as `foreign`, with its remaining time.

## What is not

- **The fence.** A write of another library carries no fence of ours, so a resource cannot recognize a late one. Our
  fences stay unique and in order when other libraries hold the lock in between.
- **Renewal.** Each library renews only its own locks, if any. A lock without renewal ends after its ttl.
- **Notification.** Waiters of other libraries are not notified of our release. They poll, as they do among themselves.
"""


@dataclass(frozen=True)
class Row:
    """What is known of a peer before any test; `peers.toml` says what it means."""

    name: str
    title: str
    language: str
    pin: list[str]
    key: str
    wakes: str
    renews: str
    face: str | None = None
    """Our face that competes with it, if not the usual one of its language."""
    several: bool = False
    shares: bool = True
    """It uses the plain protocol."""
    wait_ms: int | None = None
    """How long it waits in one go where it competes."""

    @property
    def version(self) -> str:
        """The pinned one."""
        manifest, before = self.pin
        found = re.search(re.escape(before) + r"([\w.-]+)", (HERE / manifest).read_text())
        assert found, f"{manifest} does not pin {self.name}"
        return found[1]

    @property
    def here(self) -> bool:
        """Whether this machine has what it needs."""
        return self.language not in TOOLS or shutil.which(TOOLS[self.language]) is not None


ROWS = [Row(**peer) for peer in tomllib.loads((HERE / "peers.toml").read_text())["peer"]]


def page(seen: Seen) -> str:
    """The whole page."""
    prefixed = next(row for row in ROWS if row.key != "foo")
    shared = SHARED.format(key=prefixed.key, prefixed=prefixed.title.partition(" ")[0])
    sleepers = [wrapped(f"  {notes['wake-up']}") for notes in seen.values() if "wake-up" in notes]
    others = [wrapped(notes["protocol"], "") for notes in seen.values() if "protocol" in notes]
    cannot = ["", "## What cannot be shared", "", *others] if others else []
    return "\n".join([HEAD, *table(seen), "", shared + "\n".join(sleepers), *cannot]).rstrip() + "\n"


def table(seen: Seen) -> Iterator[str]:
    """One line a peer."""
    yield "| library | one node | three nodes | the key of its lock `foo` | its waiters | renews |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in ROWS:
        notes = seen.get(row.name, {})
        one, three = notes.get("one node", "not seen"), notes.get("three nodes", "not seen")
        if not row.several:
            three = "has no such lock" if row.shares else one
        cells = [f"{row.title} {row.version}", one, three, f"`{row.key}`"]
        yield f"| {' | '.join([*cells, row.wakes, row.renews])} |"


def wrapped(text: str, indent: str = "  ") -> str:
    """A paragraph."""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    """Writes the page if it is another than before."""
    text = page(json.loads(SEEN.read_text()))
    if not PAGE.exists() or PAGE.read_text() != text:
        PAGE.write_text(text)
        print(f"{PAGE.name} has changed")


if __name__ == "__main__":
    main()
