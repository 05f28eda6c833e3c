"""The time after a failover in which the new primary grants nothing to processes that used the former one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.counts import process_of
from chaos.schedule import TTL_S
from chaos.tally import names_in

LONGEST_NS = round(TTL_S * 1e9)
"""The `restart_delay` of locks with a longer ttl. That of others is their ttl."""


@dataclass(frozen=True)
class Quarantine:
    """Such a time, for some names."""

    lane: str
    names: frozenset[str]
    lost_ns: int
    """After this, the former primary granted nothing."""
    replaced_ns: int
    """Before this, no client could see that the new one has taken its place."""

    def broken_in(self, history: Path) -> Iterator[str]:
        """What a history has of acquisitions in the meantime, by processes that had used the former primary."""
        won = [
            record
            for record in map(json.loads, history.read_text(encoding="utf-8").splitlines())
            if record["kind"] == "acquire" and record["ok"] and not self.names.isdisjoint(names_in(record))
        ]
        users = {process_of(record["client"]) for record in won if record["return_ns"] < self.lost_ns}
        for record in won:
            if (
                process_of(record["client"]) in users
                and record["invoke_ns"] > self.lost_ns
                and record["return_ns"] < self.replaced_ns + _delay_ns(record)
            ):
                after_s = (record["return_ns"] - self.replaced_ns) / 1e9
                had_it = f'lock "{record["name"]}": "{record["client"]}" had it {after_s:.2f} s after that'
                yield f"granted in quarantine: {self.lane} had another primary, and {had_it}"


def _delay_ns(acquire: dict[str, Any]) -> int:
    """The least `restart_delay` that the lock can have had: it was not valid for longer than its ttl."""
    return int(min(LONGEST_NS, acquire["valid_until_ns"] - acquire["return_ns"]))
