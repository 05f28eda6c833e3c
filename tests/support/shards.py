"""A Redis Cluster: primaries that share the slots, each with a replica if a test wants one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from support.clock import until
from support.ports import free_port
from support.resp import ReplyError
from support.servers import Server, User

_SLOTS = 16_384
_NODE_TIMEOUT_MS = 1000
"""After what silence a server of the cluster is taken for dead."""


class Shards:
    """A cluster. A context manager that stops it.

    primaries  how many; they come first among `servers`
    replicas   whether each has one; they come next, in the same order
    """

    def __init__(
        self, primaries: int, *, replicas: bool = False, program: Path | None = None, user: User | None = None
    ) -> None:
        self.primaries = primaries
        with contextlib.ExitStack() as stack:
            self.servers = [
                stack.enter_context(Server(tcp=True, program=program, user=user, options=_options()))
                for _ in range(primaries * (2 if replicas else 1))
            ]
            self._join()
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[Server]:
        return iter(self.servers)

    @property
    def url(self) -> str:
        """The address for the code under test."""
        user = self.servers[0].user
        login = f"{user.name}:{user.password}@" if user else ""
        return f"redis+cluster://{login}" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def slot(self, key: str) -> int:
        """The slot of a key."""
        slot = self.servers[0].command("CLUSTER", "KEYSLOT", key)
        assert isinstance(slot, int)
        return slot

    def shard(self, key: str) -> int:
        """Which primary had the slot of a key at first."""
        return next(index for index in range(self.primaries) if self.slot(key) < self._first(index + 1))

    def migrate(self, key: str, source: Server, target: Server) -> None:
        """Moves the slot of a key, with all that is in it."""
        slot, source_id, target_id = self.slot(key), _id(source), _id(target)
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            assert isinstance(keys, list)
            names = [each.decode() for each in keys if isinstance(each, bytes)]
            source.command("MIGRATE", "127.0.0.1", target.port or 0, "", 0, 5000, "KEYS", *names)
        for server in (target, source):
            server.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)

    def is_primary(self, server: Server) -> bool:
        """Whether a server takes itself for a primary."""
        try:
            role = server.command("ROLE")
        except (OSError, ReplyError):
            return False
        return isinstance(role, list) and role[0] == b"master"

    def _first(self, index: int) -> int:
        return index * _SLOTS // self.primaries

    def _join(self) -> None:
        for number, server in enumerate(self.servers, 1):
            # Without equal epochs, which would have to be told apart first.
            server.command("CLUSTER", "SET-CONFIG-EPOCH", number)
        for index, server in enumerate(self.servers[: self.primaries]):
            server.command("CLUSTER", "ADDSLOTSRANGE", self._first(index), self._first(index + 1) - 1)
        for server in self.servers[1:]:
            (_, bus) = _list(server.command("CONFIG", "GET", "cluster-port"))
            self.servers[0].command("CLUSTER", "MEET", "127.0.0.1", server.port or 0, bus)
        until(self._is_joined, "all servers of the cluster know each other")
        for primary, replica in zip(self.servers, self.servers[self.primaries :], strict=False):
            replica.command("CLUSTER", "REPLICATE", _id(primary))
        until(self._is_settled, "the cluster is well")

    def _is_joined(self) -> bool:
        nodes = [_text(server.command("CLUSTER", "NODES")) for server in self.servers]
        return all(text.count("\n") == len(self.servers) and "handshake" not in text for text in nodes)

    def _is_settled(self) -> bool:
        replicas = self.servers[self.primaries :]
        return (
            all("cluster_state:ok" in _text(server.command("CLUSTER", "INFO")) for server in self.servers)
            and all("master_link_status:up" in server.info("replication").decode() for server in replicas)
            and all(
                _text(server.command("CLUSTER", "NODES")).count("slave") == len(replicas) for server in self.servers
            )
        )


def _options() -> tuple[str, ...]:
    return (
        *("--cluster-enabled", "yes", "--cluster-port", str(free_port())),
        *("--cluster-node-timeout", str(_NODE_TIMEOUT_MS), "--cluster-require-full-coverage", "no"),
        *("--repl-diskless-sync-delay", "0"),
    )


def _id(server: Server) -> str:
    return _text(server.command("CLUSTER", "MYID"))


def _list(reply: object) -> list[bytes]:
    assert isinstance(reply, list)
    return reply


def _text(reply: object) -> str:
    assert isinstance(reply, bytes)
    return reply.decode()
