"""How trouble begins and ends that any server or worker can have, and what it excuses."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chaos.arena import Arena, Worker
from chaos.schedule import Trouble
from support.resp import Connection
from support.servers import ReplyError, Server

BUSY_AFTER_MS = 20
"""The time after which a server reports that it is busy with a script."""

NO_LIMIT = 10_000
"""The maximum of clients of a server."""


SLOT = re.compile(r"redlock:slot:(?P<slot>\d+):(?:\{(?P<plain>[^}]*)\}|:(?P<tagged>.*))")
"""The key of a permit. A name with a hash tag keeps it."""


@dataclass(frozen=True)
class Lapse:
    """A time in which two clients may hold a lock, because a node may have forgotten the first one.

    From its beginning on, a lock that was held then may get lost before its validity ends.
    """

    cause: str
    from_ns: int
    to_ns: int | None
    names: tuple[str, ...]
    """The locks concerned; an empty name means all of them."""
    overlaps: bool = True
    """Whether it excuses two holders, and not only early losses."""
    divides: bool = False
    """Whether two servers may grant meanwhile, whose fences are not ordered."""

    def may_lose(self, name: str, at_ns: int) -> bool:
        """Whether it explains why a lock was lost early."""
        return self.from_ns <= at_ns and bool({"", name} & set(self.names))


@dataclass(frozen=True)
class Takeover:
    """Another server became a primary."""

    at_ns: int
    lane: str


def _at_once(step: Callable[[], object]) -> None:
    step()


@dataclass
class Troubles(ABC):
    """Makes trouble in an arena, and ends it."""

    arena: Arena
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names of the present epoch's locks, by pool."""
    revived: set[tuple[int, bytes, bytes]] = field(default_factory=set)
    """Node, key and value of what has come back although it may have been released: it stays for its ttl."""
    storms: list[str] = field(default_factory=list)
    """Reports of processes that made too many connections."""
    takeovers: list[Takeover] = field(default_factory=list)
    meanwhile: Callable[[Callable[[], object]], None] = _at_once
    """Takes a step that may take seconds."""
    opened: dict[Trouble, Connection] = field(default_factory=dict)
    """Connections that stay open until a trouble ends."""

    @abstractmethod
    def server(self, trouble: Trouble) -> Server:
        """The server that a trouble strikes."""

    def begin(self, trouble: Trouble) -> None:
        """Begins the trouble."""
        match trouble.kind.subject, trouble.kind.name:
            case "worker", "worker killed":
                self.arena.remove(trouble.where)
            case "worker", "worker stopped":
                self._worker(trouble).stop()
            case _, name:
                self.rules(trouble, self.server(trouble))[name]()

    def end(self, trouble: Trouble) -> None:
        """Ends the trouble, unless it ends by itself."""
        match trouble.kind.subject, trouble.kind.name:
            case "worker", "worker killed":
                self.arena.start(trouble.where)
            case "worker", "worker stopped":
                self._worker(trouble).go_on()
            case _:
                self.heal(trouble, self.server(trouble))

    def lapses(self, _trouble: Trouble, _from_ns: int) -> Iterator[Lapse]:
        """What a trouble that has just ended excuses; it began then."""
        yield from ()

    def settle(self) -> Iterator[Lapse]:
        """Waits until all is well, and yields what happened by itself."""
        yield from ()

    def put_right(self) -> None:
        """Prepares the next epoch, while no lock is held."""
        self.revived &= {(node, *lock) for node, server in self.granting() for lock in locks(server)}

    def granting(self) -> Iterator[tuple[int, Server]]:
        """The servers that may have the keys of locks, with the number of the node to which each belongs."""
        yield from enumerate(self.arena.servers)

    def left(self) -> Iterator[tuple[str, dict[str, object], int]]:
        """The keys of present locks, except what has come back: of each its node, whose lock it is, and its fence."""
        for node, server in self.granting():
            for key, value in locks(server):
                if (node, key, value) not in self.revived:
                    yield f"node {node + 1}", lock_of(key.decode()), int(value.split(b":")[1])

    def rules(self, trouble: Trouble, server: Server) -> dict[str, Callable[[], object]]:
        """How the kinds of trouble of a server begin."""
        lasts_ms = round(trouble.lasts_s * 1000)
        return {
            "freeze": server.freeze,
            "script flush": lambda: server.command("SCRIPT", "FLUSH"),
            "pause writes": lambda: server.command("CLIENT", "PAUSE", lasts_ms, "WRITE"),
            "pause all": lambda: server.command("CLIENT", "PAUSE", lasts_ms, "ALL"),
            "kill clients": lambda: server.command("CLIENT", "KILL", "TYPE", "normal"),
            "out of memory": lambda: server.configure(maxmemory=1),
            "rights withdrawn": lambda: server.set_user(self.arena.user.name, "-eval", "-evalsha"),
            "user off": lambda: self._lock_out(server),
            "busy script": lambda: self._keep_busy(trouble, server),
            "slow command": lambda: self.send(trouble, server, "DEBUG", "SLEEP", str(trouble.lasts_s)),
            "full house": lambda: self._fill(trouble, server),
        }

    def heal(self, trouble: Trouble, server: Server) -> None:
        """Ends the trouble of a server."""
        match trouble.kind.name:
            case "freeze":
                server.thaw()
            case "out of memory":
                server.configure(maxmemory=0)
            case "rights withdrawn" | "user off":
                server.set_user(self.arena.user.name, "on", *self.arena.user.rules)
            case "busy script":
                # The script is killed only after it was seen to be busy, unless it has ended with its connection.
                with contextlib.suppress(ReplyError):
                    server.command("SCRIPT", "KILL")
                self.opened.pop(trouble).close()
            case "slow command":
                self.opened.pop(trouble).close()
            case "full house":
                with self.opened.pop(trouble) as connection:
                    connection.ask("CONFIG", "SET", "maxclients", NO_LIMIT)

    def send(self, trouble: Trouble, server: Server, *words: str | int) -> None:
        """Sends a command over a connection that stays open until the trouble ends."""
        connection = self.opened[trouble] = server.connect()
        connection.send(*words)

    def _lock_out(self, server: Server) -> None:
        server.set_user(self.arena.user.name, "off")
        # A client that has logged in stays logged in.
        server.command("CLIENT", "KILL", "USER", self.arena.user.name)

    def _keep_busy(self, trouble: Trouble, server: Server) -> None:
        server.configure(lua_time_limit=BUSY_AFTER_MS)
        self.send(trouble, server, "EVAL", "while true do end", 0)

    def _fill(self, trouble: Trouble, server: Server) -> None:
        # Only an open connection could undo it later.
        connection = self.opened[trouble] = server.connect()
        connection.ask("CONFIG", "SET", "maxclients", 1)
        connection.ask("CLIENT", "KILL", "TYPE", "normal")

    def _worker(self, trouble: Trouble) -> Worker:
        worker = self.arena.workers[trouble.where]
        assert worker, "no other trouble with a worker meets this one"
        return worker


def locks(server: Server) -> Iterator[tuple[bytes, bytes]]:
    """The keys of present locks, with their values; that of a shared lock is `shared:` and the fence of its period."""
    for key in server.keys():  # noqa: SIM118  (it is no dictionary)
        is_lock = SLOT.fullmatch(key.decode()) or not key.startswith(b"redlock:")
        if is_lock and (value := _value(server, key)) is not None:
            yield key, value


def _value(server: Server, key: bytes) -> bytes | None:
    if server.command("TYPE", key) != b"zset":
        return server.get(key)
    match server.command("ZRANGE", key, -1, -1):
        case [bytes(highest)]:
            return highest.removeprefix(b"redlock:")
    return None


def lock_of(key: str) -> dict[str, object]:
    """The lock to which a key belongs: its name, and the slot if it is a permit."""
    slot = SLOT.fullmatch(key)
    return {"name": slot["tagged"] or slot["plain"], "slot": int(slot["slot"])} if slot else {"name": key}
