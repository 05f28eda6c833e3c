"""Waiting until a lock is free, without taking it, on every face."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, LockError
from conformance.story import connect_to_all, within
from conformance.test_waiting import calls, scripts_run
from support.clock import until
from support.servers import Cluster

LONG_TTL_MS = 60_000
SHORT_MS = 1_500
"""A timeout that leaves a slow machine time for an answer."""
WAITERS = 20
QUIET_S = 0.5


def questions(nodes: Cluster) -> int:
    """How often the nodes were asked for anything."""
    return scripts_run(nodes) + sum(calls(server, "get") for server in nodes)


@every_face
def test_it_waits_without_taking(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Many who wait cost what one does, and a release wakes all of them."""
    holder, client = (drivers.start(each).client(nodes.urls, ttl_ms=LONG_TTL_MS) for each in ("rust", face))
    connect_to_all(client, nodes, name)
    assert client.wait_free(name)
    lock = holder.lock(name)
    lock.acquire()
    assert not client.wait_free(name, 0)
    assert not client.wait_free(name, SHORT_MS)
    before = questions(nodes)
    waiting = [client.start_wait_free(name) for _ in range(WAITERS)]
    until(lambda: questions(nodes) > before, "it asks")
    time.sleep(QUIET_S)
    assert all(call.pending for call in waiting)
    assert client.inspect(name)["waiting"] == 0, "no place in the queue is taken"
    before = questions(nodes)
    with within(0):
        lock.release()
        assert all(call.result()["free"] for call in waiting)
    assert questions(nodes) - before < WAITERS * len(nodes), "one asks for all"
    until(lambda: not nodes.has(name), "the name is free")
    assert client.lock(name).try_acquire()


@every_face
def test_a_wait_that_ends_otherwise(
    drivers: Drivers, start_nodes: Callable[[int], Cluster], face: str, name: str
) -> None:
    own_nodes = start_nodes(3)
    client = drivers.start(face).client(own_nodes.urls)
    for server in own_nodes:
        server.command("SET", name, "another library's token", "PX", 1_000)
    assert client.wait_free(name), "it expires"
    for server in own_nodes:
        server.command("SET", name, "another library's token")
    if FACES[face].cancels:
        waiting = client.start_wait_free(name)
        client.driver.call("cancel", call=waiting.id)
        assert waiting.result()["cancelled"]
    before = questions(own_nodes)
    waiting = client.start_wait_free(name)
    until(lambda: questions(own_nodes) > before, "it asks")
    client.close()
    with pytest.raises(LockError) as ended:
        waiting.result()
    assert ended.value.code == "closed"
    own_nodes[0].freeze()
    own_nodes[1].freeze()
    client = drivers.start(face).client(own_nodes.urls)
    with pytest.raises(LockError) as ended:
        client.wait_free(name, timeout_ms=50)
    assert {(node, "no answer within 50ms") for node in own_nodes.urls[:2]} <= set(ended.value.nodes)
    own_nodes[0].kill()
    own_nodes[1].kill()
    with pytest.raises(LockError) as ended:
        client.wait_free(name)
    assert ended.value.code == "unavailable"
