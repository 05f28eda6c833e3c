"""Wrong clocks: those of servers, and the client's as servers see it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Drivers
from conformance.history import SLACK_MS, History
from conformance.story import Asked, connect_to_all, fence_key, within
from support.clock import until
from support.servers import Cluster

TTL_MS = 1000
RENEWED_TTL_MS = 3000
"""A ttl of locks that stay held on a slow machine."""
PATIENT_MS = 900
"""A node_timeout for such a ttl that nodes keep on a slow machine."""
LIMIT_MS = 10_000
HOUR_MS = 3_600_000
SLACK_US = 60_000_000
"""How far a fence may differ from a node's clock on several nodes, whatever the client's clock shows."""
YEAR_2100_US = 4_102_444_800_000_000
DECADE_DAYS = 3650
MOST_QUESTIONS = 100
"""A waiter that waits for a second asks less often than this."""

both_drives = pytest.mark.parametrize("face", ["python", "node"])
"""One face whose calls run where the caller is, and one whose calls run in the background."""


@both_drives
def test_server_clock_jumps_forward(
    drivers: Drivers, history: History, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    """The lock expires early. The next renewal finds the loss, and fences stay in order."""
    history.rule("--no-exclusion")
    (server,) = nodes = start_nodes(1, clock=True)
    holder = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=LIMIT_MS // 2)
    other = drivers.start(face).client(nodes.urls).lock(name)
    fences = [holder.acquire()["fence"]]
    # A renewal that comes before the other has the lock would find no key, which is another reason.
    holder.driver.freeze()
    server.shift_clock(hours=1)
    fences.append(other.acquire(timeout_ms=LIMIT_MS)["fence"])
    holder.driver.thaw()
    lost = holder.start_wait_lost(limit_ms=LIMIT_MS).result()["lost"]
    assert (lost["code"], lost["reason"]) == ("lost", "taken")
    other.release()
    # The clock jumps back, so that it is behind the last fence now.
    server.shift_clock()
    fences.append(other.acquire(timeout_ms=LIMIT_MS)["fence"])
    assert fences == sorted(set(fences))


@both_drives
def test_server_clock_jumps_back(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str) -> None:
    """A crashed holder's lock visibly stays for an hour more. Its waiters do not ask more often because of it."""
    (server,) = nodes = start_nodes(1, clock=True)
    crashed = drivers.start("rust").client(nodes.urls).lock(name, ttl_ms=3 * TTL_MS, auto_renew=False)
    client = drivers.start(face).client(nodes.urls)
    lock = client.lock(name)
    fence = crashed.acquire()["fence"]
    crashed.driver.kill()
    server.shift_clock(hours=-1)
    assert client.inspect(name)["ttl_left_ms"] > HOUR_MS - TTL_MS
    asked = Asked(nodes)
    with within(TTL_MS):
        assert lock.denied(lock.start_acquire(timeout_ms=TTL_MS))
    assert 0 < asked.count() <= MOST_QUESTIONS
    waiting = lock.start_acquire(timeout_ms=LIMIT_MS)
    # An administrator deletes the key.
    server.command("DEL", name)
    assert waiting.result()["fence"] > fence
    # A lock that is held now is not kept for an hour.
    lock.extend()
    lock.release()
    assert not nodes.has(name)


@both_drives
def test_held_lock_survives_a_clock_that_jumps_back(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    """The holder measures with its own clock."""
    (server,) = nodes = start_nodes(1, clock=True)
    lock = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=RENEWED_TTL_MS, node_timeout_ms=PATIENT_MS)
    won = lock.acquire()
    first_end_ns = won["read_ns"] + won["remaining_ms"] * 1e6
    server.shift_clock(hours=-1)

    def is_over() -> bool:
        state = lock.state()
        assert state["held"]
        assert state["remaining_ms"] <= RENEWED_TTL_MS
        return bool(state["read_ns"] > first_end_ns)

    until(is_over, "the first lease is over")
    lock.release()
    assert not nodes.has(name)
    assert lock.acquire()["fence"] > won["fence"]


@both_drives
def test_clock_of_a_minority_jumps(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str) -> None:
    """No lock is lost, and fences stay in order, whether or not that node is in the quorum."""
    nodes = start_nodes(3, clock=True)
    client = drivers.start(face).client(nodes.urls)
    connect_to_all(client, nodes, name)
    lock = client.lock(name, ttl_ms=RENEWED_TTL_MS, node_timeout_ms=PATIENT_MS, timeout_ms=LIMIT_MS)
    fences = []
    for hours in (1, 0, -1, 0):
        fences.append(lock.acquire()["fence"])
        until(lambda: all(server.get(name) for server in nodes), "the loss of one node does not matter")
        nodes[0].shift_clock(hours=hours)
        assert lock.extend()["fence"] == fences[-1]
        lock.release()
        fences.append(lock.acquire()["fence"])
        lock.release()
        # The first majority does not have the node, and the second needs it.
        for away in (nodes[0], nodes[2]):
            away.freeze()
            fences.append(lock.acquire()["fence"])
            lock.release()
            away.thaw()
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("n", [1, 3], ids=["one node", "three nodes"])
@pytest.mark.parametrize("days", [-DECADE_DAYS, DECADE_DAYS], ids=["ahead", "behind"])
@both_drives
def test_client_clock_is_years_off(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, days: int, n: int, name: str
) -> None:
    """It does not move the fence: a client's proposal counts only as far as the node's clock agrees."""
    nodes = start_nodes(n, clock=True)
    # Only the difference can be seen, so the servers' clocks are shifted.
    for server in nodes:
        server.shift_clock(days=days)
    lock = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=RENEWED_TTL_MS, node_timeout_ms=PATIENT_MS)
    slack_us = SLACK_US if n > 1 else 0
    fences: list[int] = []
    for _ in range(2):
        earliest_us = min(server.now_us() for server in nodes)
        won = lock.acquire()
        latest_us = max(server.now_us() for server in nodes)
        assert earliest_us - slack_us <= won["fence"] <= latest_us + slack_us + len(fences)
        fences.append(won["fence"])
        lock.extend()
        assert lock.state()["remaining_ms"] <= RENEWED_TTL_MS, "what remains has nothing to do with it"
        lock.release()
    assert fences[0] < fences[1]


@pytest.mark.parametrize("n", [1, 3], ids=["one node", "three nodes"])
@both_drives
def test_fence_of_the_year_2100(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, n: int, name: str
) -> None:
    """If such a fence exists, the next fences follow it one by one: still whole and exact in every language."""
    nodes = start_nodes(n)
    for server in nodes:
        server.command("SET", fence_key(name), YEAR_2100_US)
    # A round that is late would be lost, and its fence with it.
    lock = drivers.start(face).client(nodes.urls, node_timeout_ms=5 * SLACK_MS).lock(name)
    for i in range(1, 4):
        assert lock.acquire(timeout_ms=LIMIT_MS)["fence"] == YEAR_2100_US + i
        lock.extend()
        lock.release()
