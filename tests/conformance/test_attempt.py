"""One attempt to acquire: what counts, what it reports, and what it leaves behind, on every face."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

from conformance.conftest import Drivers
from conformance.driver import FACES, LockError
from conformance.history import SLACK_MS
from conformance.story import connect_to_all, fence_key
from support.clock import until
from support.servers import Cluster

every_face = pytest.mark.parametrize("face", FACES)
LONG_TTL_MS = 60_000
"""A ttl longer than any test case, so that a key that is left behind blocks others."""
HOUR_US = 3_600_000_000
PATIENT_MS = 8 * SLACK_MS
"""A node_timeout that nodes keep however slow the machine is."""
CANCELLED = 20

VALUE = re.compile(rb"(?P<token>[0-9a-f]{32}):(?P<fence>[0-9]+):(?P<label>.*)")


@every_face
@pytest.mark.parametrize("n", [1, 5], ids=["one node", "five nodes"])
def test_lost_vote_does_not_block_the_retry(
    drivers: Drivers, start_nodes: Callable[..., Cluster], n: int, face: str, name: str
) -> None:
    """The nodes hang, take the lock too late, and are asked again."""
    nodes = start_nodes(n)
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=SLACK_MS)
    lock = client.lock(name)
    connect_to_all(client, nodes, name)
    hung = list(nodes)[: n // 2 + 1]
    for server in hung:
        server.freeze()
    with pytest.raises(LockError) as refused:
        lock.try_acquire()
    assert refused.value.code == "unavailable"
    for server in hung:
        server.thaw()
    assert not lock.denied(lock.start_acquire(timeout_ms=PATIENT_MS)), "its own leftover was in its way"
    lock.release()


@every_face
def test_node_that_was_taken_does_not_confirm(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    """A node's key expires between its grant and its confirm and another client gets it: that node does not count."""
    client = drivers.start(face).client(own_nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    lock = client.lock(name)
    connect_to_all(client, own_nodes, name)
    slow, *quick = list(own_nodes)[:3]
    for away in list(own_nodes)[3:]:
        away.kill()
    lock.acquire()
    lock.release()
    until(lambda: not own_nodes.has(name), "the last node has released it")
    # The slow node grants the largest fence, so the others have to confirm it. All three are needed.
    slow.command("SET", fence_key(name), (lock.fence or 0) + HOUR_US)
    slow.freeze()
    trying = lock.start_try_acquire()
    until(lambda: all(server.get(name) for server in quick), "the others have granted it")
    for server in quick:
        server.command("SET", name, "another library's token")
    slow.thaw()
    try:
        won = trying.result()["acquired"]
    except LockError:
        won = False
    assert not won, "won with nodes that others hold"
    assert all(server.get(name) == b"another library's token" for server in quick)
    until(lambda: not slow.get(name), "it is released where it was granted")


@every_face
def test_every_attempt_has_a_token_of_its_own(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    lock = drivers.start(face).client(node.urls, node_timeout_ms=PATIENT_MS).lock(name, label="worker: 7")
    tokens = []
    for _ in range(3):
        fence = lock.acquire()["fence"]
        value = VALUE.fullmatch(node[0].get(name) or b"")
        assert value, "the value has another form"
        assert (int(value["fence"]), value["label"]) == (fence, b"worker: 7")
        tokens.append(value["token"])
        lock.release()
    assert len(set(tokens)) == len(tokens), "a token is used again"


@every_face
def test_busy_and_down_are_different(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(own_nodes.urls, node_timeout_ms=PATIENT_MS)
    holder, other = client.lock(name), client.lock(name)
    holder.acquire()
    assert not other.try_acquire()
    assert other.denied(other.start_acquire(timeout_ms=SLACK_MS))
    for server in list(own_nodes)[:3]:
        server.kill()
    for start in (other.start_try_acquire, partial(other.start_acquire, timeout_ms=100)):
        with pytest.raises(LockError) as down:
            start().result()
        assert down.value.code == "unavailable"
        assert len(down.value.nodes) == len(own_nodes)


@every_face
def test_too_few_answers_do_not_deny(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    """One node of five is down and two hang. The other two say that the lock is held, and are not a quorum."""
    client = drivers.start(face).client(own_nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=SLACK_MS)
    holder, other = client.lock(name), client.lock(name)
    connect_to_all(client, own_nodes, name)
    holder.acquire()
    down, *hung = list(own_nodes)[:3]
    down.kill()
    assert not other.try_acquire()
    for server in hung:
        server.freeze()
    for start in (other.start_try_acquire, partial(other.start_acquire, timeout_ms=2 * SLACK_MS)):
        with pytest.raises(LockError) as refused:
            start().result()
        assert refused.value.code == "unavailable"


@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.cancels])
def test_cancelled_at_any_moment_leaves_nothing(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """The call is cancelled before, during or after its attempt, and in no case do others have to wait."""
    driver = drivers.start(face)
    client = driver.client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    others = drivers.start("rust").client(nodes.urls, node_timeout_ms=PATIENT_MS)
    for i in range(CANCELLED):
        lock, other = client.lock(f"{name}/{i}"), others.lock(f"{name}/{i}")
        acquiring = lock.start_acquire()
        lock.cancel(acquiring)
        if not acquiring.result().get("cancelled"):
            lock.release()
        assert not other.denied(other.start_acquire(timeout_ms=PATIENT_MS)), "a cancelled acquire has left its key"
        other.release()
