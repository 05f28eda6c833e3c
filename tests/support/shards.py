"""A Redis Cluster: primaries that share the slots, each with its replicas."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from support.clock import until
from support.resp import Reply, ReplyError, Word
from support.servers import Group, Server, User

_SLOTS = 16_384
_NODE_TIMEOUT_MS = 1000
"""After what silence a server of the cluster is taken for dead."""

_ELECTION_S = 4 * _NODE_TIMEOUT_MS / 1000 + 0.2
"""How long a server holds no second election.

Redis 7.0 may count the votes of the last one instead, and is then a primary that no other server knows, until it hears
of the present one.
"""

_FAILOVER_LIMIT_S = 6.0
"""When a planned failover that failed is asked for again; servers give it up after 5 s."""

_OPTIONS = (
    *("--cluster-node-timeout", str(_NODE_TIMEOUT_MS)),
    # A shard that is down is no reason for the others to refuse.
    *("--cluster-require-full-coverage", "no"),
    # No replica changes its shard. Without replica migration, a former primary might stay one that has no slots.
    *("--cluster-migration-barrier", "100"),
    # A replica counts at once.
    *("--repl-diskless-sync-delay", "0"),
)


def slot(key: str) -> int:
    """The slot of a key, which is that of its hash tag, if it has one."""
    _, _, rest = key.partition("{")
    tag, end, _ = rest.partition("}")
    crc = 0
    # CRC16 as of XMODEM.
    for byte in (tag if tag and end else key).encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x1021 if crc & 0x8000 else 0)) & 0xFFFF
    return crc % _SLOTS


def _first_slot(shard: int, primaries: int) -> int:
    return shard * _SLOTS // primaries


class Shards(Group):
    """A cluster. A context manager that stops it.

    A shard is a number from 0. Its servers stay the same; failovers only change their roles. The methods that look for
    a server pass by servers that are frozen or killed, and believe the latest epoch, as the servers do.

    The cluster keeps nothing on disk but its map. A killed primary that is restarted before its replica took over is an
    empty primary, and its replicas become empty too. It takes 2 s to start, because no server lets a primary take
    writes earlier.

    primaries  how many; they come first among `servers`
    replicas   how many each of them has; they come next, in the same order for each round of them
    options    more options of each server's command line; later ones win
    setup      options of `Server`
    """

    def __init__(
        self,
        primaries: int,
        *,
        replicas: int = 0,
        program: Path | None = None,
        user: User | None = None,
        options: Sequence[str] = (),
        **setup: Any,
    ) -> None:
        super().__init__()
        self.primaries = primaries
        self._elections: dict[Server, float] = {}
        options = (*_OPTIONS, *options)
        with self.stack:
            self.servers = [
                self.stack.enter_context(
                    Server(tcp=True, cluster=True, program=program, user=user, options=options, **setup)
                )
                for _ in range(primaries * (1 + replicas))
            ]
            self._join(replicas)
            self.stack = self.stack.pop_all()

    def without_deaths(self) -> Self:
        """Has no server be taken for dead, however long it is silent. From the start on, it would slow the joining."""
        for server in self.servers:
            server.configure(cluster_node_timeout=60_000)
        return self

    def settled(self) -> None:
        """Waits until all servers that answer find the cluster well, agree on it, and have their primary's data."""
        until(self._is_settled, "the cluster is well")

    def replica(self, shard: int, number: int = 0) -> Server:
        """The server that was started as the replica of a shard with this number."""
        return self.servers[self.primaries * (1 + number) + shard]

    def primary(self, shard: int) -> Server:
        """The present primary of a shard. It may be down."""
        servers = self._of_shard(shard)
        return self._latest(lambda member: self._ids[member.id] in servers)

    def replicas(self, shard: int) -> list[Server]:
        """The servers of a shard other than its present primary. They may be down."""
        primary = self.primary(shard)
        return [server for server in self._of_shard(shard) if server is not primary]

    def owner(self, key: str) -> Server:
        """The server that has the slot of a key. It may be down."""
        number = slot(key)
        return self._latest(lambda member: member.has(number))

    def server_of(self, name: str) -> Server:
        """The server that has the slot of a name."""
        return self.owner(name)

    def owner_by(self, asked: Server, key: str) -> Server | None:
        """The server that has the slot of a key, as `asked` tells."""
        number = slot(key)
        ranges = asked.command("CLUSTER", "SLOTS")
        assert isinstance(ranges, list)
        for each in ranges:
            match each:
                case [int() as first, int() as last, [_, _, bytes() as id_of, *_], *_] if first <= number <= last:
                    return self._ids[id_of.decode()]
        return None

    def shard(self, key: str) -> int:
        """The shard that has the slot of a key."""
        return self._shard_of(self.owner(key))

    def other(self, key: str) -> Server:
        """Another primary than the one that has the slot of a key."""
        owner = self.owner(key)
        primaries = (self.primary(shard) for shard in range(self.primaries))
        return next(server for server in primaries if server is not owner and server.answers)

    def on_shard(self, shard: int, keys: Iterable[str]) -> list[str]:
        """Those of the keys whose slots are on a shard, whose primary has to answer."""
        (itself,) = (member for member in _members(self.primary(shard)) if member.is_myself)
        return [key for key in keys if itself.has(slot(key))]

    def slot(self, key: str) -> int:
        """The slot of a key."""
        return slot(key)

    def open(self, key: str, source: Server, target: Server) -> None:
        """Opens the slot of a key: it is on its way from one server to another."""
        target.command("CLUSTER", "SETSLOT", slot(key), "IMPORTING", _id(source))
        source.command("CLUSTER", "SETSLOT", slot(key), "MIGRATING", _id(target))

    def move_keys(self, keys: Sequence[Word], source: Server, target: Server) -> None:
        """Moves some keys of an open slot."""
        source.command("MIGRATE", "127.0.0.1", target.port or 0, "", 0, 5000, "KEYS", *keys)

    def move_all(self, key: str, source: Server, target: Server) -> None:
        """Moves all keys of an open slot."""
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot(key), 100):
            assert isinstance(keys, list)
            self.move_keys([name for name in keys if isinstance(name, bytes)], source, target)

    def close(self, key: str, source: Server, target: Server) -> None:
        """Closes the slot of a key, which is at the target from then on, and waits until all servers know of it."""
        target_id = _id(target)
        # Only primaries can be told; replicas hear of it.
        primaries = [self.primary(shard) for shard in range(self.primaries)]
        others = [server for server in primaries if server not in {source, target} and server.answers]
        for server in (target, source, *others):
            server.command("CLUSTER", "SETSLOT", slot(key), "NODE", target_id)
        self._wait_told(key, target)

    def migrate(self, key: str, source: Server, target: Server) -> None:
        """Moves the slot of a key, with all that is in it."""
        self.open(key, source, target)
        self.move_all(key, source, target)
        self.close(key, source, target)

    def hand_over(self, key: str, source: Server, target: Server) -> None:
        """Has the source move the slot of a key to the target by itself and at once, as Valkey 9 can."""
        source.command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot(key), slot(key), "NODE", _id(target))
        self._wait_told(key, target)

    def fail_over(self, shard: int) -> Server:
        """Has the first replica of a shard take over, as an operator does, and waits until all servers know of it.

        Returns the new primary.
        """
        replica = next(server for server in self.replicas(shard) if server.answers)
        time.sleep(max(0, self._elections.get(replica, 0) + _ELECTION_S - time.monotonic()))
        asked = -_FAILOVER_LIMIT_S

        def has_taken_over() -> bool:
            nonlocal asked
            if time.monotonic() > asked + _FAILOVER_LIMIT_S:
                with contextlib.suppress(OSError, ReplyError):
                    replica.command("CLUSTER", "FAILOVER")
                    asked = time.monotonic()
            return self.is_primary(replica) and self._agree()

        until(has_taken_over, "the replica has taken over")
        self._elections[replica] = time.monotonic()
        return replica

    def successor(self, former: Server) -> Server:
        """Waits until another server has taken the place of a primary, and all servers know of it. Returns it."""
        others = [server for server in self._of_shard(self._shard_of(former)) if server is not former]

        def found() -> list[Server]:
            return [server for server in others if server.answers and self.is_primary(server)]

        until(lambda: found() and self._agree(), "another server has taken over")
        (primary,) = found()
        self._elections[primary] = time.monotonic()
        return primary

    def is_primary(self, server: Server) -> bool:
        """Whether a server takes itself for a primary."""
        try:
            role = server.command("ROLE")
        except (OSError, ReplyError):
            return False
        return isinstance(role, list) and role[0] == b"master"

    def _join(self, replicas: int) -> None:
        self._ids = {_id(server): server for server in self.servers}
        for number, server in enumerate(self.servers, 1):
            # Without equal epochs, which would have to be told apart first.
            server.command("CLUSTER", "SET-CONFIG-EPOCH", number)
        for index, server in enumerate(self.servers[: self.primaries]):
            first, end = (_first_slot(shard, self.primaries) for shard in (index, index + 1))
            # Redis 6.2 takes no range.
            server.command("CLUSTER", "ADDSLOTS", *range(first, end))
        for server in self.servers[1:]:
            self.servers[0].command("CLUSTER", "MEET", "127.0.0.1", server.port or 0, server.bus_port)
        until(self._agree, "all servers of the cluster know each other")
        for number in range(replicas):
            for shard in range(self.primaries):
                self.replica(shard, number).command("CLUSTER", "REPLICATE", _id(self.servers[shard]))
        self.settled()

    def _wait_told(self, key: str, owner: Server) -> None:
        """Waits until all servers know who has the slot of a key."""
        # A server that has the map and not yet the epoch would give a slot that comes back its own epoch, which is too
        # old. Then two servers point at each other for good.
        until(
            lambda: self._agree() and all(self.owner_by(server, key) is owner for server in self._answering()),
            "all servers know of the move",
        )

    def _answering(self) -> list[Server]:
        return [server for server in self.servers if server.answers]

    def _of_shard(self, shard: int) -> list[Server]:
        return self.servers[shard :: self.primaries]

    def _shard_of(self, server: Server) -> int:
        return self.servers.index(server) % self.primaries

    def _url(self, login: str) -> str:
        scheme = "rediss" if self.servers[0].tls else "redis"
        return f"{scheme}+cluster://{login}" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def _agree(self) -> bool:
        """Whether all servers that answer tell the same of each other, as each does of itself."""
        views = [_members(server) for server in self._answering()]
        of_itself = [member for view in views for member in view if member.is_myself]
        return len(of_itself) == len(views) and all(
            len(view) == len(self.servers) and all(any(member.is_as(itself) for member in view) for itself in of_itself)
            for view in views
        )

    def _latest(self, wanted: Callable[[_Member], bool]) -> Server:
        """Of the primaries that are wanted, the one with the latest epoch. A server that answers tells of itself."""
        answering = self._answering()
        told = [member for server in answering for member in _members(server)]
        told = [member for member in told if member.is_myself or self._ids[member.id] not in answering]
        found = (member for member in told if member.is_primary and wanted(member))
        return self._ids[max(found, key=lambda member: member.epoch).id]

    def _is_settled(self) -> bool:
        answering = self._answering()
        return (
            all("cluster_state:ok" in _told(server, "CLUSTER", "INFO") for server in answering)
            and self._agree()
            and all(self._is_in_sync(server) for server in answering)
        )

    def _is_in_sync(self, server: Server) -> bool:
        """Whether a server is the primary of its shard, or a replica that has all of the primary's data."""
        primary = self.primary(self._shard_of(server))
        return primary is server or (
            "master_link_status:up" in _told(server, "INFO", "replication")
            and f"port={server.port},state=online" in _told(primary, "INFO", "replication")
        )


@dataclass(frozen=True)
class _Member:
    """One server of the cluster, as one of them tells in a line of CLUSTER NODES."""

    id: str
    flags: frozenset[str]
    follows: str
    """The id of the primary, if it is a replica."""
    epoch: int
    slots: tuple[str, ...]

    @classmethod
    def read(cls, line: str) -> Self:
        id_of, _, flags, follows, _, _, epoch, _, *slots = line.split()
        # Without those on their way.
        present = tuple(each for each in slots if not each.startswith("["))
        return cls(id_of, frozenset(flags.split(",")), follows, int(epoch), present)

    @property
    def is_myself(self) -> bool:
        return "myself" in self.flags

    @property
    def is_primary(self) -> bool:
        return "master" in self.flags

    def has(self, number: int) -> bool:
        for slots in self.slots:
            first, _, last = slots.partition("-")
            if int(first) <= number <= int(last or first):
                return True
        return False

    def is_as(self, itself: _Member) -> bool:
        """Whether it is what the server tells of itself."""
        return not self.flags & {"handshake", "noaddr", "fail", "fail?"} and (
            (self.id, self.is_primary, self.follows, self.epoch, self.slots)
            == (itself.id, itself.is_primary, itself.follows, itself.epoch, itself.slots)
        )


def _members(asked: Server) -> list[_Member]:
    """All servers of the cluster, as one of them tells; none if it does not answer."""
    return [_Member.read(line) for line in _told(asked, "CLUSTER", "NODES").splitlines()]


def _told(server: Server, *words: Word) -> str:
    """The answer in text, which is empty if the server does not answer."""
    if not server.answers:
        return ""
    try:
        return _text(server.command(*words))
    except (OSError, ReplyError):
        return ""


def _id(server: Server) -> str:
    return _text(server.command("CLUSTER", "MYID"))


def _text(reply: Reply) -> str:
    assert isinstance(reply, bytes)
    return reply.decode()
