"""Nodes that lose keys while they run, by a command or because memory is short."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Drivers
from support.clock import until
from support.servers import Cluster, Server

TTL_MS = 1000
LONG_TTL_MS = 60_000
LIMIT_MS = 10_000

both_drives = pytest.mark.parametrize("face", ["python", "node"])
"""One face whose calls run where the caller is, and one whose calls run in the background."""


def flush(server: Server) -> None:
    """Deletes all keys, as if the server were a cache."""
    server.command("FLUSHALL")


def swap(server: Server) -> None:
    """Puts another database in the place of ours."""
    server.command("SWAPDB", 0, 1)


def evict(server: Server) -> None:
    """Evicts keys with a ttl, because memory is short."""
    server.configure(maxmemory_policy="volatile-ttl", maxmemory=1)
    until(lambda: not server.keys(), "everything with a ttl is evicted")
    server.configure(maxmemory=0)


@pytest.mark.parametrize("lose", [flush, swap, evict])
@pytest.mark.parametrize("n", [1, 3], ids=["one node", "three nodes"])
@both_drives
def test_lost_keys_are_noticed(
    drivers: Drivers,
    start_nodes: Callable[..., Cluster],
    face: str,
    n: int,
    lose: Callable[[Server], None],
    name: str,
) -> None:
    """The next renewal finds the loss, long before the lock's own end. Fences continue by the clock."""
    nodes = start_nodes(n)
    client = drivers.start(face).client(nodes.urls)
    lock = client.lock(name, ttl_ms=4 * TTL_MS)
    fence = lock.acquire()["fence"]
    # Otherwise a node that is still being connected to grants after it has lost everything, and makes a quorum.
    until(lambda: all(server.get(name) for server in nodes), "every node has the lock")
    majority = list(nodes)[: n // 2 + 1]
    # A renewal in between would give the first node what it has lost.
    lock.driver.freeze()
    for server in majority:
        lose(server)
    lock.driver.thaw()
    lost = lock.start_wait_lost(limit_ms=LIMIT_MS).result()["lost"]
    assert (lost["code"], lost["reason"]) == ("lost", "deleted")
    until(lambda: not nodes.has(name), "the nodes that still had it have released it")
    lock = client.lock(name, ttl_ms=LONG_TTL_MS)
    second = lock.acquire(timeout_ms=LIMIT_MS)["fence"]
    assert second > fence
    lock.release()
    if lose is swap:
        # The old fence is back, and the old lock may be back for the rest of its ttl.
        for server in majority:
            swap(server)
        assert lock.acquire(timeout_ms=LIMIT_MS)["fence"] > second
