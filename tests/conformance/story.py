"""What stories have in common: waiting for a state, and seeing what clients and nodes have done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from driver import Call, Client, Lock
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


def connect_to_all(client: Client, nodes: Iterable[Server], name: str) -> None:
    """Makes the client's connections to every node, by locking something else than `name`.

    A node without a connection when the others have answered is not asked at all.
    """
    lock = client.lock("other" + name)

    def all_asked() -> bool:
        lock.acquire()
        lock.release()
        return was_asked(nodes, "other" + name)

    until(all_asked, "there is a connection to every node")


def was_asked(nodes: Iterable[Server], name: str) -> bool:
    """Whether every one of these nodes has granted the lock at some time: then it keeps its fence."""
    return all(server.command("EXISTS", fence_key(name)) for server in nodes)


def fence_key(name: str) -> str:
    """Where a node keeps the fence of a name without braces."""
    return f"redlock:fence:{{{name}}}"


def next_won(waiting: list[tuple[Lock, Call]]) -> tuple[Lock, Call]:
    """The holder among those who wait."""
    until(lambda: not all(call.pending for _, call in waiting), "somebody gets the lock")
    won = [each for each in waiting if not each[1].pending]
    assert len(won) == 1, "two hold the lock"
    return won[0]


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
