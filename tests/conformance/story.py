"""What stories have in common: waiting for a state, and seeing that somebody waits for a lock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from driver import Client
from servers import LIMIT_S, Cluster, Server

_POLL_S = 0.005

# Every way to ask for a key that a lock uses, in any protocol.
_ASKING = ("eval", "evalsha", "set", "setnx", "get", "pttl")


def until(condition: Callable[[], object], what: str) -> None:
    """Waits until `condition` is true; fails after the limit with `what` was waited for."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(_POLL_S)


def fence_key(name: str) -> str:
    """Where a node keeps the fence of a name without braces."""
    return f"redlock:fence:{{{name}}}"


def connect_all(client: Client, nodes: Iterable[Server], name: str) -> None:
    """Uses a lock until there is a connection to every node: one without is not asked when the others have decided.

    The lock is one that nobody has used yet, for it is by its fence that a node tells.
    """
    lock, servers = client.lock(name), list(nodes)

    def asked() -> list[object]:
        return [server.command("EXISTS", fence_key(name)) for server in servers]

    def all_asked() -> bool:
        lock.acquire()
        lock.release()
        return all(asked())

    assert not any(asked()), "the lock was used before"

    until(all_asked, "there is a connection to every node")
    until(lambda: not any(server.get(name) for server in servers), "the last node has released it")


class Asked:
    """Sees that somebody asks for a lock; made before they begin."""

    def __init__(self, nodes: Cluster) -> None:
        self._nodes = list(nodes)
        self._before = [_questions(node) for node in nodes]

    def wait(self) -> None:
        """Waits until a quorum of the nodes was asked."""
        quorum = len(self._nodes) // 2 + 1

        def asked() -> bool:
            now = [_questions(node) for node in self._nodes]
            return sum(count > before for count, before in zip(now, self._before, strict=True)) >= quorum

        until(asked, "a quorum of the nodes is asked for the lock")


def _questions(node: Server) -> int:
    stats = node.command("INFO", "commandstats")
    assert isinstance(stats, bytes)
    lines = (line.partition(":calls=") for line in stats.decode().splitlines())
    return sum(int(rest.partition(",")[0]) for name, _, rest in lines if name.removeprefix("cmdstat_") in _ASKING)
