"""The records of the workers and the store: counted, and passed on to the history of the epoch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.arena import HANDS, Journal, Worker

LANGUAGES = ("Rust", "Python", "Node")
"""In the order in which they are shown."""

ALLOWED = ("timeout", "unavailable", "forbidden", "lost")
"""Errors that calls may end with while nodes are in trouble."""

ASKED_TWICE = "held by another when it was asked again"
"""What the error of a release says of a node if the release was sent twice."""

TICK_NS = 250_000_000
"""The time of one column of the live view."""

COMPLAINTS = 50
"""How many messages of errors are kept."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Holder:
    """The present holder of a name, as far as recorded."""

    client: str
    language: str
    fence: int
    since_ns: int
    until_ns: int


@dataclass(frozen=True)
class Early:
    """The loss of a valid lock."""

    name: str
    at_ns: int
    text: str


@dataclass
class Tally:
    """All counts of a run."""

    acquired: Counter[str] = field(default_factory=Counter)
    """By language."""
    by_face: Counter[str] = field(default_factory=Counter)
    by_lane: Counter[str] = field(default_factory=Counter)
    held_ns: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How long the workers of a lane held locks within a tick of the machine's clock; only of holds that are over."""
    denied: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    """By code."""
    losses: Counter[str] = field(default_factory=Counter)
    """By reason."""
    early: list[Early] = field(default_factory=list)
    """Losses of valid locks, except for max_hold or because no node could be asked."""
    extended: int = 0
    forked: int = 0
    accepted: int = 0
    refused: int = 0
    lost_updates: int = 0
    longest_wait_ns: int = 0
    seconds: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Acquisitions by second of the machine's clock and language."""
    said: list[str] = field(default_factory=list)
    """Some messages of errors."""
    troubles: list[str] = field(default_factory=list)
    """Problems that make a run fail, whatever the checker says."""
    holders: dict[str, Holder] = field(default_factory=dict)
    """By name."""

    def hear(self, worker: Worker, history: EpochHistory) -> None:
        """Reads what a worker has recorded since the last time."""
        for line in worker.journal.lines():
            if "kind" in line:
                self._record(worker, line)
                history.add(line)
            else:
                self._event(worker, line)

    def hear_store(self, journal: Journal, history: EpochHistory) -> None:
        """Reads what the store has recorded since the last time."""
        for line in journal.lines():
            if line.pop("access") == "write":
                self.accepted += line["ok"]
                self.refused += not line["ok"]
                self.lost_updates += line.pop("lost_update", False)
            history.add({"kind": "write", "valid_until_ns": None, **line})

    def forget(self, worker: Worker, at_ns: int) -> None:
        """Records that a worker is gone, and holds nothing."""
        for client in worker.holding:
            self._count_held(worker, client, at_ns)
        for name in [name for name, holder in self.holders.items() if holder.client.startswith(f"{worker.name}/")]:
            del self.holders[name]

    def _record(self, worker: Worker, line: Json) -> None:
        client, name, language = line["client"], line["name"], worker.role.language
        if line["kind"] == "acquire":
            asked = worker.asking.pop(client, None)
            worker.names[client] = name
            worker.ttl_ns[client] = round(asked["ttl_s"] * 1e9) if asked else 0
            worker.holding[client] = line
            worker.releasing_ns.pop(client, None)
        if line["ok"] and line["kind"] in ("acquire", "extend"):
            worker.valid_until_ns[client] = line["valid_until_ns"]
        if line["ok"] and line["kind"] == "extend":
            # A renewal is seen some time after its request, from which its validity counts, less the drift. So it can
            # look older than the hold if it came right after the acquire.
            asked_ns = line["valid_until_ns"] - worker.ttl_ns[client]
            acquired_ns = worker.holding[client]["return_ns"] if client in worker.holding else 0
            line["invoke_ns"] = min(line["invoke_ns"], max(asked_ns, acquired_ns))
        match line["kind"], line["ok"]:
            case "acquire", True:
                self.acquired[language] += 1
                self.by_face[f"{language} {worker.role.face}"] += 1
                self.by_lane[worker.lane] += 1
                self.seconds[line["return_ns"] // 10**9, language] += 1
                self.longest_wait_ns = max(self.longest_wait_ns, line["return_ns"] - line["invoke_ns"])
                until_ns = line["valid_until_ns"]
                self.holders[name] = Holder(client, language, line["fence"], line["return_ns"], until_ns)
            case "acquire", False:
                self.denied[language] += 1
            case "extend", True:
                self.extended += 1
            case "release" | "lost", _:
                self._count_held(worker, client, line["invoke_ns"])
                worker.holding.pop(client, None)
                if name in self.holders and self.holders[name].client == client:
                    del self.holders[name]

    def _count_held(self, worker: Worker, client: str, over_ns: int) -> None:
        for tick, held_ns in held(worker, client, over_ns):
            self.held_ns[worker.lane, tick] += held_ns

    def _event(self, worker: Worker, line: Json) -> None:
        match line["event"]:
            case "asking":
                worker.asking[line["client"]] = line
                worker.resting = False
            case "releasing":
                worker.releasing_ns[line["client"]] = line["at_ns"]
            case "resting":
                worker.resting = True
            case "served":
                worker.served = True
            case "forked":
                self.forked += 1
            case "trouble":
                self.troubles.append(line["message"])
            case "error":
                self.errors[line["code"]] += 1
                text = f"{line['client']}: {line['call']}: {line['code']}: {line['message']}"
                if line["code"] == "lost":
                    self.losses[line["reason"]] += 1
                    # The error of a repeated release does not say whether the other owner came before or after it.
                    # Before it would be two holders at once, which the history shows.
                    is_ambiguous = line["call"] == "release" and ASKED_TWICE in line["message"]
                    if line["at_ns"] < worker.valid_until_ns[line["client"]] and not is_ambiguous:
                        self.early.append(Early(worker.names[line["client"]], line["at_ns"], text))
                if len(self.said) < COMPLAINTS:
                    self.said.append(text)
                if line["code"] not in ALLOWED:
                    self.troubles.append(text)
            case other:
                self.troubles.append(f"{worker.name} says {other!r}, which no worker should")


def held(worker: Worker, client: str, over_ns: int) -> Iterator[tuple[int, int]]:
    """The ticks of a hand's hold, and for how long it held the lock in each."""
    acquire = worker.holding.get(client)
    if acquire is None or not acquire["ok"]:
        return
    from_ns, to_ns = acquire["return_ns"], min(over_ns, worker.valid_until_ns[client])
    for tick in range(from_ns // TICK_NS, to_ns // TICK_NS + 1):
        yield tick, max(0, min(to_ns, (tick + 1) * TICK_NS) - max(from_ns, tick * TICK_NS))


class EpochHistory:
    """The records of one epoch, in the form of `tests/history/src/record.rs`, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w", encoding="utf-8")

    def add(self, record: Json) -> None:
        """Adds a record. The order of records does not matter."""
        self._file.write(f"{json.dumps(record)}\n")

    def period(self, kind: str, client: str, from_ns: int, to_ns: int | None, name: str = "") -> None:
        """Adds a time of trouble."""
        self.add(
            {"kind": kind, "client": client, "name": name, "invoke_ns": from_ns, "return_ns": to_ns, "ok": True}
            | {"fence": None, "valid_until_ns": None}
        )

    def stopped(self, worker: Worker, from_ns: int, to_ns: int | None) -> None:
        """Adds that a worker was stopped, or killed."""
        for hand in range(HANDS):
            self.period("stopped", f"{worker.name}/{hand}", from_ns, to_ns)

    def never_back(self, worker: Worker, over_ns: int | None) -> None:
        """Adds the unanswered acquires of a worker; if it was killed, their keys expire."""
        for asked in worker.asking.values():
            until_ns = over_ns and over_ns + round(asked["ttl_s"] * 1e9)
            self.add(
                {"kind": "acquire", "client": asked["client"], "name": asked["name"], "invoke_ns": asked["at_ns"]}
                | {"return_ns": None, "ok": False, "fence": None, "valid_until_ns": until_ns}
            )
        worker.asking.clear()

    def given_up(self, worker: Worker, at_ns: int) -> None:
        """Records for a worker that is gone that nobody relies on its locks any more."""
        for client, held in worker.holding.items():
            if held["ok"]:
                over_ns = worker.releasing_ns.get(client, at_ns)
                self.add(held | {"kind": "release", "invoke_ns": over_ns, "return_ns": over_ns, "ok": False})
        worker.holding.clear()

    def close(self) -> None:
        """Ends the file."""
        self._file.close()
