"""One attempt to acquire: what counts, what it reports, and what it leaves behind, on every face."""

from __future__ import annotations

import re
from functools import partial

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, LockError
from conformance.history import SLACK_MS
from conformance.story import connect_to_all
from support.servers import Cluster

LONG_TTL_MS = 60_000
"""A ttl longer than any test case, so that a key that is left behind blocks others."""
PATIENT_MS = 8 * SLACK_MS
"""A node_timeout that nodes keep however slow the machine is."""
CANCELLED = 20

VALUE = re.compile(rb"(?P<token>[0-9a-f]{32}):(?P<fence>[0-9]+):(?P<label>.*)")


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
