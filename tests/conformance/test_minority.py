"""A minority of nodes must not matter, whatever it does or keeps, on every face."""

from __future__ import annotations

import time

import pytest

from conformance.conftest import Drivers
from conformance.driver import FACES
from conformance.history import SLACK_MS
from conformance.story import connect_to_all, fence_key, was_asked
from support.clock import until
from support.servers import Cluster

every_face = pytest.mark.parametrize("face", FACES)
HOUR_US = 3_600_000_000


@every_face
def test_lost_attempt_leaves_nothing(drivers: Drivers, five_nodes: Cluster, face: str, name: str) -> None:
    """The key on a minority is deleted at once and does not wait for the ttl, or two losers could block each other."""
    # The attempt ends when every node has answered its clean-up, for which even a slow machine has the time.
    client = drivers.start(face).client(five_nodes.urls, ttl_ms=60_000, node_timeout_ms=5 * SLACK_MS)
    lock = client.lock(name)
    connect_to_all(client, five_nodes, name)
    majority, minority = list(five_nodes)[:3], list(five_nodes)[3:]
    for server in majority:
        server.command("SET", name, "another library's token")

    def tried_everywhere() -> bool:
        """A node that had no request yet when the others had decided is not asked at all."""
        assert not lock.try_acquire()
        assert not any(server.get(name) for server in minority), "the minority is not free again"
        # The fence keys stay: the nodes were asked, and the lock is free again.
        return was_asked(minority, name)

    until(tried_everywhere, "the minority was asked too")
    assert all(server.get(name) == b"another library's token" for server in majority)
    for server in majority:
        server.command("DEL", name)
    lock.acquire()
    lock.release()


@every_face
def test_hung_minority_delays_nobody(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    """Three answers decide, so no call waits for the other two, however long their time-out."""
    node_timeout_ms = 3 * SLACK_MS
    client = drivers.start(face).client(own_nodes.urls)
    lock = client.lock(name, ttl_ms=60_000, node_timeout_ms=node_timeout_ms)
    for hung in (own_nodes[1], own_nodes[3]):
        hung.freeze()
    # The first call connects, to a quorum.
    for call, limit_ms in ((lock.acquire, 1000), (lock.extend, 0), (lock.release, 0)):
        began = time.monotonic()
        call()
        took_ms = (time.monotonic() - began) * 1000
        assert took_ms <= limit_ms + SLACK_MS, "it has waited for the hung minority"


@every_face
def test_fence_of_one_node_is_kept_by_a_quorum(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    """A node whose fence was ahead of the others' goes away; no later fence is smaller."""
    client = drivers.start(face).client(own_nodes.urls, restart_delay_ms=0)
    lock = client.lock(name)
    first = lock.acquire()["fence"]
    lock.release()
    until(lambda: not own_nodes.has(name), "the last node has released it")
    ahead = first + HOUR_US
    own_nodes[0].command("SET", fence_key(name), ahead)
    # This puts the node that is ahead into the quorum.
    for away in (own_nodes[3], own_nodes[4]):
        away.kill()
    second = lock.acquire()["fence"]
    assert second > ahead
    lock.release()
    own_nodes[0].kill()
    for away in (own_nodes[3], own_nodes[4]):
        away.restart()
    assert lock.acquire()["fence"] > second, "a quorum did not keep the fence"
