"""How every kind of trouble begins and ends."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from chaos.arena import Arena, Worker
from chaos.schedule import NODES, VIEWS, Trouble
from support.resp import Connection
from support.servers import ReplyError, Server

REPLICA_OF = ("127.0.0.1", 1)
"""An address where nothing listens, so that the data stay."""

EVICTED = 20
"""The most keys that an eviction deletes."""

CUT_BYTES = 3000
"""The most of the last writes that a power cut loses."""

BUSY_AFTER_MS = 20
"""The time after which a server reports that it is busy with a script."""

CONNECTS_MOST = 20
"""How many connections a process may make in a second to a node that hangs up, and at once before that."""

NO_LIMIT = 10_000
"""The maximum of clients of a server."""


@dataclass
class Troubles:
    """Makes trouble in an arena, and ends it."""

    arena: Arena
    offsets_s: list[float] = field(default_factory=lambda: [0.0] * NODES)
    """How far each node's clock is off."""
    revived: set[tuple[int, bytes, bytes]] = field(default_factory=set)
    """Node, key and value of what came back in a power cut: if its release was lost, the key stays for its ttl."""
    storms: list[str] = field(default_factory=list)
    """Reports of processes that made too many connections."""
    _made: dict[Trouble, int] = field(default_factory=dict)
    """How many connections a way had seen when it began to hang up."""
    _open: dict[Trouble, Connection] = field(default_factory=dict)

    def begin(self, trouble: Trouble) -> None:
        """Begins the trouble."""
        match trouble.kind.subject:
            case "node":
                self._strike(trouble, self.arena.servers[trouble.where])
            case "link":
                made = self.arena.change_way(trouble.view, [trouble.where], trouble.kind.name, trouble.amount)
                if trouble.kind.name == "hang-up":
                    self._made[trouble] = made
            case "view" if trouble.kind.name == "cut off":
                self.arena.change_way(trouble.view, trouble.nodes, "cut off")
            case "view":
                self.arena.change_way(trouble.view, trouble.nodes, "cut off")
                others = [(node + NODES // 2) % NODES for node in trouble.nodes]
                self.arena.change_way((trouble.view + 1) % VIEWS, others, "cut off")
            case "worker":
                self._meet(trouble)

    def end(self, trouble: Trouble) -> None:
        """Ends the trouble, unless it ends by itself."""
        match trouble.kind.subject:
            case "worker" if trouble.kind.name == "worker killed":
                self.arena.start(trouble.where)
            case "worker" if trouble.kind.name == "worker stopped":
                self._worker(trouble).go_on()
            case "node":
                self._heal(trouble, self.arena.servers[trouble.where])
            case "link":
                made = self.arena.change_way(trouble.view, [trouble.where], "heal")
                if trouble in self._made:
                    self._count(trouble, made - self._made.pop(trouble))
            case "view":
                for view in (trouble.view, (trouble.view + 1) % VIEWS):
                    self.arena.change_way(view, range(NODES), "heal")

    def _count(self, trouble: Trouble, made: int) -> None:
        """Checks how many connections the workers of a view made to a node that hung up."""
        workers = sum(worker.view == trouble.view for worker in self.arena.living())
        if made > CONNECTS_MOST * workers * (trouble.lasts_s + 1):
            said = f"{made} connections in {trouble.lasts_s:.1f} s by {workers} processes"
            self.storms.append(f"{trouble.subject}: {said}, though the node hung up")

    def put_clocks_right(self) -> None:
        """Sets stepped clocks right again."""
        for i, server in enumerate(self.arena.servers):
            if self.offsets_s[i]:
                # Keys that have expired by a clock that is ahead, and are not deleted yet, would come back.
                server.keys()
                self.offsets_s[i] = 0.0
                server.shift_clock()

    def forget_the_gone(self) -> None:
        """Forgets the keys that a power cut brought back and that are gone by now."""
        self.revived &= {(i, *lock) for i, server in enumerate(self.arena.servers) for lock in locks(server)}

    def _strike(self, trouble: Trouble, server: Server) -> None:
        kind, amount = trouble.kind.name, trouble.amount
        lasts_ms = round(trouble.lasts_s * 1000)
        rules: dict[str, Callable[[], object]] = {
            "freeze": server.freeze,
            "kill": server.kill,
            "crash": server.kill,
            "restart": server.restart,
            "script flush": lambda: server.command("SCRIPT", "FLUSH"),
            "pause writes": lambda: server.command("CLIENT", "PAUSE", lasts_ms, "WRITE"),
            "pause all": lambda: server.command("CLIENT", "PAUSE", lasts_ms, "ALL"),
            "kill clients": lambda: server.command("CLIENT", "KILL", "TYPE", "normal"),
            "first replica": lambda: self._replicate(trouble, server),
            "out of memory": lambda: server.configure(maxmemory=1),
            "read-only replica": lambda: server.command("REPLICAOF", *REPLICA_OF),
            "too few replicas": lambda: server.configure(min_replicas_to_write=1),
            "rights withdrawn": lambda: server.set_user(self.arena.user.name, "-eval", "-evalsha"),
            "user off": lambda: self._lock_out(server),
            "busy script": lambda: self._keep_busy(trouble, server),
            "slow command": lambda: self._send(trouble, server, "DEBUG", "SLEEP", str(trouble.lasts_s)),
            "full house": lambda: self._fill(trouble, server),
            "flush": lambda: server.command("FLUSHALL"),
            "wipe": server.wipe,
            "power cut": lambda: self._cut_power(trouble.where, amount),
            "keys evicted": lambda: _evict(server, round(EVICTED * amount)),
            "clock forward": lambda: self._step(trouble.where, amount),
            "clock back": lambda: self._step(trouble.where, -amount),
        }
        rules[kind]()

    def _heal(self, trouble: Trouble, server: Server) -> None:
        match trouble.kind.name:
            case "freeze":
                server.thaw()
            case "kill":
                server.restart()
            case "crash":
                server.wipe()
            case "out of memory":
                server.configure(maxmemory=0)
            case "read-only replica":
                server.command("REPLICAOF", "NO", "ONE")
            case "too few replicas":
                server.configure(min_replicas_to_write=0)
            case "rights withdrawn" | "user off":
                server.set_user(self.arena.user.name, "on", *self.arena.user.rules)
            case "busy script":
                # The script is killed only after it was seen to be busy, unless it has ended with its connection.
                with contextlib.suppress(ReplyError):
                    server.command("SCRIPT", "KILL")
                self._open.pop(trouble).close()
            case "slow command" | "first replica":
                self._open.pop(trouble).close()
            case "full house":
                with self._open.pop(trouble) as connection:
                    connection.ask("CONFIG", "SET", "maxclients", NO_LIMIT)

    def _cut_power(self, i: int, amount: float) -> None:
        server = self.arena.servers[i]
        server.lose_power(max(0, server.written() - round(CUT_BYTES * amount)))
        self.revived |= {(i, name, value) for name, value in locks(server)}

    def _lock_out(self, server: Server) -> None:
        server.set_user(self.arena.user.name, "off")
        # A client that has logged in stays logged in.
        server.command("CLIENT", "KILL", "USER", self.arena.user.name)

    def _keep_busy(self, trouble: Trouble, server: Server) -> None:
        server.configure(lua_time_limit=BUSY_AFTER_MS)
        self._send(trouble, server, "EVAL", "while true do end", 0)

    def _send(self, trouble: Trouble, server: Server, *words: str | int) -> None:
        connection = self._open[trouble] = server.connect()
        connection.send(*words)

    def _replicate(self, trouble: Trouble, server: Server) -> None:
        # A node without replicas has a new replication id when one comes, and another one some time after it has gone.
        server.configure(repl_backlog_ttl=1)
        self._send(trouble, server, "PSYNC", "?", -1)

    def _fill(self, trouble: Trouble, server: Server) -> None:
        # Only an open connection could undo it later.
        connection = self._open[trouble] = server.connect()
        connection.ask("CONFIG", "SET", "maxclients", 1)
        connection.ask("CLIENT", "KILL", "TYPE", "normal")

    def _step(self, i: int, by_s: float) -> None:
        if sys.platform != "linux":
            # Elsewhere, servers cannot have separate clocks.
            return
        self.offsets_s[i] += by_s
        self.arena.servers[i].shift_clock(seconds=self.offsets_s[i])

    def _meet(self, trouble: Trouble) -> None:
        match trouble.kind.name:
            case "worker stopped":
                self._worker(trouble).stop()
            case "worker killed":
                self.arena.remove(trouble.where)
            case "mass":
                self._worker(trouble).tell(order="mass", pool="mass")
            case "worker forked":
                self._worker(trouble).tell(order="fork", pool="cool")

    def _worker(self, trouble: Trouble) -> Worker:
        worker = self.arena.workers[trouble.where]
        assert worker, "no other trouble with a worker meets this one"
        return worker


def locks(server: Server) -> Iterator[tuple[bytes, bytes]]:
    """The keys of present locks, with their values."""
    for key in server.keys():  # noqa: SIM118  (it is no dictionary)
        if not key.startswith(b"redlock:") and (value := server.get(key)) is not None:
            yield key, value


def _evict(server: Server, count: int) -> None:
    for _ in range(count):
        key = server.command("RANDOMKEY")
        if isinstance(key, bytes):
            server.command("DEL", key)
