"""The records of the workers and the store: counted, and passed on to the history of the epoch."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.arena import HANDS, PASSWORD, Journal, Worker

LANGUAGES = {"Rust": "#c2571a", "Python": "#2f6fb0", "Node": "#2e9c5b"}
"""In the order in which they are shown, with their colours."""

ALLOWED = ("timeout", "unavailable", "forbidden", "lost")
"""Errors that calls may end with while nodes are in trouble."""

ASKED_TWICE = "held by another when it was asked again"
"""What the error of a release says of a node if the release was sent twice."""

DRIFT, DRIFT_NS = 0.01, 2_000_000
"""The share of a time by which clocks may differ, and what comes on top."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Early:
    """The loss of a valid lock."""

    names: tuple[str, ...]
    at_ns: int
    text: str


@dataclass
class Tally:
    """All counts of a run."""

    acquired: Counter[str] = field(default_factory=Counter)
    """By language."""
    by_face: Counter[str] = field(default_factory=Counter)
    by_lane: Counter[str] = field(default_factory=Counter)
    by_shape: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By shape and language; `hand.py` says what the shapes are."""
    denied: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    """By code."""
    losses: Counter[str] = field(default_factory=Counter)
    """By reason."""
    early: list[Early] = field(default_factory=list)
    """Losses of valid locks, except for max_hold or because no node could be asked."""
    extended: int = 0
    accepted: int = 0
    refused: int = 0
    lost_updates: int = 0
    longest_wait_ns: int = 0
    troubles: list[str] = field(default_factory=list)
    """Problems that make a run fail, whatever the checker says."""

    def hear(self, worker: Worker, history: EpochHistory) -> None:
        """Reads what a worker has recorded since the last time."""
        for line in worker.journal.lines():
            if "kind" in line:
                self._record(worker, line)
                history.add(line)
            else:
                self._event(worker, line)

    def hear_end(self, worker: Worker) -> None:
        """Reads the last lines of a worker that has ended."""
        for line in worker.journal.lines():
            if "kind" in line:
                self.troubles.append(f"{worker.name} uses a lock after its end: {line['kind']}")
            else:
                self._event(worker, line)

    def hear_store(self, journal: Journal, history: EpochHistory) -> None:
        """Reads what the store has recorded since the last time."""
        for line in journal.lines():
            is_read = line.pop("access") == "read"
            if not is_read:
                self.accepted += line["ok"]
                self.refused += not line["ok"]
                self.lost_updates += line.pop("lost_update", False)
            history.add({"kind": "write", "valid_until_ns": None, "shared": is_read, **line})

    def _record(self, worker: Worker, line: Json) -> None:
        client, language = line["client"], worker.role.language
        if line["kind"] == "acquire":
            worker.asking.pop(client, None)
            line |= _as_asked(line, worker.asked.get(client, {}))
            worker.releasing_ns.pop(client, None)
            # Very many are denied to clients that do not come again.
            if line["ok"]:
                worker.holding[client] = line
            else:
                worker.holding.pop(client, None)
                worker.asked.pop(client, None)
        if line["ok"] and line["kind"] in ("acquire", "extend"):
            worker.valid_until_ns[client] = line["valid_until_ns"]
        if line["ok"] and line["kind"] == "extend":
            # A renewal is seen some time after its request, from which its validity counts, less the drift. So it can
            # look older than the hold if it came right after the acquire.
            asked_ns = line["valid_until_ns"] - _valid_ns(worker.asked.get(client, {}))
            acquired_ns = worker.holding[client]["return_ns"] if client in worker.holding else 0
            line["invoke_ns"] = min(line["invoke_ns"], max(asked_ns, acquired_ns))
        match line["kind"], line["ok"]:
            case "acquire", True:
                self.acquired[language] += 1
                self.by_face[f"{language} {worker.role.face}"] += 1
                self.by_lane[worker.lane] += 1
                self.by_shape[worker.asked.get(client, {}).get("shape", ""), language] += 1
                self.longest_wait_ns = max(self.longest_wait_ns, line["return_ns"] - line["invoke_ns"])
            case "acquire", False:
                self.denied[language] += 1
            case "extend", True:
                self.extended += 1
            case "release" | "lost", _:
                worker.holding.pop(client, None)

    def _event(self, worker: Worker, line: Json) -> None:
        match line["event"]:
            case "asking":
                worker.asking[line["client"]] = worker.asked[line["client"]] = line
                worker.resting = False
            case "releasing":
                worker.releasing_ns[line["client"]] = line["at_ns"]
            case "resting":
                worker.resting = True
            case "served":
                worker.served = True
            case "error":
                self._error(worker, line)
            case "heard":
                if PASSWORD in str(line):
                    self.troubles.append(f"{worker.name} logs a password: {line['code']}")
            case other:
                self.troubles.append(f"{worker.name} says {other!r}, which no worker should")

    def _error(self, worker: Worker, line: Json) -> None:
        client = line["client"]
        self.errors[line["code"]] += 1
        text = f"{client}: {line['call']}: {line['code']}: {line['message']}"
        if line["code"] == "lost":
            self.losses[line["reason"]] += 1
            # The error of a repeated release does not say whether the other owner came before or after it.
            # Before it would be two holders at once, which the history shows.
            is_ambiguous = line["call"] == "release" and ASKED_TWICE in line["message"]
            if line["at_ns"] < worker.valid_until_ns[client] and not is_ambiguous:
                names = names_in(worker.asked[client]) if client in worker.asked else ()
                self.early.append(Early(tuple(names), line["at_ns"], text))
        if line["code"] not in ALLOWED:
            self.troubles.append(text)


def names_in(line: Json) -> list[str]:
    """The single names of the lock that a line is about."""
    return list(line.get("names") or [line["name"]])


def _valid_ns(asked: Json) -> int:
    """For how long a lock is valid that was asked for so, with the drift."""
    valid_s: float = asked.get("ttl_s", 0) - asked.get("margin_s", 0)
    return round(valid_s * 1e9)


def _as_asked(acquire: Json, asked: Json) -> Json:
    """What the judge has to know of an acquire beside what came of it."""
    known: Json = {"permits": asked["permits"]} if asked.get("permits") else {}
    if acquire["ok"] and asked.get("margin_s"):
        known["margin_ns"] = int(asked["margin_s"] * 1e9)
    if acquire["ok"] and asked.get("least_s"):
        # The clocks of nodes may be faster.
        least_ns = int(asked["least_s"] * 1e9 * (1 - DRIFT)) - DRIFT_NS
        known["least_until_ns"] = max(0, acquire["valid_until_ns"] - _valid_ns(asked) + least_ns)
    return known


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
            record = {"kind": "acquire", "client": asked["client"], "name": asked["name"], "invoke_ns": asked["at_ns"]}
            record |= {"return_ns": None, "ok": False, "fence": None, "valid_until_ns": until_ns}
            record |= {what: asked[what] for what in ("names", "shared") if what in asked}
            self.add(record | _as_asked(record, asked))
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
