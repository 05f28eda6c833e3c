"""The holds of locks, as a history records them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from chaos.arena import lane_of


@dataclass(eq=False)
class Hold:
    """One hold of a lock, from its acquire to its end."""

    client: str
    fence: int
    asked_ns: int
    since_ns: int
    valid_until_ns: int
    """The end of its validity, as far as known."""
    granted_ns: int
    """When it was acquired or renewed last: its validity is one ttl from then on."""
    renewed: int = 0
    end: str | None = None
    """How it ended: `released`, `lost`, or `left` if its release failed or its worker was killed."""
    end_ns: int | None = None
    accesses_ns: list[int] = field(default_factory=list)
    """When it led to an access to the store."""
    refused_ns: list[int] = field(default_factory=list)
    """When the store refused one."""

    @property
    def lane(self) -> str:
        """The lane of its worker."""
        return lane_of(self.client)

    @property
    def wait_s(self) -> float:
        """How long its client waited for it."""
        return (self.since_ns - self.asked_ns) / 1e9

    @property
    def over_ns(self) -> int:
        """When its client could no longer rely on it, as far as known."""
        return self.valid_until_ns if self.end_ns is None else min(self.end_ns, self.valid_until_ns)

    @property
    def held_s(self) -> float:
        """How long its client could rely on it."""
        return max(0.0, (self.over_ns - self.since_ns) / 1e9)


def read(history: Path) -> list[Hold]:
    """The holds in a history, in the order in which they began."""
    holds: dict[tuple[str, int], Hold] = {}
    accesses = []
    for record in map(json.loads, history.read_text(encoding="utf-8").splitlines()):
        client, kind, ok, invoke_ns = record["client"], record["kind"], record["ok"], record["invoke_ns"]
        hold = holds.get((client, record["fence"]))
        if kind == "acquire" and ok:
            times = invoke_ns, record["return_ns"], record["valid_until_ns"]
            holds[client, record["fence"]] = Hold(client, record["fence"], *times, granted_ns=record["return_ns"])
        elif kind == "write":
            # The store's records are read apart from those of its clients.
            accesses.append((client, record["fence"], invoke_ns, ok))
        elif hold and kind == "extend" and ok:
            hold.valid_until_ns, hold.granted_ns = record["valid_until_ns"], invoke_ns
            hold.renewed += 1
        elif hold and kind in ("release", "lost") and not hold.end:
            hold.end = "lost" if kind == "lost" else "released" if ok else "left"
            hold.end_ns = invoke_ns
    for client, fence, at_ns, ok in accesses:
        if hold := holds.get((client, fence)):
            (hold.accesses_ns if ok else hold.refused_ns).append(at_ns)
    return sorted(holds.values(), key=lambda hold: hold.since_ns)
