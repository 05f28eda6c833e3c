"""A primary with a replica, and the sentinels that watch over them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
"""After what silence a sentinel takes a server for dead."""


class Sentinels:
    """A primary, its replica and three sentinels. A context manager that stops them."""

    def __init__(self, *, program: Path | None = None, user: User | None = None) -> None:
        with contextlib.ExitStack() as stack:
            primary = stack.enter_context(Server(tcp=True, program=program, user=user))
            options = ("--replicaof", "127.0.0.1", str(primary.port))
            replica = stack.enter_context(Server(tcp=True, program=program, user=user, options=options))
            monitored = (
                f"sentinel monitor {MASTER} 127.0.0.1 {primary.port} {_COUNT // 2 + 1}\n"
                f"sentinel down-after-milliseconds {MASTER} {_DOWN_AFTER_MS}\n"
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

    def fail_over(self) -> None:
        """Lets the replica take over in good order."""
        self.sentinels[0].command("SENTINEL", "FAILOVER", MASTER)

    def is_primary(self, server: int) -> bool:
        """Whether one of the servers takes itself for the primary."""
        try:
            role = self.servers[server].command("ROLE")
        except (OSError, ReplyError):
            # A sentinel ends the connections of a server whose role it changes.
            return False
        return isinstance(role, list) and role[0] == b"master"

    def _is_settled(self) -> bool:
        told = [sentinel.info("sentinel").decode() for sentinel in self.sentinels]
        return all("status=ok," in text and f"slaves=1,sentinels={_COUNT}" in text for text in told)
