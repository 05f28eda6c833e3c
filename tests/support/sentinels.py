"""A primary with its replicas, and the sentinels that watch over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.clock import until
from support.resp import ReplyError
from support.servers import Group, Server, User

MASTER = "mymaster"
"""The name under which sentinels know the primary."""

_COUNT = 3
_DOWN_AFTER_MS = 600
"""After what silence a sentinel takes a server for dead."""


class Sentinels(Group):
    """A primary, its replicas and three sentinels. A context manager that stops them.

    replicas   how many; without any, no other server can take over
    failover_timeout_ms  half of the time between two failovers
    options    more options of each server's command line
    setup      options of `Server`
    """

    def __init__(
        self,
        *,
        replicas: int = 1,
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
            options += ("--replicaof", "127.0.0.1", str(primary.port))
            following = [self._start(program=program, user=user, options=options, **setup) for _ in range(replicas)]
            self.servers = [primary, *following]
            monitored = (
                f"sentinel monitor {MASTER} 127.0.0.1 {primary.port} {_COUNT // 2 + 1}\n"
                f"sentinel down-after-milliseconds {MASTER} {_DOWN_AFTER_MS}\n"
                f"sentinel failover-timeout {MASTER} {failover_timeout_ms}\n"
            )
            self.sentinels = [self._start(program=program, monitored=monitored) for _ in range(_COUNT)]
            until(self._is_settled, "the sentinels know each other and the replicas")
            self.stack = self.stack.pop_all()

    def __iter__(self) -> Iterator[Server]:
        return iter((*self.servers, *self.sentinels))

    def fail_over(self) -> None:
        """Lets a replica take over in good order."""
        self.sentinels[0].command("SENTINEL", "FAILOVER", MASTER)

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

    def _start(self, **setup: Any) -> Server:
        return self.stack.enter_context(Server(tcp=True, **setup))

    def _url(self, login: str) -> str:
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{login}{places}/{MASTER}"

    def _is_settled(self) -> bool:
        told = [sentinel.info("sentinel").decode() for sentinel in self.sentinels]
        known = f"slaves={len(self.servers) - 1},sentinels={_COUNT}"
        return all("status=ok," in text and known in text for text in told)
