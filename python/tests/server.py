"""Real servers, one or several, as these tests use them."""

import contextlib
from collections.abc import Generator
from typing import Any

from support import servers
from support.resp import Word

LIMIT = 30.0
"""Seconds after which an event that has not happened never will."""

SLACK = 1.0
"""Seconds by which a slow machine may be late."""


class Server(servers.Server):
    def command(self, *words: Word) -> Any:
        """Send one command; a test knows the type of its answer."""
        return super().command(*words)


class Nodes:
    """Several servers that are independent of each other, or one."""

    def __init__(self, count: int) -> None:
        with contextlib.ExitStack() as stack:
            self.servers = [stack.enter_context(Server()) for _ in range(count)]
            self._stack = stack.pop_all()

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def having(self, name: str) -> list[int]:
        """The numbers of the servers that have a key of this name."""
        return [number for number, server in enumerate(self.servers) if server.has(name)]

    @contextlib.contextmanager
    def frozen(self) -> Generator[None]:
        """Freeze all of them for as long as the block lasts."""
        try:
            for server in self.servers:
                server.freeze()
            yield
        finally:
            for server in self.servers:
                server.thaw()

    def stop(self) -> None:
        self._stack.close()
