"""The demo: a short run with one lock, in which nodes and holders freeze and die, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from rich.console import Console

from chaos.arena import ROLES, Worker
from chaos.nodes import KINDS, NODES
from chaos.run import SERVED_S, Run
from chaos.schedule import TTL_S, Epoch, Kind, Trouble
from support.clock import now_ns

CREW = (*ROLES[:5], ROLES[7])
"""Two workers of each language. Each uses one lock at a time."""

NAME = "demo"
"""The lock that they fight for."""

PLACE = f"{NODES} servers"
"""What it is on."""

KEEPER = 0
"""The worker that holds the lock while a node crashes."""

KEPT_NS = 150_000_000
"""A worker that has held the lock for so long keeps it for longer than its ttl; other holds are shorter."""

CALM_S = 1.0
"""How long the fight continues after the last trouble."""

FREEZE, STOP, KILL = (
    next(kind for kind in KINDS if kind.name == name) for name in ("freeze", "worker stopped", "worker killed")
)
CRASH = Kind("crash", "node", (0.0, 0.0), bars=True)
"""A node is down for a while and loses its data. It is the only one, and all workers see it restart, so two holders are
not excused, as they would be in chaos. But a lock that only a quorum of nodes has may be lost."""

EPOCH = Epoch(
    0,
    "data",
    (
        Trouble(FREEZE, at_s=1.5, lasts_s=2.0, where=1),
        Trouble(CRASH, at_s=4.0, lasts_s=0.9, where=3),
        Trouble(KILL, at_s=8.0, lasts_s=0.5, where=5),
        Trouble(STOP, at_s=10.5, lasts_s=2.0, where=2),
        Trouble(STOP, at_s=13.5, lasts_s=2.0, where=4),
        Trouble(STOP, at_s=16.5, lasts_s=2.0, where=1),
    ),
)
"""The troubles. None begins before the one before it has ended, which may take longer than planned."""

WORDS = {
    FREEZE: ("is frozen: it accepts connections and answers nothing", "continues"),
    CRASH: ("is killed", "starts again without its data"),
    KILL: ("is killed while it holds the lock", "is replaced by a new process"),
    STOP: (
        "is frozen while it holds the lock",
        "continues as if nothing had happened, and writes without a look at its lock",
    ),
}
"""The beginning and the end of each kind of trouble."""

SHOWN = (
    "One lock shared by three languages stays with one holder at a time while nodes hang or die and holders are "
    "frozen or killed, and no two acquisitions have fences out of order. A holder that was frozen beyond its ttl "
    "writes all the same, and the store refuses that because it has seen a larger fence."
)


@dataclass(eq=False)
class Demo(Run):
    """The run of the demo, on independent servers."""

    title: ClassVar[str] = f"one lock on {PLACE}"
    shapes: ClassVar[Mapping[str, int]] = {"one": 1}
    ways: ClassVar[Mapping[str, int]] = {"busy": 4, "block": 1}

    def names(self, epoch: Epoch) -> dict[str, list[str]]:
        """The one name, in all pools."""
        return {pool: [NAME] for pool in super().names(epoch)}

    def make_trouble(self, epoch: Epoch) -> None:
        """Goes through the troubles, one after the other, each long enough to be seen."""
        for trouble in epoch.troubles:
            self._wait_until(self._began_ns + round(trouble.at_s * 1e9))
            if trouble.kind is FREEZE:
                self._go_through(trouble)
            else:
                self._strike(trouble, KEEPER if trouble.kind is CRASH else trouble.where)
        self._wait_until(now_ns() + round(CALM_S * 1e9))

    def describe(self, trouble: Trouble) -> str:
        """The beginning of a trouble in words."""
        return f"{self.named(trouble.lane)} {WORDS[trouble.kind][0]}"

    def named(self, lane: str) -> str:
        """The subject of a lane, with its language if it is a worker."""
        role = self.lanes[lane]
        return f"{lane} ({role.language})" if role else lane

    def introduce(self, console: Console) -> None:
        """Prints which workers fight for the lock, and on what."""
        workers = ", ".join(f"{lane} ({role.language} {role.face})" for lane, role in self.lanes.items() if role)
        place, count = f"{PLACE} ({self.arena.programs})", len(self.arena.roles)
        console.print(f"One lock on {place}, fought for by {count} processes:")
        console.print(f"{workers}\n", highlight=False)

    def remarks(self) -> dict[str, str]:
        """What the run shows."""
        return {"shown": SHOWN}

    def _strike(self, trouble: Trouble, slot: int) -> None:
        """Makes trouble while a worker holds the lock for long. One that is frozen does not look before it writes."""
        worker = self.arena.workers[slot]
        assert worker
        # Only its next hold is long.
        worker.tell(**self._to_use({"stale" if trouble.kind is STOP else "long": 1}))
        if not self._reached(lambda: _held_ns(worker) > KEPT_NS, f"{worker.name} did not get the lock"):
            return
        worker.tell(**self._to_use(self.ways))
        if trouble.kind is CRASH:
            self.note(now_ns(), f"{self.named(worker.lane)} holds the lock for longer than its ttl of {TTL_S:g} s")
        losses, refused = self.tally.losses.total(), self.tally.refused
        self._go_through(trouble)
        self._reached(lambda: not _held_ns(worker), f"{worker.name} did not end its hold")
        if self.tally.losses.total() > losses:
            self.note(now_ns(), f"{self.named(worker.lane)} is told that its lock is lost")
        late = f"the late write of {self.named(worker.lane)}"
        if trouble.kind is STOP and self._reached(lambda: self.tally.refused > refused, f"{late} was not refused"):
            self.note(now_ns(), f"the store refuses {late}: it has seen a larger fence")

    def _go_through(self, trouble: Trouble) -> None:
        from_ns, acquired = now_ns(), self.tally.acquired.total()
        self._begin(trouble)
        # A worker that is struck holds the lock, so the next acquisition is that of its successor.
        if trouble.kind.subject == "worker" and self._reached(
            lambda: self.tally.acquired.total() > acquired, f"no worker acquired the lock of {trouble.subject}"
        ):
            self.note(now_ns(), f"the lock is acquired again {(now_ns() - from_ns) / 1e9:.1f} s later")
        self._wait_until(from_ns + round(trouble.lasts_s * 1e9))
        self._end(trouble)
        self.note(now_ns(), f"{self.named(trouble.lane)} {WORDS[trouble.kind][1]}")

    def _reached(self, state: Callable[[], bool], otherwise: str) -> bool:
        reached = self._wait(state)
        if not reached:
            self.tally.troubles.append(f"{otherwise} within {SERVED_S:g} s")
        return reached


def _held_ns(worker: Worker) -> int:
    """For how long a worker has held the lock; 0 if it does not."""
    acquire = worker.holding.get(f"{worker.name}/0")
    return now_ns() - acquire["return_ns"] if acquire and acquire["ok"] else 0
