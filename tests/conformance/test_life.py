"""The life of one lock, on every face."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, DriverError, LockError, table
from conformance.history import SLACK_MS
from conformance.story import Asked, connect_to_all
from support.clock import now_ns, until
from support.proxy import Faults, Proxy
from support.servers import Cluster

TTL_MS = 10_000
DENIED_MS = 1500
"""A timeout in which a slow machine gets its answers too; without any, it would not know that others have the lock."""
DRIFT_MS = TTL_MS / 100 + 2
NODE_TIMEOUT_MS = 100
SLOW_MS = 1000
"""Much longer than a release waits for a node."""
SECRET = "the token of another library"
CANCELLED = 60


@every_face
def test_hello(drivers: Drivers, face: str) -> None:
    hello = drivers.start(face).hello
    assert hello["protocol"] == 1
    assert (hello["language"], hello["face"]) == (FACES[face].language, face)
    assert sorted(hello["codes"]) == sorted(case["code"] for case in table("errors")["cases"])


@every_face
def test_acquire_extend_check_release(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    lock = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=TTL_MS)
    assert not lock.state()["held"]
    won = lock.acquire()
    assert won["held"]
    assert won["fence"] > 0
    assert 0 < won["remaining_ms"] <= TTL_MS - DRIFT_MS
    lock.check()
    state = lock.state()
    assert (state["held"], state["fence"]) == (True, won["fence"])
    assert nodes.has(name)

    extended = lock.extend(ttl_ms=2 * TTL_MS)
    assert TTL_MS < extended["remaining_ms"] <= 2 * (TTL_MS - TTL_MS / 100) - 2
    assert lock.extend()["remaining_ms"] > TTL_MS, "the new ttl stays in force"

    lock.release()
    # The call ends with a quorum's answers; the other answers come a moment later.
    until(lambda: not nodes.has(name), "the last node has released it")
    assert (lock.state()["held"], lock.state()["remaining_ms"]) == (False, 0)
    assert lock.acquire()["fence"] > won["fence"]


@every_face
def test_misuse(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    lock = drivers.start(face).client(node.urls).lock(name)
    if not FACES[face].lock_objects:
        # There the types prevent it, so the test can only ask whether the driver reports it.
        with pytest.raises(DriverError, match="no guard"):
            lock.release()
        return
    for call in (lock.check, lock.extend, lock.release):
        with pytest.raises(LockError) as never:
            call()
        assert never.value.code == "not_held"
        assert never.value.name == name
    lock.acquire()
    with pytest.raises(LockError) as twice:
        lock.acquire()
    assert twice.value.code == "already_held"
    # Often it is an object of a module, which many requests share.
    assert "make a lock for each use: `" in twice.value.message
    lock.check()
    lock.release()
    lock.release()
    for call in (lock.check, lock.extend):
        with pytest.raises(LockError) as over:
            call()
        assert over.value.code == "not_held"


@every_face
def test_denied(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(nodes.urls, node_timeout_ms=SLACK_MS)
    holder, other = client.lock(name), client.lock(name, timeout_ms=DENIED_MS)
    holder.acquire()
    assert not other.try_acquire()
    for timeout, limit_ms in (({}, DENIED_MS), ({"timeout_ms": 0}, 0), ({"timeout_ms": SLACK_MS}, SLACK_MS)):
        begin = time.monotonic()
        assert other.denied(other.start_acquire(**timeout))
        assert limit_ms <= (time.monotonic() - begin) * 1000 <= limit_ms + SLACK_MS
    holder.release()
    assert other.try_acquire()


@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.cancels])
def test_cancelled(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    driver = drivers.start(face)
    client = driver.client(nodes.urls)
    holder, waiter = client.lock(name), client.lock(name)
    holder.acquire()
    asked = Asked(nodes)
    waiting = waiter.start_acquire()
    asked.wait()
    assert waiting.pending
    waiter.cancel(waiting)
    assert waiting.result()["cancelled"]
    holder.release()
    until(lambda: not nodes.has(name), "nobody holds the lock")
    # A cancelled call took nothing afterwards either: the next one gets the lock at once.
    assert client.lock(name).try_acquire()


@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.cancels])
@pytest.mark.parametrize("distance_ms", [0, 5])
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
def test_a_single_try_after_a_cancelled_acquire(
    drivers: Drivers, node: Cluster, waits: bool, distance_ms: int, face: str, name: str
) -> None:
    """It comes behind the release of what was cancelled, so it gets a lock that nobody else wants."""
    with Proxy(node[0]) as proxy:
        client = drivers.start(face).client([proxy.url], ttl_ms=TTL_MS, node_timeout_ms=5 * SLACK_MS)
        lock, other = client.lock(name), client.lock(name)
        lock.acquire()
        lock.release()
        proxy.replies(Faults(delay_s=distance_ms / 1000))
        for turn in range(CANCELLED):
            if waits:
                other.acquire()
            call = lock.start_acquire()
            if waits:
                other.release()
            lock.driver.start("cancel", call=call.id)
            cancelled = call.result()
            tried = other.start_try_acquire().result()
            if not cancelled.get("cancelled"):
                lock.release()
                continue
            assert tried["acquired"], f"denied in turn {turn}"
            other.release()


@every_face
@pytest.mark.parametrize("by", ["this process", "another process", "another library"])
@pytest.mark.parametrize("waits", [False, True], ids=["one try", "waits"])
def test_a_timeout_names_the_holder(
    drivers: Drivers, nodes: Cluster, waits: bool, by: str, face: str, name: str
) -> None:
    driver = drivers.start(face)
    holder = driver if by == "this process" else drivers.start("rust")
    has = holder.client(nodes.urls, label="the holder", ttl_ms=TTL_MS)
    if by == "another library":
        for server in nodes:
            server.command("SET", name, SECRET, "PX", TTL_MS)
    else:
        has.lock(name).acquire()
    lock = driver.client(nodes.urls, label="the waiter").lock(name, timeout_ms=DENIED_MS if waits else 0)
    error = lock.timeout()
    assert error.held_by_this_process == (by == "this process")
    assert error.holder_label == (None if by == "another library" else "the holder")
    assert error.holder_ttl_left_ms is not None
    assert TTL_MS / 2 < error.holder_ttl_left_ms <= TTL_MS
    owner = by if by == "this process" else "another owner"
    label = "" if by == "another library" else 'label "the holder", '
    assert f"held by {owner} ({label}ttl left " in error.message
    assert SECRET not in error.message


@every_face
def test_two_objects_on_one_name(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """In one process they exclude each other as in two processes, over one client or over two."""
    driver = drivers.start(face)
    client = driver.client(nodes.urls)
    first, second, third = client.lock(name), client.lock(name), driver.client(nodes.urls).lock(name)
    fences = [first.acquire()["fence"]]
    waiting = [(each, each.start_acquire()) for each in (second, third)]
    assert not client.lock(name).try_acquire()
    first.release()
    while waiting:
        until(lambda: not all(call.pending for _, call in waiting), "the next one gets the lock")
        ((lock, call),) = (each for each in waiting if not each[1].pending)
        waiting.remove((lock, call))
        fences.append(call.result()["fence"])
        lock.release()
    assert fences == sorted(set(fences))


@every_face
def test_names_that_are_no_text(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """The names differ in bytes that are not UTF-8, so they are two locks, and the keys are the names."""
    client = drivers.start(face).client(nodes.urls)
    names = [name.encode() + end for end in (b"\xfe", b"\xff")]
    locks = [client.lock(each) for each in names]
    for lock in locks:
        assert lock.try_acquire(), "another name was in its way"
        assert nodes.has(lock.name), "the key is not the name"
    for lock in locks:
        lock.release()


@every_face
def test_closed_client(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    driver = drivers.start(face)
    client, stranger = driver.client(nodes.urls), driver.client(nodes.urls)
    lock, waiter, kept = client.lock(name), client.lock(name), stranger.lock(f"{name} of another client")
    lock.acquire()
    kept.acquire()
    waiting = waiter.start_acquire()
    until(lambda: client.inspect(name)["waiting"], "it waits")
    client.close()
    assert not lock.state()["held"]
    # It waits for the majority.
    until(lambda: not nodes.has(name), "every node has released it")
    calls: list[Callable[[], object]] = [
        waiting.result,
        lambda: client.lock("new").acquire(),
        lambda: client.inspect(name),
    ]
    for call in calls:
        with pytest.raises(LockError, match="client is closed") as closed:
            call()
        assert closed.value.code == "closed"
    # Somebody else may have it since then.
    with pytest.raises(LockError, match="closed while it was held") as ended:
        lock.release()
    assert ended.value.code == "closed"
    # Other clients of the process live on.
    kept.extend()
    kept.release()
    again = stranger.lock(name)
    again.acquire()
    again.release()
    client.close()


@every_face
@pytest.mark.parametrize("n", [1, 5], ids=["one node", "five nodes"])
def test_a_client_is_closed_within_its_limit(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, n: int, name: str
) -> None:
    nodes = start_nodes(n)
    client = drivers.start(face).client(nodes.urls, ttl_ms=2000)
    lock = client.lock(name)
    lock.acquire()
    for node in nodes:
        node.freeze()
    begun = time.monotonic()
    client.close(limit_ms=300)
    assert (time.monotonic() - begun) * 1000 < 300 + SLACK_MS
    assert not lock.state()["held"]
    for node in nodes:
        node.thaw()
    # The background goes on.
    until(lambda: not nodes.has(name), "it is released")


@every_face
def test_a_client_that_has_time_is_closed_when_slow_nodes_have_answered(
    drivers: Drivers, own_nodes: Cluster, face: str, name: str
) -> None:
    client = drivers.start(face).client(own_nodes.urls, node_timeout_ms=NODE_TIMEOUT_MS)
    connect_to_all(client, own_nodes, name)
    client.lock(name).acquire()
    slow = list(own_nodes)[1:]
    for server in slow:
        server.freeze()
    began_ns, closing = now_ns(), client.start_close(limit_ms=TTL_MS)

    def has_waited() -> bool:
        assert closing.pending, "it has not waited for them"
        return now_ns() > began_ns + SLOW_MS * 1e6

    until(has_waited, "it waits")
    for server in slow:
        server.thaw()
    closing.result()
    assert sum(server.has(name) for server in own_nodes) <= len(own_nodes) // 2, "it has ended before their answers"
