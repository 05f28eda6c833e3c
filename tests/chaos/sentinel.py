"""The arena of a primary with its replica, which sentinels watch over, and which together are one node.

Epochs are `steady`, or of the class `data`, in which the replica takes over. What is excused then is what
core/docs/failover.md says: a failover can lose the last grants and releases, also a planned one, because Redis does not
wait until the replica has everything; and a client notices it in about a second, until when either server may grant.
Fences may be out of order only in that time: all clocks agree, so that a lost fence costs nothing.

There is one failover in an epoch. The former primary takes writes until the end of the epoch, unless the sentinels make
it a replica before, and must not be used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from chaos.arena import Arena
from chaos.failovers import FailoverTroubles
from chaos.schedule import VIEWS, WORKER_KINDS, Kind, Plan, Trouble, meet
from conformance.history import SLACK_MS
from support.sentinels import Sentinels
from support.servers import Server, programs

SENTINELS = 3
"""How many sentinels there are."""

DOWN_AFTER_MS = 1500
"""After what silence a sentinel takes a server for dead: longer than what does not have it replaced."""

NOTICE_MS = 1000
"""The time within which a client notices that another server is the primary."""

KINDS = (
    Kind("freeze", "primary", (0.2, 0.8)),
    Kind("script flush", "primary", (0.0, 0.0)),
    Kind("pause writes", "primary", (0.2, 1.0)),
    Kind("kill clients", "primary", (0.0, 0.0)),
    Kind("out of memory", "primary", (0.5, 2.0)),
    Kind("rights withdrawn", "primary", (0.5, 2.0)),
    Kind("user off", "primary", (0.3, 1.0)),
    Kind("slow command", "primary", (0.2, 0.6)),
    Kind("freeze sentinel", "sentinel", (0.3, 1.5)),
    Kind("kill sentinel", "sentinel", (0.3, 1.5)),
    *WORKER_KINDS,
    Kind("planned failover", "primary", (0.0, 0.0), of="data", bars=True, alone=True),
    Kind("kill primary", "primary", (2.5, 4.0), of="data", bars=True, alone=True),
    Kind("freeze primary", "primary", (2.5, 4.0), of="data", bars=True, alone=True),
)
"""All kinds of trouble. A sentinel that stands still for two seconds does nothing for half a minute, so its troubles
are shorter."""

LOOK_MS = 1000
"""How often sentinels ask servers for their state."""

GAP_S = 0.5
"""The least time between two troubles that may not meet."""


def _fits(trouble: Trouble, placed: Sequence[Trouble]) -> bool:
    meanwhile = [other for other in placed if other.kind.subject != "worker" and meet(trouble, other, GAP_S)]
    if trouble.kind.alone or any(other.kind.alone for other in meanwhile):
        return not meanwhile
    return trouble.kind.subject not in {other.kind.subject for other in meanwhile}


PLAN = Plan(KINDS, ("steady", "data"), steady_dealt=9, own_dealt=1, places=SENTINELS, fits=_fits)


def look_often(sentinel: Server) -> None:
    """Has a sentinel look at its servers every second, and not every ten, so that it soon knows that all is well."""
    sentinel.command("SENTINEL", "DEBUG", "INFO-PERIOD", LOOK_MS)


@dataclass
class Sentinel(Arena):
    """A primary, its replica and their sentinels."""

    plan: ClassVar[Plan] = PLAN
    excuse: ClassVar[str] = "around failovers"

    @property
    def what(self) -> str:
        """What the workers' addresses lead to, in words."""
        return f"a primary with a replica and {SENTINELS} sentinels ({self.programs})"

    def lanes(self, _subjects: set[str]) -> list[str]:
        """The primary, whichever server it is, and the sentinels."""
        return ["primary", *(f"sentinel {i}" for i in range(1, SENTINELS + 1))]

    def troubles(self) -> SentinelTroubles:
        """What makes trouble here."""
        return SentinelTroubles(self)

    def _open(self, stack: contextlib.ExitStack) -> list[str]:
        there = programs()
        program, options = there[self.seed % len(there)], ("--enable-debug-command", "yes")
        self.group = stack.enter_context(
            Sentinels(program=program, user=self.user, down_after_ms=DOWN_AFTER_MS, options=options)
        )
        self.servers = self.group.servers
        for sentinel in self.group.sentinels:
            look_often(sentinel)
        return [self.group.url] * VIEWS


@dataclass
class SentinelTroubles(FailoverTroubles):
    """Makes trouble for the primary, the sentinels and workers."""

    arena: Sentinel

    @property
    def parts(self) -> int:
        """There is one primary."""
        return 1

    def primary(self, _part: int) -> Server:
        """The primary that most sentinels name."""
        return self.arena.group.primary

    def failovers(self, _part: int) -> int:
        """The sentinels number them."""
        return self.arena.group.epoch

    def successor(self, former: Server) -> Server:
        """Waits until the other server has taken over."""
        return self.arena.group.successor(former)

    def concerned(self, _part: int) -> Sequence[str]:
        """All names."""
        return [name for pool in self.names.values() for name in pool]

    def recover(self) -> None:
        """Waits until the next failover can take place."""
        self.arena.group.settled()

    def server(self, trouble: Trouble) -> Server:
        """The primary, or a sentinel."""
        if trouble.kind.subject == "sentinel":
            return self.arena.group.sentinels[trouble.where]
        return super().server(trouble)

    def rules(self, trouble: Trouble, server: Server) -> dict[str, Callable[[], object]]:
        """How the kinds of trouble of these servers begin."""
        return super().rules(trouble, server) | {
            "freeze sentinel": server.freeze,
            "kill sentinel": server.kill,
            "planned failover": lambda: self.replace(trouble, server, self.arena.group.fail_over),
            "kill primary": lambda: self.kill(trouble, server),
            "freeze primary": lambda: self.replace(trouble, server, server.freeze),
        }

    def heal(self, trouble: Trouble, server: Server) -> None:
        """Ends the trouble of a server."""
        self.finish(trouble)
        match trouble.kind.name:
            case "freeze sentinel" | "freeze primary":
                server.thaw()
            case "kill sentinel":
                server.restart()
                look_often(server)
            case "kill primary":
                server.restart()
        if trouble.kind.name in ("planned failover", "freeze primary"):
            self.over_ns[trouble] = self.takeovers[-1].at_ns + (NOTICE_MS + SLACK_MS) * 1_000_000
        super().heal(trouble, server)
