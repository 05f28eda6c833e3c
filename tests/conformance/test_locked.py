"""Whether anybody holds a lock, asked of the nodes, on every face."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Drivers
from conformance.driver import FACES, LockError
from conformance.story import connect_to_all, fence_key
from support.clock import until
from support.servers import Cluster

every_face = pytest.mark.parametrize("face", FACES)
LONG_TTL_MS = 60_000


@every_face
def test_held_or_free(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """The holder and others see the same, and looking changes nothing."""
    driver = drivers.start(face)
    lock, other = (driver.client(nodes.urls).lock(name) for _ in range(2))
    assert not lock.is_locked()
    assert not nodes.has(name), "looking leaves no key"
    assert not nodes.has(fence_key(name)), "looking leaves no key"
    lock.acquire()
    assert lock.is_locked()
    assert other.is_locked()
    lock.release()
    until(lambda: not other.is_locked(), "it is free again")
    assert other.try_acquire()
    other.release()


@every_face
def test_keys_of_others_are_in_the_way(drivers: Drivers, five_nodes: Cluster, face: str, name: str) -> None:
    """A key of another library counts, and keys that leave a quorum do not."""
    lock = drivers.start(face).client(five_nodes.urls).lock(name)
    for taken, server in enumerate(five_nodes, 1):
        server.command("SET", name, "another library's token")
        assert lock.is_locked() == (taken >= 3)
    for left, server in zip((4, 3, 2, 1, 0), five_nodes, strict=True):
        server.command("DEL", name)
        assert lock.is_locked() == (left >= 3)


@every_face
def test_too_few_answers(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    """Nodes that are away do not count for either side, and the error has every answer."""
    driver = drivers.start(face)
    client = driver.client(own_nodes.urls, ttl_ms=LONG_TTL_MS)
    lock, free = client.lock(name), client.lock(f"{name}, free")
    # A node without a connection is not asked once a quorum has granted.
    connect_to_all(client, own_nodes, name)
    lock.acquire()
    until(lambda: all(node.has(name) for node in own_nodes), "every node has granted it")
    for away in (own_nodes[0], own_nodes[1]):
        away.kill()
    assert lock.is_locked()
    assert not free.is_locked()
    own_nodes[2].kill()
    for undecided in (lock, free):
        with pytest.raises(LockError) as raised:
            undecided.is_locked()
        assert raised.value.code == "unavailable"
        answers = [answer for _, answer in raised.value.nodes]
        assert answers[3:] == ["held" if undecided is lock else "free"] * 2
        assert not {"held", "free"} & {*answers[:3]}


@pytest.mark.parametrize("face", FACES)
def test_a_node_that_may_have_forgotten_the_lock(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    """Its word that the lock is free does not count, or the lock would seem free while it is held."""
    node = start_nodes(1)
    client = drivers.start(face).client(node.urls, ttl_ms=LONG_TTL_MS)
    lock, other = client.lock(name, auto_renew=False), client.lock(name)
    lock.acquire()
    node[0].wipe()

    def is_unknown() -> bool:
        """A new connection tells that the node has restarted."""
        with pytest.raises(LockError) as raised:
            other.is_locked()
        assert raised.value.code == "unavailable"
        return "restart" in raised.value.nodes[0][1]

    until(is_unknown, "the node is in quarantine")
    assert lock.state()["held"]


@every_face
def test_the_older_protocol_does_not_tell(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """Its keys stay after they are out of date."""
    lock = drivers.start(face).client(node.urls).lock(name, protocol="setnx")
    with pytest.raises(LockError) as raised:
        lock.is_locked()
    assert raised.value.code == "invalid_argument"
