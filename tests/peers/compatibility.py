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

Locks of other libraries count for this one, and ours for theirs, wherever both use the plain protocol on one key: `SET
key token NX PX ttl`, delete it if the value is still mine. The locks below were run against ours on real servers. "Yes"
is that each was denied and waited while the other held, that each won when the other released, and that both competed
for one lock and never had it together. `make interop` does that again and writes this page.
"""

SHARED = """\
## What is shared

- **Exclusion**, if both list the same nodes and mean the same key. Where a library puts something in front of its
  names, give ours the whole key: `redlock.lock("{key}")` is the lock `foo` of {prefixed}.
- **`inspect`** shows a peer's lock as `foreign`, with the time that is left.

## What is not

- **The fence.** Peers draw none. Ours stay unique and in order with their holds in between, but what a peer writes
  carries no fence, so that no resource can tell a late write of it.
- **Renewal.** Each library extends what it holds itself, or does not: a peer's lock without renewal ends with its ttl.
- **Waking up.** Nobody tells a peer of our release: its waiters ask again, as they do among themselves.
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
    yield "| library | one node | three nodes | the key of its lock `foo` | how its waiters learn | extends by itself |"
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
