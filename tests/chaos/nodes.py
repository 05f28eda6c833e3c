"""The arena of independent servers behind proxies, of which a majority decides.

Fences are promised as long as no node forgets its fence key. If one does, they still grow if clocks differ by less than
the time between the forgotten acquisition and the next. So an epoch is `steady` or has one of two other classes:

- `data`: nodes lose data, and clocks agree (all processes are on one machine). Fences and their order hold. Two clients
  may hold a name at once if the first one's key was lost, so exclusion is excused from each loss until all locks that
  were held then have ended.
- `clock`: the clocks of nodes step, and no node forgets: all steps of an epoch together stay far below `fence_ttl`, so
  no fence key expires. Fences and order hold. Exclusion is excused from each step on, because a step ends keys early.
  Steps back are short, because they prolong the keys of dead holders. Clocks are set right between epochs, when no
  lock is held.

At most two nodes are in trouble or in quarantine at a time, because clients must still get the lock, or there would be
little to judge. Kinds that take the quorum away are separate and short.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from chaos.arena import PASSWORD, Arena, ArenaError, Program
from chaos.schedule import VIEWS, WORKER_KINDS, Kind, Plan, Trouble, meet
from chaos.troubles import Lapse, Troubles, locks
from support.clock import now_ns
from support.servers import Server, User, programs, version

NODES = 5
"""How many servers there are."""

KINDS = (
    Kind("freeze", "node", (0.4, 2.5)),
    Kind("kill", "node", (0.3, 1.5), bars=True),
    Kind("restart", "node", (0.0, 0.0), bars=True),
    Kind("script flush", "node", (0.0, 0.0)),
    Kind("pause writes", "node", (0.2, 1.5)),
    Kind("pause all", "node", (0.2, 1.0)),
    Kind("kill clients", "node", (0.0, 0.0)),
    Kind("out of memory", "node", (0.5, 2.0)),
    Kind("read-only replica", "node", (0.3, 1.0), bars=True),
    Kind("too few replicas", "node", (0.5, 2.0)),
    Kind("rights withdrawn", "node", (0.5, 2.0)),
    Kind("user off", "node", (0.3, 1.0)),
    Kind("busy script", "node", (0.3, 1.5)),
    Kind("slow command", "node", (0.2, 0.8)),
    Kind("full house", "node", (0.3, 1.5)),
    Kind("first replica", "node", (0.0, 0.0)),
    Kind("delay", "link", (0.5, 2.0)),
    Kind("requests lost", "link", (0.3, 1.5)),
    Kind("replies lost", "link", (0.3, 1.5)),
    Kind("black hole", "link", (0.3, 2.0)),
    Kind("reset", "link", (0.0, 0.0)),
    Kind("forgotten", "link", (0.5, 2.0)),
    Kind("refused", "link", (0.3, 1.5)),
    Kind("cut short", "link", (0.2, 1.0)),
    Kind("short reads", "link", (0.5, 2.0)),
    Kind("far away", "link", (0.5, 2.0)),
    Kind("hang-up", "link", (0.3, 1.5)),
    Kind("unknown command", "link", (0.3, 1.5)),
    Kind("cut off", "view", (0.3, 2.5), alone=True),
    Kind("split view", "view", (0.8, 2.5), alone=True),
    *WORKER_KINDS,
    Kind("flush", "node", (0.0, 0.0), of="data"),
    Kind("wipe", "node", (0.0, 0.0), of="data", bars=True),
    Kind("power cut", "node", (0.0, 0.0), of="data", bars=True),
    Kind("keys evicted", "node", (0.0, 0.0), of="data"),
    Kind("clock forward", "node", (0.0, 0.0), of="clock", amount=(2.0, 240.0)),
    Kind("clock back", "node", (0.0, 0.0), of="clock", amount=(0.2, 2.0)),
)
"""All kinds of trouble. At most four steps of a clock forward in an epoch are far less than the hour of `fence_ttl`."""

AT_ONCE = 2
"""How many nodes may be in trouble at once."""

IN_FLIGHT_S = 1.0
"""How long an attempt may have had a grant that a node has forgotten meanwhile."""

REPLICA_OF = ("127.0.0.1", 1)
"""An address where nothing listens, so that the data stay."""

EVICTED = 20
"""The most keys that an eviction deletes."""

CUT_BYTES = 3000
"""The most of the last writes that a power cut loses."""

CONNECTS_MOST = 20
"""How many connections a process may make in a second to a node that hangs up, and at once before that."""


def struck(trouble: Trouble) -> frozenset[int]:
    """The nodes that some worker loses."""
    match trouble.kind.subject:
        case "worker":
            return frozenset()
        case "view":
            # A view that is cut off loses a majority. In a split, the first of two loses a minority.
            count = NODES // 2 + (trouble.kind.name == "cut off")
            return frozenset((trouble.where + i) % NODES for i in range(count))
    return frozenset({trouble.where})


def _fits(trouble: Trouble, placed: Sequence[Trouble]) -> bool:
    meanwhile = [other for other in placed if struck(other) and meet(trouble, other)]
    if trouble.kind.alone or any(other.kind.alone for other in meanwhile):
        return not meanwhile
    nodes = [node for other in meanwhile for node in struck(other)]
    return trouble.where not in nodes and len(nodes) < AT_ONCE


PLAN = Plan(KINDS, ("steady", "data", "clock"), steady_dealt=15, own_dealt=4, places=NODES, fits=_fits)


def node(i: int, user: User | None = None) -> Server:
    """A server that keeps its data, can be told to hang, and has a separate clock where possible."""
    there = programs()
    program = there[i % len(there)]
    # Data must survive only a crash of the process, not one of the machine.
    options = ["--appendfsync", "no"]
    if not version(program).startswith("redis-6"):
        options += ["--enable-debug-command", "yes"]
    return Server(persist=True, clock=sys.platform == "linux", program=program, user=user, options=options)


@dataclass
class Nodes(Arena):
    """Independent servers, to which three ways lead: the workers of a view share one network, and others do not."""

    plan: ClassVar[Plan] = PLAN
    excuse: ClassVar[str] = "where data were lost or clocks stepped"
    ways: list[Program] = field(init=False, default_factory=list)

    @property
    def what(self) -> str:
        """What the workers' addresses lead to, in words."""
        return f"{NODES} servers ({self.programs}), {VIEWS} views"

    def lanes(self, subjects: set[str]) -> list[str]:
        """The nodes, and the views if something happens in the network."""
        views = [f"view {'ABC'[view]}" for view in range(VIEWS) if subjects & {"link", "view"}]
        return [f"node {i}" for i in range(1, NODES + 1)] + views

    def troubles(self) -> NodeTroubles:
        """What makes trouble here."""
        return NodeTroubles(self)

    def needed(self) -> list[Program]:
        """The programs without which no worker can go on."""
        return [*super().needed(), *self.ways]

    def change_way(self, view: int, nodes: Iterable[int], what: str, amount: float = 0.0) -> int:
        """Changes the ways from a view to these nodes; returns how many connections they have seen so far."""
        way = self.ways[view]
        way.tell(nodes=list(nodes), do=what, amount=amount)
        said = way.hear()
        if not said:
            raise ArenaError(f"the proxies of a view have ended: {way.said()}")
        return int(said)

    def _open(self, stack: contextlib.ExitStack) -> list[str]:
        self.servers = [stack.enter_context(node(i, self.user)) for i in range(NODES)]
        sockets = [str(server.socket) for server in self.servers]
        self.ways = [self._program(stack, "ways", *sockets) for _ in range(VIEWS)]
        return [self._addresses(way) for way in self.ways]

    def _addresses(self, way: Program) -> str:
        ports: list[int] = json.loads(way.hear() or "[]")
        if not ports:
            raise ArenaError(f"the proxies did not start: {way.said()}")
        return ",".join(f"redis://{self.user.name}:{PASSWORD}@127.0.0.1:{port}" for port in ports)


@dataclass
class NodeTroubles(Troubles):
    """Makes trouble for nodes, on the ways to them, and for workers."""

    arena: Nodes
    offsets_s: list[float] = field(default_factory=lambda: [0.0] * NODES)
    """How far each node's clock is off."""
    _made: dict[Trouble, int] = field(default_factory=dict)
    """How many connections a way had seen when it began to hang up."""

    def server(self, trouble: Trouble) -> Server:
        """The node."""
        return self.arena.servers[trouble.where]

    def begin(self, trouble: Trouble) -> None:
        """Begins the trouble."""
        match trouble.kind.subject:
            case "link":
                made = self.arena.change_way(trouble.view, [trouble.where], trouble.kind.name, trouble.amount)
                if trouble.kind.name == "hang-up":
                    self._made[trouble] = made
            case "view" if trouble.kind.name == "cut off":
                self.arena.change_way(trouble.view, struck(trouble), "cut off")
            case "view":
                self.arena.change_way(trouble.view, struck(trouble), "cut off")
                others = [(node + NODES // 2) % NODES for node in struck(trouble)]
                self.arena.change_way((trouble.view + 1) % VIEWS, others, "cut off")
            case _:
                super().begin(trouble)

    def end(self, trouble: Trouble) -> None:
        """Ends the trouble, unless it ends by itself."""
        match trouble.kind.subject:
            case "link":
                made = self.arena.change_way(trouble.view, [trouble.where], "heal")
                if trouble in self._made:
                    self._count(trouble, made - self._made.pop(trouble))
            case "view":
                for view in (trouble.view, (trouble.view + 1) % VIEWS):
                    self.arena.change_way(view, range(NODES), "heal")
            case _:
                super().end(trouble)

    def lapses(self, trouble: Trouble, from_ns: int) -> Iterator[Lapse]:
        """What a node that forgets excuses, and a clock that steps forward."""
        if trouble.kind.name == "crash":
            # All see it restart, but a lock that only a quorum of the nodes has may be lost.
            yield Lapse(trouble.kind.name, from_ns, None, ("",), overlaps=False)
        if trouble.kind.of == "data" or trouble.kind.name == "clock forward":
            yield Lapse(trouble.kind.name, from_ns, now_ns() + round(IN_FLIGHT_S * 1e9), ("",))
            # Leases do not wait for as long as their ttl after a restart.
            yield Lapse(trouble.kind.name, from_ns, None, tuple(self.names["lease"]))

    def put_right(self) -> None:
        """Sets stepped clocks right again, and keeps the nodes' files short."""
        for i, server in enumerate(self.arena.servers):
            if self.offsets_s[i]:
                # Keys that have expired by a clock that is ahead, and are not deleted yet, would come back.
                server.keys()
                self.offsets_s[i] = 0.0
                server.shift_clock()
        super().put_right()
        for server in self.arena.servers:
            server.compact()

    def rules(self, trouble: Trouble, server: Server) -> dict[str, Callable[[], object]]:
        """How the kinds of trouble of a node begin."""
        amount = trouble.amount
        return super().rules(trouble, server) | {
            "kill": server.kill,
            "crash": server.kill,
            "restart": server.restart,
            "first replica": lambda: self._replicate(trouble, server),
            "read-only replica": lambda: server.command("REPLICAOF", *REPLICA_OF),
            "too few replicas": lambda: server.configure(min_replicas_to_write=1),
            "flush": lambda: server.command("FLUSHALL"),
            "wipe": server.wipe,
            "power cut": lambda: self._cut_power(trouble.where, amount),
            "keys evicted": lambda: _evict(server, round(EVICTED * amount)),
            "clock forward": lambda: self._step(trouble.where, amount),
            "clock back": lambda: self._step(trouble.where, -amount),
        }

    def heal(self, trouble: Trouble, server: Server) -> None:
        """Ends the trouble of a node."""
        match trouble.kind.name:
            case "kill":
                server.restart()
            case "crash":
                server.wipe()
            case "first replica":
                self.opened.pop(trouble).close()
            case "read-only replica":
                server.command("REPLICAOF", "NO", "ONE")
            case "too few replicas":
                server.configure(min_replicas_to_write=0)
            case _:
                super().heal(trouble, server)

    def _count(self, trouble: Trouble, made: int) -> None:
        """Checks how many connections the workers of a view made to a node that hung up."""
        workers = sum(worker.view == trouble.view for worker in self.arena.living())
        if made > CONNECTS_MOST * workers * (trouble.lasts_s + 1):
            said = f"{made} connections in {trouble.lasts_s:.1f} s by {workers} processes"
            self.storms.append(f"{trouble.subject}: {said}, though the node hung up")

    def _cut_power(self, i: int, amount: float) -> None:
        server = self.arena.servers[i]
        server.lose_power(max(0, server.written() - round(CUT_BYTES * amount)))
        self.revived |= {(i, name, value) for name, value in locks(server)}

    def _replicate(self, trouble: Trouble, server: Server) -> None:
        # A node without replicas has a new replication id when one comes, and another one some time after it has gone.
        server.configure(repl_backlog_ttl=1)
        self.send(trouble, server, "PSYNC", "?", -1)

    def _step(self, i: int, by_s: float) -> None:
        if sys.platform != "linux":
            # Elsewhere, servers cannot have separate clocks.
            return
        self.offsets_s[i] += by_s
        self.arena.servers[i].shift_clock(seconds=self.offsets_s[i])


def _evict(server: Server, count: int) -> None:
    for _ in range(count):
        key = server.command("RANDOMKEY")
        if isinstance(key, bytes):
            server.command("DEL", key)
