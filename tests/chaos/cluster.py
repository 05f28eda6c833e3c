"""The arena of a Redis Cluster: shards with a replica each, which together are one node.

Epochs are `steady`, or of the class `data`, in which primaries die or hang until their replicas take over. What is
excused then is what core/docs/failover.md says: two may hold a lock that the former primary has granted last, and a
lock may be lost before its time, if its slot is on that shard. A planned failover and a slot that moves lose nothing.
Fences may be out of order only while two servers grant: all clocks agree, so that a lost fence costs nothing.

One server after the other fails over, because a cluster elects nobody without a majority of its primaries. Only one
thing at a time happens to slots and roles, so that it is known which server has what.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from chaos.arena import Arena
from chaos.failovers import FailoverTroubles
from chaos.schedule import VIEWS, WORKER_KINDS, Kind, Plan, Trouble, meet
from support.clock import now_ns, until
from support.rights import in_cluster
from support.servers import Server, programs
from support.shards import Shards, slot

SHARDS = 3
"""How many shards there are; each has a replica."""

FAILOVERS = ("planned failover", "kill primary", "freeze primary")
"""The kinds after which another server is the primary."""

KINDS = (
    Kind("planned failover", "shard", (0.0, 0.0), bars=True, alone=True),
    Kind("slot moved", "shard", (0.0, 0.0), alone=True),
    Kind("slot open", "shard", (0.5, 1.5), alone=True),
    Kind("slot half moved", "shard", (0.5, 1.5), alone=True),
    Kind("slot emptied", "shard", (0.5, 1.5), alone=True),
    Kind("freeze", "shard", (0.2, 0.6)),
    Kind("script flush", "shard", (0.0, 0.0)),
    Kind("pause writes", "shard", (0.2, 1.0)),
    Kind("kill clients", "shard", (0.0, 0.0)),
    Kind("out of memory", "shard", (0.5, 2.0)),
    Kind("rights withdrawn", "shard", (0.5, 2.0)),
    Kind("user off", "shard", (0.3, 1.0)),
    Kind("busy script", "shard", (0.2, 0.5)),
    Kind("slow command", "shard", (0.2, 0.5)),
    *WORKER_KINDS,
    Kind("kill primary", "shard", (2.0, 3.5), of="data", bars=True, alone=True),
    Kind("freeze primary", "shard", (2.0, 3.5), of="data", bars=True, alone=True),
)
"""All kinds of trouble. A primary that is silent for a second is replaced, so other kinds are shorter."""

GAP_S = 0.3
"""The least time between two troubles of which one may be alone."""


def _fits(trouble: Trouble, placed: Sequence[Trouble]) -> bool:
    others = [other for other in placed if other.kind.subject != "worker"]
    failed_over = {other.where for other in others if other.kind.name in FAILOVERS}
    # A server holds no second election within a few seconds.
    if trouble.kind.name in FAILOVERS and trouble.where in failed_over:
        return False
    meanwhile = [other for other in others if meet(trouble, other, GAP_S)]
    if trouble.kind.alone or any(other.kind.alone for other in meanwhile):
        return not meanwhile
    return trouble.where not in {other.where for other in meanwhile}


PLAN = Plan(KINDS, ("steady", "data"), steady_dealt=10, own_dealt=2, places=SHARDS, fits=_fits)


@dataclass(frozen=True)
class Move:
    """A slot on its way from one server to another."""

    key: str
    source: Server
    target: Server


@dataclass
class Cluster(Arena):
    """A cluster."""

    plan: ClassVar[Plan] = PLAN
    excuse: ClassVar[str] = "where a primary died or hung"

    @property
    def what(self) -> str:
        """What the workers' addresses lead to, in words."""
        return f"a cluster of {SHARDS} shards with a replica each ({self.programs})"

    def families(self, names: Sequence[str]) -> list[list[str]]:
        """Those in one slot."""
        by_slot: dict[int, list[str]] = {}
        for name in names:
            by_slot.setdefault(slot(name), []).append(name)
        return [family for family in by_slot.values() if len(family) > 1]

    def lanes(self, _subjects: set[str]) -> list[str]:
        """The shards."""
        return [f"shard {shard}" for shard in range(1, SHARDS + 1)]

    def troubles(self) -> ClusterTroubles:
        """What makes trouble here."""
        return ClusterTroubles(self)

    def _open(self, stack: contextlib.ExitStack) -> list[str]:
        self.user = in_cluster(self.user)
        there = programs()
        program, options = there[self.seed % len(there)], ("--enable-debug-command", "yes")
        self.shards = stack.enter_context(Shards(SHARDS, replicas=1, program=program, user=self.user, options=options))
        self.servers = self.shards.servers
        return [self.shards.url] * VIEWS


@dataclass
class ClusterTroubles(FailoverTroubles):
    """Makes trouble for the shards of a cluster, for slots, and for workers."""

    arena: Cluster
    _moves: dict[Trouble, Move] = field(default_factory=dict)
    """The slots that are open."""

    @property
    def parts(self) -> int:
        """How many shards there are."""
        return SHARDS

    def primary(self, part: int) -> Server:
        """The primary of a shard."""
        return self.arena.shards.primary(part)

    def successor(self, former: Server) -> Server:
        """Waits until the replica of a primary has taken over."""
        return self.arena.shards.successor(former)

    def concerned(self, part: int) -> Sequence[str]:
        """The names whose slots are on a shard."""
        return self.arena.shards.on_shard(part, (name for pool in self.names.values() for name in pool))

    def recover(self) -> None:
        """Waits until the cluster is well."""
        self.arena.shards.settled()

    def rules(self, trouble: Trouble, server: Server) -> dict[str, Callable[[], object]]:
        """How the kinds of trouble of a shard begin."""
        return super().rules(trouble, server) | {
            "planned failover": lambda: self._fail_over(trouble),
            "slot moved": lambda: self._move(trouble, server, self._close),
            "slot open": lambda: self._move(trouble, server, _leave),
            "slot half moved": lambda: self._move(trouble, server, self._move_lock),
            "slot emptied": lambda: self._move(trouble, server, self._move_keys),
            "kill primary": lambda: self.kill(trouble, server),
            "freeze primary": lambda: self.replace(trouble, server, server.freeze),
        }

    def heal(self, trouble: Trouble, server: Server) -> None:
        """Ends the trouble of a shard."""
        if move := self._moves.pop(trouble, None):
            self.meanwhile(lambda: self._close(move))
        match trouble.kind.name:
            case "kill primary":
                self.finish(trouble)
                server.restart()
            case "freeze primary":
                self.finish(trouble)
                server.thaw()
                self.meanwhile(lambda: until(lambda: not self.arena.shards.is_primary(server), "it steps back"))
                self.over_ns[trouble] = now_ns()
        super().heal(trouble, server)

    def _fail_over(self, trouble: Trouble) -> None:
        self.meanwhile(lambda: self.arena.shards.fail_over(trouble.where))
        self.over_ns[trouble] = now_ns()
        self.took_over(trouble)

    def _move(self, trouble: Trouble, source: Server, how_far: Callable[[Move], object]) -> None:
        """Opens a slot of the shard, of a name that is often used if there is one, and moves it so far."""
        shards = self.arena.shards
        there = shards.on_shard(trouble.where, (name for pool in self.names.values() for name in pool))
        key = there[int(trouble.amount**2 * (len(there) - 1))]
        move = Move(key, source, self.primary((trouble.where + 1) % SHARDS))

        def step() -> None:
            shards.open(key, move.source, move.target)
            how_far(move)

        self.meanwhile(step)
        if trouble.lasts_s:
            self._moves[trouble] = move

    def _move_lock(self, move: Move) -> None:
        self.arena.shards.move_keys([move.key], move.source, move.target)

    def _move_keys(self, move: Move) -> None:
        self.arena.shards.move_all(move.key, move.source, move.target)

    def _close(self, move: Move) -> None:
        self._move_keys(move)
        self.arena.shards.close(move.key, move.source, move.target)


def _leave(_move: Move) -> None:
    """Leaves everything where it is."""
