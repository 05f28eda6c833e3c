"""The state of the fight: waiters, holders, faults, and the history of all calls.

Nothing here waits or reads a clock: `Fight` gets events, and the view, the report and the timeline read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from chaos.live import Story

NODES = 5
"""How many servers the lock is on."""

NAME = "demo"
"""The lock they fight for."""

TTL_S = 2.0
"""How long a dead holder blocks the others."""

LANGUAGES = ("Rust", "Python", "Node")
"""In the order in which they are shown."""

Message = dict[str, Any]
"""One line of a worker."""

State = Literal["starting", "idle", "waiting", "holding", "frozen", "killed", "ended"]
NodeState = Literal["up", "frozen", "dead"]
End = Literal["released", "lost", "killed", "failed"]


@dataclass(eq=False)
class Worker:
    """One worker process."""

    name: str
    language: str
    face: str
    state: State = "starting"
    asked_ns: int | None = None
    """Since when it waits, if it does."""
    hold: Hold | None = None
    """Its present hold."""
    acquisitions: int = 0


@dataclass(eq=False)
class Hold:
    """One acquisition and its results."""

    worker: Worker
    fence: int
    asked_ns: int
    since_ns: int
    valid_until_ns: int
    kept: bool = False
    """Whether the worker had the order to hold it long."""
    renewals: int = 0
    counted: bool = False
    """Whether the holder increased the counter in the file."""
    end: End | None = None
    end_ns: int | None = None
    reason: str | None = None
    """Why it was lost."""

    @property
    def wait_s(self) -> float:
        """How long the worker waited for it."""
        return (self.since_ns - self.asked_ns) / 1e9

    @property
    def over_ns(self) -> int:
        """When its holder could no longer rely on it, as far as known."""
        return self.valid_until_ns if self.end_ns is None else min(self.end_ns, self.valid_until_ns)

    @property
    def held_s(self) -> float:
        """How long its holder could rely on it."""
        return max(0.0, (self.over_ns - self.since_ns) / 1e9)


@dataclass(eq=False)
class Fault:
    """A fault of a node or a worker, from its beginning to its end."""

    kind: Literal["node frozen", "node killed", "holder killed", "holder frozen"]
    subject: str
    from_ns: int
    to_ns: int | None = None
    hold: Hold | None = None
    """The hold of the worker."""


@dataclass(eq=False)
class Fight(Story):
    """All events of the fight."""

    workers: list[Worker] = field(kw_only=True)
    end_ns: int = 0
    nodes: list[NodeState] = field(default_factory=lambda: ["up"] * NODES)
    holds: list[Hold] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    records: list[Message] = field(default_factory=list)
    """The history, as the checker wants it."""
    refused: list[str] = field(default_factory=list)
    """Calls that found no quorum in time; allowed, because a slow machine alone can cause them."""
    troubles: list[str] = field(default_factory=list)
    """Problems that make the demo fail, whatever the checker says."""
    count: int | None = None
    """The content of the file at the end."""

    def holder(self) -> Hold | None:
        """The latest acquisition, unless it has ended or its validity is known to have ended."""
        return next((hold for hold in reversed(self.holds) if hold.end is None), None)

    def of(self, language: str) -> list[Hold]:
        """The acquisitions of one language."""
        return [hold for hold in self.holds if hold.worker.language == language]

    def after(self, hold: Hold) -> Hold | None:
        """The acquisition that followed."""
        return min((other for other in self.holds if other.fence > hold.fence), key=lambda h: h.fence, default=None)

    def during(self, from_ns: int, to_ns: int) -> list[Hold]:
        """The acquisitions that came in a span of time."""
        return [hold for hold in self.holds if from_ns <= hold.since_ns < to_ns]

    def history(self) -> Iterator[str]:
        """The history as JSON lines."""
        return (json.dumps(record) + "\n" for record in self.records)

    def hear(self, worker: Worker, message: Message) -> None:
        """Records one line of a worker."""
        match message["event"]:
            case "ready":
                worker.state = "idle"
            case "asking":
                worker.state, worker.asked_ns = "waiting", message["at_ns"]
            case "acquired":
                self._acquired(worker, message)
            case "renewed":
                self._renewed(worker, message)
            case "counted":
                self._held(worker).counted = True
            case "damage":
                self.troubles.append(f"{worker.name}: {message['message']}")
            case "released":
                self._record(worker, "release", (message["asked_ns"], message["at_ns"]), message["fence"])
                self._end(worker, "released", message["asked_ns"])
            case "lost":
                self._lost(worker, message)
            case "error":
                self._failed(worker, message)
            case other:
                raise ValueError(f"{worker.name} says {other!r}, which no worker should")

    def killed(self, worker: Worker, at_ns: int) -> None:
        """Records that a worker was killed and is gone: nobody relies on its locks any more."""
        if worker.hold is not None:
            self._record(worker, "release", (at_ns, at_ns), worker.hold.fence, ok=False)
            self._end(worker, "killed", at_ns)
        worker.state, worker.asked_ns = "killed", None

    def _acquired(self, worker: Worker, message: Message) -> None:
        at_ns, fence, asked_ns = message["at_ns"], message["fence"], worker.asked_ns
        if asked_ns is None:
            raise ValueError(f"{worker.name} acquired what it did not ask for")
        valid_until_ns = at_ns + message["remaining_ns"]
        self._record(worker, "acquire", (asked_ns, at_ns), fence, valid_until_ns=valid_until_ns)
        worker.hold = Hold(worker, fence, asked_ns, at_ns, valid_until_ns, kept=message["kept"])
        worker.state, worker.asked_ns = "holding", None
        worker.acquisitions += 1
        self.holds.append(worker.hold)

    def _renewed(self, worker: Worker, message: Message) -> None:
        hold, at_ns = self._held(worker), message["at_ns"]
        hold.valid_until_ns = at_ns + message["remaining_ns"]
        hold.renewals += 1
        self._record(worker, "extend", (at_ns, at_ns), hold.fence, valid_until_ns=hold.valid_until_ns)

    def _lost(self, worker: Worker, message: Message) -> None:
        hold, at_ns = self._held(worker), message["at_ns"]
        hold.reason = message["reason"]
        self._record(worker, "lost", (at_ns, at_ns), hold.fence)
        self._end(worker, "lost", at_ns)
        self.note(at_ns, f"{worker.name} was told that its lock is lost ({hold.reason})")

    def _failed(self, worker: Worker, message: Message) -> None:
        call, code = message["call"], message["code"]
        text = f"{worker.name}: {call}: {code}: {message['message']}"
        self._record(worker, call, (message["asked_ns"], message["at_ns"]), message.get("fence"), ok=False)
        if call == "release":
            self._end(worker, "failed", message["asked_ns"])
        else:
            worker.state, worker.asked_ns = "idle", None
        (self.refused if code in ("timeout", "unavailable") else self.troubles).append(text)
        self.note(message["at_ns"], f"{worker.name}: {call} failed: {code}")

    def _held(self, worker: Worker) -> Hold:
        if worker.hold is None:
            raise ValueError(f"{worker.name} speaks of a lock it does not hold")
        return worker.hold

    def _end(self, worker: Worker, end: End, end_ns: int) -> None:
        hold = self._held(worker)
        hold.end, hold.end_ns = end, end_ns
        worker.state, worker.hold = "idle", None

    def _record(
        self,
        worker: Worker,
        kind: str,
        call_ns: tuple[int, int],
        fence: int | None,
        *,
        ok: bool = True,
        valid_until_ns: int | None = None,
    ) -> None:
        record = {"client": worker.name, "name": NAME, "kind": kind, "invoke_ns": call_ns[0], "return_ns": call_ns[1]}
        self.records.append(record | {"ok": ok, "fence": fence, "valid_until_ns": valid_until_ns})


def mean(values: Iterable[float]) -> float:
    """The mean, or 0 of nothing."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
