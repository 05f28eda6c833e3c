"""The time after a failover in which the new primary grants nothing to processes that used the former one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LEAST_S = 1.0
"""The shortest `restart_delay` of all locks: the ttl of those that should expire."""


@dataclass(frozen=True)
class Quarantine:
    """Such a time, for some names."""

    lane: str
    names: frozenset[str]
    lost_ns: int
    """After this, the former primary granted nothing."""
    replaced_ns: int
    """The new one did not grant anything before this."""

    def broken_in(self, history: Path) -> Iterator[str]:
        """What a history has of acquisitions in the meantime, by processes that had used the former primary."""
        until_ns = self.replaced_ns + round(LEAST_S * 1e9)
        won = [
            record
            for record in map(json.loads, history.read_text(encoding="utf-8").splitlines())
            if record["kind"] == "acquire" and record["ok"] and record["name"] in self.names
        ]
        users = {_process(record["client"]) for record in won if record["return_ns"] < self.lost_ns}
        for record in won:
            if (
                _process(record["client"]) in users
                and record["invoke_ns"] > self.lost_ns
                and record["return_ns"] < until_ns
            ):
                after_s = (record["return_ns"] - self.replaced_ns) / 1e9
                had_it = f'lock "{record["name"]}": "{record["client"]}" had it {after_s:.2f} s after that'
                yield f"granted in quarantine: {self.lane} had another primary, and {had_it}"


def _process(client: str) -> str:
    """The process of a hand. A forked child is another one, which has not used anything yet."""
    process, _, hand = client.partition("/")
    return process if hand != "child" else client
