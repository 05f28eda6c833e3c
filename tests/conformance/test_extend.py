"""What an extension may do and may not do, on every face."""

from __future__ import annotations

import contextlib
import time

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, Call, LockError
from conformance.history import SLACK_MS
from conformance.story import connect_to_all, fence_key, remembering, within
from support.clock import until
from support.proxy import HOLD, Network
from support.servers import Cluster

TTL_MS = 2000
SHORT_TTL_MS = 500
LONG_TTL_MS = 60_000
FENCE_TTL_MS = 600_000
MAX_HOLD_MS = 3000
ROUNDS = 20
HOUR_US = 3_600_000_000
PATIENT_MS = 5 * SLACK_MS
"""A node_timeout that nodes keep however slow the machine is."""


@every_face
def test_failed_extension_keeps_the_lock(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    """The state of nodes that do not answer is unknown, so the lock is valid for as long as it was before."""
    client = drivers.start(face).client(own_nodes.urls, node_timeout_ms=SLACK_MS)
    lock = client.lock(name, ttl_ms=LONG_TTL_MS, auto_renew=False)
    won = lock.acquire()
    hung = list(own_nodes)[:3]
    for server in hung:
        server.freeze()
    with pytest.raises(LockError) as failed:
        lock.extend()
    assert failed.value.code == "unavailable"
    assert len(failed.value.nodes) == len(own_nodes)
    lock.check()
    state = lock.state()
    assert state["held"]
    assert 0 < state["remaining_ms"] <= won["remaining_ms"]
    for server in hung:
        server.thaw()

    def extended() -> bool:
        # The nodes must not be busy any more with requests from the time when they were hung.
        with contextlib.suppress(LockError):
            lock.extend()
        return bool(lock.state()["remaining_ms"] > state["remaining_ms"])

    until(extended, "it is extended by nodes that answer again")
    lock.release()


@every_face
def test_extension_after_the_end_creates_nothing(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    lock = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=SHORT_TTL_MS, auto_renew=False)
    lock.acquire()
    until(lambda: not nodes.has(name), "it has run out")
    with pytest.raises(LockError) as late:
        lock.extend()
    assert (late.value.code, late.value.reason) == ("lost", "expired")
    assert not nodes.has(name), "the extension has acquired it"
    assert not lock.state()["held"]


@every_face
def test_extension_does_not_count_a_later_grant(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """An acquire that arrives late gets a larger fence, and there may have been another holder before it."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS, auto_renew=False)
    lock = client.lock(name)
    connect_to_all(client, nodes, name)
    fence = lock.acquire()["fence"]
    until(lambda: all(server.get(name) for server in nodes), "every node has granted it")
    for server in nodes:
        token, _, rest = (server.get(name) or b"").partition(b":")
        label = rest.partition(b":")[2]
        server.command("SET", name, b"%b:%d:%b" % (token, fence + 2, label), "PX", LONG_TTL_MS // 2)
    with pytest.raises(LockError) as lost:
        lock.extend()
    assert lost.value.code == "lost", "it has extended what was granted after another holder"
    for server in nodes:
        assert server.left_ms(name) <= LONG_TTL_MS // 2


@every_face
@pytest.mark.parametrize("missed", [False, True], ids=["granted it late", "missed the acquire"])
def test_nodes_that_are_ahead_count_once_others_have_caught_up(
    drivers: Drivers, five_nodes: Cluster, network: Network, face: str, missed: bool, name: str
) -> None:
    """Two nodes remember a larger fence, so the lock is won without them. Then two of the other nodes go away."""
    client = drivers.start(face).client(network.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS, auto_renew=False)
    ahead = list(five_nodes)[3:]
    if not missed:
        connect_to_all(client, five_nodes, name)
    for server in ahead:
        server.command("SET", fence_key(name), time.time_ns() // 1000 + HOUR_US)
    lock = client.lock(name)
    for proxy in network.proxies[3:]:
        proxy.refuse(True) if missed else proxy.replies(HOLD)
    fence = lock.acquire()["fence"]
    if not missed:
        until(lambda: all(server.get(name) for server in five_nodes), "every node has granted it")
    for proxy in network.proxies[3:]:
        proxy.refuse(False)
    network.let_go()

    def shorten() -> None:
        for server in ahead:
            server.command("PEXPIRE", name, LONG_TTL_MS // 2)

    def count() -> bool:
        """Whether the nodes that are ahead have extended the lock, or taken it back."""
        return min(server.left_ms(name) for server in ahead) > LONG_TTL_MS // 2

    def have_caught_up() -> bool:
        lock.extend()
        counts = count()
        knows = remembering(five_nodes, name, fence + HOUR_US // 2) == len(five_nodes)
        assert knows or not counts, "they count before the others remember the larger fence"
        return counts

    shorten()
    until(have_caught_up, "the nodes that are ahead count")
    for proxy in network.proxies[:2]:
        proxy.refuse(True)
        proxy.reset()
    shorten()
    lock.extend()
    assert count()
    assert lock.state()["fence"] == fence
    lock.release()
    until(lambda: not any(server.get(name) for server in list(five_nodes)[2:]), "it is released")


@every_face
def test_release_ends_every_extension(
    drivers: Drivers, five_nodes: Cluster, network: Network, face: str, name: str
) -> None:
    """Unfinished requests of an extension, also a restore, have no effect, and the release does not wait for them."""
    driver = drivers.start(face)
    options = {"ttl_ms": LONG_TTL_MS, "node_timeout_ms": PATIENT_MS, "auto_renew": False}
    client = driver.client(network.urls, **options)
    connect_to_all(client, five_nodes, name)
    locks = [client.lock(f"{name}/{i}") for i in range(ROUNDS)]
    for lock in locks:
        # The answers of these nodes come after the acquire has ended, and the release needs their votes.
        for proxy in network.proxies[3:]:
            proxy.replies(HOLD)
        lock.acquire()
        until(lambda: all(server.get(lock.name) for server in five_nodes), "every node has granted it")  # noqa: B023
        network.let_go()
        for server in list(five_nodes)[:2]:
            server.command("DEL", lock.name)
        extending = driver.start("extend", lock=lock.handle)
        if FACES[face].lock_objects:
            with within(0):
                lock.release()
            # Either may come first. Once the release has begun, the lock is not held, and no other client has taken it.
            assert code(extending) in {None, "not_held"}
        else:
            # There the types forbid a release during an extend, but not during the requests that it leaves behind.
            extending.result()
            lock.release()
    until(lambda: not any(five_nodes.has(lock.name) for lock in locks), "no key of a released lock is there")
    last = client.lock(name)
    last.acquire()
    last.release()
    until(lambda: not five_nodes.has(name), "the last node has released the last one")
    assert not any(five_nodes.has(lock.name) for lock in locks), "a key has come back after the release"


def code(call: Call) -> str | None:
    """The code of the error that a call ended with, if it failed."""
    try:
        call.result()
    except LockError as error:
        return error.code
    return None


@every_face
def test_extension_does_not_pass_max_hold(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(nodes.urls)
    lock = client.lock(name, ttl_ms=TTL_MS, node_timeout_ms=TTL_MS - 100, max_hold_ms=MAX_HOLD_MS)
    won = lock.acquire()
    extended = lock.extend(ttl_ms=LONG_TTL_MS)
    end_ns = won["return_ns"] + MAX_HOLD_MS * 1e6
    assert extended["read_ns"] + extended["remaining_ms"] * 1e6 <= end_ns, "extended past max_hold"
    assert lock.start_wait_lost(limit_ms=10_000).result()["lost"]["reason"] == "max_hold"
    # The nodes would keep it for far longer, but the lock is released when it ends.
    assert client.lock(name).acquire(timeout_ms=5 * SLACK_MS)["fence"] > won["fence"]


@every_face
def test_fences_are_kept_while_a_lock_is(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """A node remembers a fence for `fence_ttl` after the last extension, and not for ever."""
    client = drivers.start(face).client(nodes.urls, node_timeout_ms=PATIENT_MS, auto_renew=False)
    lock = client.lock(name, fence_ttl_ms=FENCE_TTL_MS)
    connect_to_all(client, nodes, name)
    lock.acquire()
    until(lambda: all(server.get(name) for server in nodes), "every node has granted it")
    assert all(0 < kept <= FENCE_TTL_MS for kept in kept_ms(nodes, name)), "a fence is kept for ever, or not at all"
    for server in nodes:
        server.command("PEXPIRE", fence_key(name), LONG_TTL_MS)
    for call in (lock.extend, lock.release):
        call()
        kept = kept_ms(nodes, name)
        assert sum(LONG_TTL_MS < each <= FENCE_TTL_MS for each in kept) > len(nodes) // 2, "no quorum keeps the fence"


def kept_ms(nodes: Cluster, name: str) -> list[int]:
    """For how long every node remembers the fence of a name."""
    return [server.left_ms(fence_key(name)) for server in nodes]
