"""A minority of nodes must not matter, whatever it does or keeps, on every face."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import Client, Lock
from conformance.history import SLACK_MS
from conformance.story import connect_to_all, fence_key, several, was_asked
from support.clock import until
from support.servers import Cluster

Shape = Callable[[str], list[str]]
either_shape = pytest.mark.parametrize("shape", [lambda name: [name], several], ids=["lock", "several"])
HOUR_US = 3_600_000_000
ANOTHERS = b"another library's token"


def lock_of(client: Client, names: list[str]) -> Lock:
    """A lock of one name, or of several."""
    return client.lock_all(names) if len(names) > 1 else client.lock(names[0])


@every_face
@either_shape
def test_lost_attempt_leaves_nothing(drivers: Drivers, five_nodes: Cluster, shape: Shape, face: str, name: str) -> None:
    """The key on a minority is deleted at once and does not wait for the ttl, or two losers could block each other."""
    names = shape(name)
    taken = names[len(names) // 2]
    # The attempt ends when every node has answered its clean-up, for which even a slow machine has the time.
    client = drivers.start(face).client(five_nodes.urls, ttl_ms=60_000, node_timeout_ms=5 * SLACK_MS)
    lock = lock_of(client, names)
    connect_to_all(client, five_nodes, name)
    majority, minority = list(five_nodes)[:3], list(five_nodes)[3:]
    for server in majority:
        server.command("SET", taken, ANOTHERS)

    def tried_everywhere() -> bool:
        """A node that had no request yet when the others had decided is not asked at all."""
        assert not lock.try_acquire()
        assert not any(server.get(each) for server in minority for each in names), "the minority is not free again"
        # The fence keys stay: the nodes were asked, and the lock is free again.
        return all(was_asked(minority, each) for each in names)

    until(tried_everywhere, "the minority was asked too")
    for server in majority:
        assert [each for each in names if server.has(each)] == [taken]
        assert server.get(taken) == ANOTHERS
        server.command("DEL", taken)
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
@either_shape
def test_fence_of_one_node_is_kept_by_a_quorum(
    drivers: Drivers, own_nodes: Cluster, shape: Shape, face: str, name: str
) -> None:
    """A node whose fence was ahead of the others', for one name, goes away; no later fence of any name is smaller."""
    names = shape(name)
    client = drivers.start(face).client(own_nodes.urls, restart_delay_ms=0)
    lock = lock_of(client, names)
    first = lock.acquire()["fence"]
    lock.release()
    until(lambda: not any(own_nodes.has(each) for each in names), "the last node has released it")
    ahead = first + HOUR_US
    own_nodes[0].command("SET", fence_key(names[-1]), ahead)
    # This puts the node that is ahead into the quorum.
    for away in (own_nodes[3], own_nodes[4]):
        away.kill()
    second = lock.acquire()["fence"]
    assert second > ahead
    lock.release()
    own_nodes[0].kill()
    for away in (own_nodes[3], own_nodes[4]):
        away.restart()
    for each in names:
        assert client.lock(each).acquire()["fence"] > second, f"a quorum did not keep the fence of {each}"
