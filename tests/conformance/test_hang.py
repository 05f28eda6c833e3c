"""Nodes that answer late: frozen, paused or slow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import pytest

from conformance.conftest import Drivers
from conformance.driver import FACES, LockError
from conformance.history import SLACK_MS
from conformance.story import connect_to_all, fence_key, one_try_ms, within
from support.clock import until
from support.servers import Cluster

TTL_MS = 1000
LONG_TTL_MS = 60_000
LIMIT_MS = 10_000

both_drives = pytest.mark.parametrize("face", ["python", "node"])
"""One face whose calls run where the caller is, and one whose calls run in the background."""


@both_drives
def test_late_grant_is_taken_back(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str) -> None:
    """A frozen node wakes up and grants a lock that no caller waits for any more. A deletion follows at once."""
    (server,) = nodes = start_nodes(1)
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    connect_to_all(client, nodes, name)
    lock = client.lock(name)
    server.freeze()
    with within(one_try_ms()), pytest.raises(LockError) as refused:
        lock.acquire(timeout_ms=0)
    assert refused.value.code == "unavailable"
    assert len(refused.value.nodes) == len(nodes)
    server.thaw()
    until(lambda: server.command("EXISTS", fence_key(name)), "the node has granted it after all")
    until(lambda: not nodes.has(name), "and has taken it back")
    assert not lock.state()["held"]
    lock.acquire(timeout_ms=LIMIT_MS)


@pytest.mark.parametrize("face", FACES)
def test_a_call_ends_with_its_timeout(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    """However long a node may take, and whatever is left to clean up."""
    (server,) = nodes = start_nodes(1)
    # Not silent before the calls end.
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=5 * SLACK_MS)
    connect_to_all(client, nodes, name)
    detached = client.lock("detached")
    detached.acquire()
    locks = [client.lock(name), client.semaphore(name, 2), client.lock_all([name, "b"]), client.lock("r", shared=True)]
    locks.append(client.lock("older", protocol="setnx"))
    calls = [partial(lock.start_acquire, timeout_ms=1) for lock in locks]
    calls.append(partial(client.start_attach, detached.detach(), timeout_ms=1))
    server.freeze()
    with within(1):
        for call in [call() for call in calls]:
            with contextlib.suppress(LockError):
                assert not call.result()["acquired"]
    server.thaw()


@both_drives
def test_pause_that_ends_in_time_is_no_loss(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    """Renewals stall for a while and then continue until the release. No key comes back after it."""
    (server,) = nodes = start_nodes(1)
    ttl_ms = 4 * TTL_MS
    lock = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=ttl_ms)
    won = lock.acquire()
    end_ns = won["read_ns"] + won["remaining_ms"] * 1e6
    stalled = lock.state()["remaining_ms"]
    server.command("CLIENT", "PAUSE", LONG_TTL_MS, "WRITE")
    # After half of the ttl, a renewal was due, and the end is far away.
    until(lambda: lock.state()["remaining_ms"] < stalled / 2, "a renewal is stalled")
    server.command("CLIENT", "UNPAUSE")

    def is_over() -> bool:
        state = lock.state()
        assert state["held"]
        return bool(state["read_ns"] > end_ns)

    until(is_over, "the first lease is over")
    lock.release()
    assert not nodes.has(name)
    assert lock.acquire(timeout_ms=LIMIT_MS)["fence"] > won["fence"]
