"""Trouble of a node that is a group of servers, in which replicas take over from primaries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from chaos.schedule import Trouble
from chaos.troubles import Lapse, Takeover, Troubles, locks
from support.clock import now_ns
from support.servers import Server


@dataclass
class FailoverTroubles(Troubles):
    """Makes trouble in such a group, and ends it.

    The whole group is one node that may forget. In a failover that was not planned, the last grants and releases can be
    lost: those before a primary was killed, and those before one that hung has noticed that it is replaced. Until then
    two servers may grant, and either counts its fences for itself.
    """

    over_ns: dict[Trouble, int] = field(default_factory=dict)
    """Until when the former primary may have granted."""
    _struck: dict[Trouble, Server] = field(default_factory=dict)
    _followed: dict[Trouble, Future[None]] = field(default_factory=dict)
    """The ends of the failovers that are under way."""
    _primaries: list[Server] = field(init=False)
    """The primary of each part of the group, as far as failovers were made here."""
    _counted: list[int] = field(init=False)
    """How many failovers each part has had, as far as they were made here."""
    _settled_ns: int = field(init=False, default_factory=now_ns)
    """When it was last seen that all is well."""

    def __post_init__(self) -> None:
        self._primaries = [self.primary(part) for part in range(self.parts)]
        self._counted = [self.failovers(part) for part in range(self.parts)]

    def failovers(self, _part: int) -> int:
        """How many failovers a part of the group has had, if the group counts them."""
        return 0

    @abstractmethod
    def primary(self, part: int) -> Server:
        """The present primary of a part of the group."""

    @abstractmethod
    def successor(self, former: Server) -> Server:
        """Waits for the server that takes the place of a primary."""

    @abstractmethod
    def concerned(self, part: int) -> Sequence[str]:
        """The names of the locks that this part of the group grants."""

    @abstractmethod
    def recover(self) -> None:
        """Waits until all servers do their part again."""

    @property
    @abstractmethod
    def parts(self) -> int:
        """How many primaries there are."""

    def server(self, trouble: Trouble) -> Server:
        """The primary that the trouble strikes, also after it has been replaced."""
        if trouble not in self._struck:
            self._struck[trouble] = self.primary(trouble.where % self.parts)
        return self._struck[trouble]

    def granting(self) -> Iterator[tuple[int, Server]]:
        """The primaries, which are one node together."""
        for part in range(self.parts):
            yield 0, self.primary(part)

    def lapses(self, trouble: Trouble, from_ns: int) -> Iterator[Lapse]:
        """What a failover excuses that may have lost something; nothing else does."""
        self.finish(trouble)
        over_ns = self.over_ns.pop(trouble, None)
        if trouble.kind.of == "data":
            names = tuple(self.concerned(trouble.where % self.parts))
            # A server that is dead grants nothing beside its successor.
            divides = trouble.kind.name != "kill primary"
            yield Lapse(trouble.kind.name, from_ns, over_ns, names, divides=divides)

    def settle(self) -> Iterator[Lapse]:
        """Waits until all is well. Tells of primaries that were replaced although nothing was done to them.

        That happens where the machine is so slow that a server gets no time to answer. Two such failovers in a row lead
        back to the same primary.
        """
        self.meanwhile(self.recover)
        primaries = [self.primary(part) for part in range(self.parts)]
        counted = [self.failovers(part) for part in range(self.parts)]
        for part, (before, now) in enumerate(zip(self._primaries, primaries, strict=True)):
            if before is not now or self._counted[part] != counted[part]:
                self._remember(now)
                cause = f"a replica took over from {before} by itself"
                yield Lapse(cause, self._settled_ns, now_ns(), tuple(self.concerned(part)), divides=True)
        self._primaries, self._counted = primaries, counted
        self._settled_ns = now_ns()

    def heal(self, trouble: Trouble, server: Server) -> None:
        """Ends the trouble of a server."""
        super().heal(trouble, server)
        self._struck.pop(trouble, None)

    def replace(self, trouble: Trouble, server: Server, strike: Callable[[], object]) -> None:
        """Does to a primary what has it replaced, and lets that go on in the background."""
        strike()
        self._followed[trouble] = self.arena.background.submit(self._follow, trouble, server)

    def kill(self, trouble: Trouble, server: Server) -> None:
        """Kills a primary, which grants nothing from then on."""
        self.replace(trouble, server, server.kill)
        self.over_ns[trouble] = now_ns()

    def finish(self, trouble: Trouble) -> None:
        """Waits until the primary has been replaced."""
        if followed := self._followed.pop(trouble, None):
            # The background takes one step after the other.
            self.meanwhile(followed.result)

    def took_over(self, trouble: Trouble) -> None:
        """Records that a primary was replaced."""
        part = trouble.where % self.parts
        self.takeovers.append(Takeover(now_ns(), trouble.lane))
        self._primaries[part] = self.primary(part)
        self._counted[part] = self.failovers(part)

    def _follow(self, trouble: Trouble, former: Server) -> None:
        primary = self.successor(former)
        self.took_over(trouble)
        self._remember(primary)

    def _remember(self, primary: Server) -> None:
        """A release that had not reached the replica is undone."""
        self.revived |= {(0, *lock) for lock in locks(primary)}
