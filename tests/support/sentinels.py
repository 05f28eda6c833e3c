"""A primary with a replica, and the sentinels that watch over them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from support.clock import until
from support.resp import ReplyError
from support.servers import Server, User

MASTER = "mymaster"
"""The name under which sentinels know the primary."""

_COUNT = 3
_DOWN_AFTER_MS = 600
"""After what silence a sentinel takes a server for dead, by default."""

_OPTIONS = ("--repl-diskless-sync-delay", "0")
"""A replica has its primary's data at once."""


_SETTLED_S = 20.0
"""Sentinels ask servers for their state every ten seconds."""


class Sentinels:
    """A primary, its replica and three sentinels. A context manager that stops them.

    down_after_ms  after what silence a sentinel takes a server for dead
    options        more options of the command lines of the primary and the replica
    """

    def __init__(
        self,
        *,
        program: Path | None = None,
        user: User | None = None,
        down_after_ms: int = _DOWN_AFTER_MS,
        options: Sequence[str] = (),
    ) -> None:
        with contextlib.ExitStack() as stack:
            primary, replica = (
                stack.enter_context(Server(tcp=True, program=program, user=user, options=(*_OPTIONS, *options)))
                for _ in range(2)
            )
            replica.command("REPLICAOF", "127.0.0.1", primary.port or 0)
            monitored = (
                f"sentinel monitor {MASTER} 127.0.0.1 {primary.port} {_COUNT // 2 + 1}\n"
                f"sentinel down-after-milliseconds {MASTER} {down_after_ms}\n"
                f"sentinel failover-timeout {MASTER} 5000\n"
            )
            self.servers = (primary, replica)
            self.sentinels = [
                stack.enter_context(Server(tcp=True, program=program, monitored=monitored)) for _ in range(_COUNT)
            ]
            until(self._is_settled, "the sentinels know each other and the replica")
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[Server]:
        return iter((*self.servers, *self.sentinels))

    @property
    def url(self) -> str:
        """The address for the code under test."""
        user = self.servers[0].user
        login = f"{user.name}:{user.password}@" if user else ""
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{login}{places}/{MASTER}"

    @property
    def primary(self) -> Server:
        """The server that most sentinels name. It may be down."""
        ((port, _),) = Counter(self._named()).most_common(1)
        return next(server for server in self.servers if server.port == port)

    def fail_over(self) -> None:
        """Lets the replica take over in good order."""
        self.sentinels[0].command("SENTINEL", "FAILOVER", MASTER)

    def successor(self, former: Server) -> Server:
        """Waits until the other server has taken the place of the primary, and all sentinels name it. Returns it."""
        index = 1 - self.servers.index(former)
        port = self.servers[index].port
        until(lambda: self.is_primary(index) and set(self._named()) == {port}, "another server has taken over")
        return self.servers[index]

    def is_primary(self, server: int) -> bool:
        """Whether one of the servers takes itself for the primary."""
        try:
            role = self.servers[server].command("ROLE")
        except (OSError, ReplyError):
            # A sentinel ends the connections of a server whose role it changes.
            return False
        return isinstance(role, list) and role[0] == b"master"

    def settled(self) -> None:
        """Waits until a failover can take place again: the replica has all data, and all sentinels know that.

        A former primary is made a replica, as its operator might do. The sentinels do so only after some seconds.
        """
        primary = self.primary
        replica = self.servers[1 - self.servers.index(primary)]
        if self.is_primary(self.servers.index(replica)):
            replica.command("REPLICAOF", "127.0.0.1", primary.port or 0)
        until(
            lambda: (
                b"master_link_status:up" in replica.info("replication")
                and set(self._named()) == {primary.port}
                and self._is_settled()
                and all(self._knows(sentinel, replica) for sentinel in self.sentinels)
            ),
            "the replica is in sync",
            _SETTLED_S,
        )

    def _named(self) -> list[int]:
        """The ports of the primaries that sentinels name which answer."""
        named = []
        for sentinel in self.sentinels:
            if sentinel.answers:
                told = sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
                assert isinstance(told, list)
                named += [int(port) for port in told[1:] if isinstance(port, bytes)]
        return named

    def _knows(self, sentinel: Server, replica: Server) -> bool:
        """Whether a sentinel sees a replica at work."""
        told = sentinel.command("SENTINEL", "REPLICAS", MASTER)
        assert isinstance(told, list)
        for each in told:
            assert isinstance(each, list)
            fields = dict(zip(each[::2], each[1::2], strict=True))
            if fields[b"port"] == str(replica.port).encode():
                return fields[b"flags"] == b"slave" and fields[b"master-link-status"] == b"ok"
        return False

    def _is_settled(self) -> bool:
        told = [sentinel.info("sentinel").decode() for sentinel in self.sentinels]
        return all("status=ok," in text and f"slaves=1,sentinels={_COUNT}" in text for text in told)
