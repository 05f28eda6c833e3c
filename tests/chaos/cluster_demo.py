"""The demo on a Redis Cluster: one lock, whose shard fails over under holders of three languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from chaos.arena import Worker
from chaos.cluster import KINDS, SHARDS
from chaos.demo import CALM_S, NAME, Demo, outlived, renewals, struck_hold
from chaos.holds import Hold
from chaos.run import Done
from chaos.schedule import TTL_S, Epoch, Kind, Trouble
from support.clock import now_ns
from support.shards import first_shard

PLANNED, MOVE, KILL, FREEZE = (
    next(kind for kind in KINDS if kind.name == name)
    for name in ("planned failover", "slot moved", "kill primary", "freeze primary")
)

FIRST = first_shard(NAME, SHARDS)
NEXT = (FIRST + 1) % SHARDS
"""Where the lock is at first, and after its slot has moved."""

EPOCH = Epoch(
    0,
    "data",
    (
        Trouble(PLANNED, at_s=1.0, lasts_s=0.0, where=FIRST),
        Trouble(MOVE, at_s=4.0, lasts_s=0.0, where=FIRST),
        Trouble(KILL, at_s=8.0, lasts_s=3.0, where=NEXT),
        # The shard whose primary was killed holds no election so soon, but its other server may be replaced.
        Trouble(FREEZE, at_s=13.0, lasts_s=3.0, where=NEXT),
    ),
)
"""The troubles. None begins before the one before it has ended, which may take longer than planned."""

KEEPERS = {PLANNED: 0, MOVE: 2, KILL: 5}
"""The workers that hold the lock meanwhile, one of each language."""

WORDS = {
    PLANNED: ("fails over as planned", "has another primary"),
    MOVE: ("gives the lock's slot to the next shard", "does not have the lock any more"),
    KILL: ("loses its primary, which is killed", "has the former primary back, as a replica"),
    FREEZE: ("loses its primary, which is frozen", "has the former primary back, as a replica"),
}
"""The beginning and the end of each kind of trouble."""


class ClusterDemo(Demo):
    """The run of the demo on a cluster."""

    place: ClassVar[str] = f"a cluster of {SHARDS} shards"
    title: ClassVar[str] = f"one lock on {place}"
    plot: ClassVar[Epoch] = EPOCH
    words: ClassVar[Mapping[Kind, tuple[str, str]]] = WORDS
    shown: ClassVar[str] = (
        "A held lock outlives a planned failover and a move of its slot. If a primary dies or hangs, a lock whose ttl "
        "is shorter than the failover is lost, and its holder is told. Then another client gets it, and not too early."
    )
    not_shown: ClassVar[str] = (
        "Grants that a replica never got: on one machine, replication takes less than a millisecond. A client that "
        "starts just after a failover may get a lock that was granted just before it."
    )

    noted: int = 0
    """How many losses have been noted."""

    def make_trouble(self, epoch: Epoch) -> None:
        """Goes through the troubles, one after the other, each long enough to be seen."""
        for trouble in epoch.troubles:
            self._wait_until(self._began_ns + round(trouble.at_s * 1e9))
            if trouble.kind in KEEPERS:
                self._strike(trouble, KEEPERS[trouble.kind])
            else:
                self._go_through(trouble)
        self._wait_until(now_ns() + round(CALM_S * 1e9))

    def result(self, holds: Sequence[Hold], done: Done) -> str:
        """The result of a trouble, in one sentence."""
        kind = done.trouble.kind
        if kind not in KEEPERS:
            return self._recovered(holds, done)
        keeper = f"worker {KEEPERS[kind] + 1}"
        hold = struck_hold(holds, keeper, done)
        if not hold:
            return f"{self.named(keeper)} never held the lock"
        if kind is not KILL:
            held = renewals(hold) if outlived(hold, done) else f"had a lock that was {hold.end or 'kept'}"
            return f"happened under {self.named(keeper)}, which {held}"
        told = "was told that its lock was lost" if hold.end == "lost" else f"had a lock that was {hold.end or 'kept'}"
        return f"{self._recovered(holds, done)}; {self.named(keeper)} {told}"

    def _go_through(self, trouble: Trouble) -> None:
        from_ns = now_ns()
        self._begin(trouble)
        if trouble.kind in (KILL, FREEZE):
            self._note_recovery(trouble, from_ns)
        self._wait_until(from_ns + round(trouble.lasts_s * 1e9))
        self._end(trouble)
        self.note(now_ns(), f"{self.named(trouble.lane)} {self.words[trouble.kind][1]}")

    def _listen(self) -> None:
        """Hears, and notes each loss when it is told, which may be before a replica takes over or after it."""
        super()._listen()
        if self.tally.losses.total() > self.noted:
            self.noted = self.tally.losses.total()
            self.note(now_ns(), "the holder is told that its lock is lost")

    def _note_loss(self, _worker: Worker) -> None:
        """It was noted."""

    def _note_recovery(self, trouble: Trouble, from_ns: int) -> None:
        """Notes when the replica takes over, and when it grants the lock."""

        def has_another() -> bool:
            return bool(self.takeovers) and self.takeovers[-1].at_ns > from_ns

        def is_granted() -> bool:
            holder = self.tally.holders.get(NAME)
            return holder is not None and holder.since_ns > self.takeovers[-1].at_ns

        for state, what in ((has_another, "a replica takes over"), (is_granted, "the lock is acquired again")):
            if not self._reached(state, f"{trouble.lane}: not so that {what}"):
                return
            self.note(now_ns(), f"{what} {(now_ns() - from_ns) / 1e9:.1f} s later")

    def _recovered(self, holds: Sequence[Hold], done: Done) -> str:
        """When the replica took over, and when a worker had the lock after that."""
        takeover = next((each for each in self.takeovers if each.at_ns > done.from_ns), None)
        if not takeover:
            return "no replica took over"
        after_s = (takeover.at_ns - done.from_ns) / 1e9
        hold = next((hold for hold in holds if hold.since_ns > takeover.at_ns), None)
        if not hold:
            return f"a replica took over {after_s:.1f} s later, and no worker had the lock after that"
        had_it = f"{self.named(hold.lane)} had the lock {(hold.since_ns - done.from_ns) / 1e9:.1f} s later"
        return f"a replica took over {after_s:.1f} s later, and {had_it}, {TTL_S:g} s being the ttl"
