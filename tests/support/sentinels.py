"""A primary with its replicas, and the sentinels that watch over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.clock import until
from support.resp import ReplyError
from support.servers import Group, Server, User

MASTER = "mymaster"
"""The name under which sentinels know the primary."""

_COUNT = 3
_DOWN_AFTER_MS = 1500
"""After what silence a sentinel takes a server for dead, by default; longer than one is silent on a busy machine."""

_LIMIT_S = 60.0
"""Longest wait for sentinels.

They ask servers for their state every ten seconds. One that stood still for two seconds does nothing for the next 30.
"""


class Sentinels(Group):
    """A primary, its replicas and three sentinels. A context manager that stops them.

    replicas             how many; without any, no other server can take over
    down_after_ms        after what silence a sentinel takes a server for dead
    failover_timeout_ms  half of the time between two failovers
    options              more options of each server's command line
    setup                options of `Server`
    """

    def __init__(
        self,
        *,
        replicas: int = 1,
        down_after_ms: int = _DOWN_AFTER_MS,
        failover_timeout_ms: int = 5000,
        program: Path | None = None,
        user: User | None = None,
        options: Sequence[str] = (),
        **setup: Any,
    ) -> None:
        super().__init__()
        with self.stack:
            # A replica counts at once.
            options = ("--repl-diskless-sync-delay", "0", *options)
            primary = self._start(program=program, user=user, options=options, **setup)
            following = [self._start(program=program, user=user, options=options, **setup) for _ in range(replicas)]
            for replica in following:
                replica.command("REPLICAOF", "127.0.0.1", primary.port or 0)
            self.servers = [primary, *following]
            monitored = (
                f"sentinel monitor {MASTER} 127.0.0.1 {primary.port} {_COUNT // 2 + 1}\n"
                f"sentinel down-after-milliseconds {MASTER} {down_after_ms}\n"
                f"sentinel failover-timeout {MASTER} {failover_timeout_ms}\n"
            )
            self.sentinels = [self._start(program=program, monitored=monitored) for _ in range(_COUNT)]
            until(self._is_settled, "the sentinels know each other and the replicas", _LIMIT_S)
            self.stack = self.stack.pop_all()

    def __iter__(self) -> Iterator[Server]:
        return iter((*self.servers, *self.sentinels))

    @property
    def primary(self) -> Server:
        """The server that most sentinels name. It may be down."""
        ((port, _),) = Counter(self._named()).most_common(1)
        return self.at(port)

    @property
    def epoch(self) -> int:
        """The number of the last failover."""
        numbers = []
        for sentinel in self.sentinels:
            if sentinel.answers:
                told = sentinel.command("SENTINEL", "MASTER", MASTER)
                assert isinstance(told, list)
                number = dict(zip(told[::2], told[1::2], strict=True))[b"config-epoch"]
                assert isinstance(number, bytes)
                numbers.append(int(number))
        return max(numbers)

    def fail_over(self) -> None:
        """Lets a replica take over in good order."""
        self.sentinels[0].command("SENTINEL", "FAILOVER", MASTER)

    def successor(self, former: Server) -> Server:
        """Waits until another server has taken the place of the primary, and all sentinels name it. Returns it."""

        def found() -> set[int]:
            named = set(self._named()) - {former.port}
            return named if len(named) == 1 and self.is_primary(self.servers.index(self.at(*named))) else set()

        until(lambda: found() and len(set(self._named())) == 1, "another server has taken over", _LIMIT_S)
        return self.primary

    def is_primary(self, server: int) -> bool:
        """Whether one of the servers takes itself for the primary."""
        try:
            role = self.servers[server].command("ROLE")
        except (OSError, ReplyError):
            # A sentinel ends the connections of a server whose role it changes.
            return False
        return isinstance(role, list) and role[0] == b"master"

    def server_of(self, name: str) -> Server:
        """The primary, which has every name."""
        return next(server for number, server in enumerate(self.servers) if self.is_primary(number))

    def settled(self) -> None:
        """Waits until a failover can take place again: the replicas have all data, and all sentinels know that.

        A former primary is made a replica, as its operator might do. The sentinels do so only after some seconds.
        """
        primary = self.primary
        replicas = [server for server in self.servers if server is not primary]
        for replica in replicas:
            if self.is_primary(self.servers.index(replica)):
                replica.command("REPLICAOF", "127.0.0.1", primary.port or 0)
        until(
            lambda: (
                all(b"master_link_status:up" in replica.info("replication") for replica in replicas)
                and set(self._named()) == {primary.port}
                and self._is_settled()
                and all(self._knows(sentinel, replica) for sentinel in self.sentinels for replica in replicas)
            ),
            "the replicas are in sync",
            _LIMIT_S,
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

    def _start(self, **setup: Any) -> Server:
        return self.stack.enter_context(Server(tcp=True, **setup))

    def _url(self, login: str) -> str:
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{login}{places}/{MASTER}"

    def _is_settled(self) -> bool:
        told = [sentinel.info("sentinel").decode() for sentinel in self.sentinels]
        known = f"slaves={len(self.servers) - 1},sentinels={_COUNT}"
        return all("status=ok," in text and known in text for text in told)
