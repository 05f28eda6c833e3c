"""Locks that nobody else gets for some time after they were acquired, even if they are released, on every face."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, Client, Json, Lock, LockError
from conformance.history import SLACK_MS
from conformance.story import Asked, connect_to_all, slot_key, within
from conformance.test_loss import ended
from conformance.test_waiting import wait
from support.clock import until
from support.proxy import HOLD, Proxy
from support.servers import Cluster

LONG_TTL_MS = 60_000
"""A ttl longer than any test case, so that a key that is gone was released."""
TTL_MS = 2000
AT_LEAST_MS = 2500
"""Longer than a slow machine takes to see that it is kept."""
LONG_MS = 30_000
"""A least time longer than what test cases wait for."""
IMPATIENT_MS = 300
"""A `node_timeout` that a test case waits for."""

Make = Callable[..., Lock]


def plain(client: Client, name: str, **options: object) -> Lock:
    """An ordinary lock."""
    return client.lock(name, **options)


def slot(client: Client, name: str, **options: object) -> Lock:
    """The only slot of a semaphore."""
    return client.semaphore(name, 1, **options)


every_shape = pytest.mark.parametrize("make", [plain, slot])


def key_of(make: Make, name: str) -> str:
    """The key of the lock."""
    return name if make is plain else slot_key(name, 0)


def assert_kept(won: Json, next_won: Json) -> None:
    """Checks that the next holder came when the least time was over, and not much later."""
    # Where in the call it was acquired is not known.
    assert next_won["return_ns"] >= won["invoke_ns"] + AT_LEAST_MS * 1e6, "it was free too soon"
    assert next_won["return_ns"] <= won["return_ns"] + (AT_LEAST_MS + SLACK_MS) * 1e6, "it was kept for too long"


def give_up(lock: Lock, how: str) -> None:
    """Releases it, or leaves the block that holds it."""
    if how == "released":
        lock.release()
    else:
        lock.leave()


@every_face
@every_shape
@pytest.mark.parametrize("how", ["released", "left"])
def test_nobody_else_gets_it_until_then(
    drivers: Drivers, nodes: Cluster, face: str, make: Make, how: str, name: str
) -> None:
    """The release succeeds at once, and a waiter gets the lock when the time is over."""
    client, others = (drivers.start(each).client(nodes.urls, ttl_ms=LONG_TTL_MS) for each in (face, "rust"))
    lock, other = make(client, name, at_least_ms=AT_LEAST_MS), make(others, name)
    won = lock.acquire()
    waiting = wait(nodes, other)
    with within(0):
        give_up(lock, how)
    state = lock.state()
    assert (state["held"], state["remaining_ms"]) == (False, 0)
    assert not make(client, name).try_acquire(), "it was free too soon"
    next_won = waiting.result()
    assert_kept(won, next_won)
    assert next_won["fence"] > won["fence"]


@every_face
@every_shape
def test_it_may_be_longer_than_the_ttl(drivers: Drivers, nodes: Cluster, face: str, make: Make, name: str) -> None:
    """It is kept until then, also after renewals and an extension, and by nodes that got it back."""
    key = key_of(make, name)
    client, others = (drivers.start(each).client(nodes.urls, ttl_ms=TTL_MS) for each in (face, "rust"))
    connect_to_all(client, nodes, name)
    lock = make(client, name, at_least_ms=2 * AT_LEAST_MS)
    won = lock.acquire()
    until(lambda: all(server.has(key) for server in nodes), "every node has it")
    lock.extend(ttl_ms=TTL_MS)
    if len(nodes) > 1:
        nodes[0].command("DEL", key)
        until(lambda: nodes[0].has(key), "it has the lock again")
    lock.release()
    assert not make(others, name).try_acquire(), "it was free too soon"
    next_won = make(others, name).acquire()
    assert next_won["return_ns"] >= won["invoke_ns"] + 2 * AT_LEAST_MS * 1e6, "it was free too soon"
    assert next_won["return_ns"] <= won["return_ns"] + (2 * AT_LEAST_MS + SLACK_MS) * 1e6, "it was kept for too long"
    assert next_won["fence"] > won["fence"]


@every_face
@every_shape
def test_the_holder_is_not_held_from_the_release_on(
    drivers: Drivers, nodes: Cluster, face: str, make: Make, name: str
) -> None:
    """A second release changes nothing, and the same object does not get the lock sooner than others."""
    key = key_of(make, name)
    lock = make(drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS), name, at_least_ms=AT_LEAST_MS)
    won = lock.acquire()
    lock.release()
    if FACES[face].lock_objects:
        for call in (lock.check, lock.extend):
            with pytest.raises(LockError) as over:
                call()
            assert over.value.code == "not_held"
        lock.release()
    until(lambda: all(server.left_ms(key) <= AT_LEAST_MS for server in nodes), "every node keeps it for the rest")
    assert nodes.has(key)
    assert lock.is_locked()
    assert not lock.try_acquire()
    again = lock.acquire()
    assert_kept(won, again)
    assert again["fence"] > won["fence"]


@every_face
@every_shape
def test_no_key_lives_longer_for_it(drivers: Drivers, nodes: Cluster, face: str, make: Make, name: str) -> None:
    """Where a key would have expired sooner, it still does."""
    key, short_ms = key_of(make, name), 5000
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, auto_renew=False)
    connect_to_all(client, nodes, name)
    lock = make(client, name, at_least_ms=LONG_MS)
    lock.acquire()
    until(lambda: all(server.has(key) for server in nodes), "every node has granted it")
    for server in nodes:
        server.command("PEXPIRE", key, short_ms)
    before = [server.get(key) for server in nodes]
    lock.release()

    def is_left() -> bool:
        """Every node that has got the release shows it by another value."""
        return all(server.get(key) not in {None, value} for server, value in zip(nodes, before, strict=True))

    until(is_left, "every node has got the release")
    assert all(server.left_ms(key) <= short_ms for server in nodes), "a key lives longer than it did"


@every_face
@every_shape
def test_an_extension_that_comes_late_changes_nothing(
    drivers: Drivers, node: Cluster, face: str, make: Make, name: str
) -> None:
    """It is held back on its way, and the release uses another connection."""
    key, server = key_of(make, name), node[0]
    with Proxy(server) as proxy:
        client = drivers.start(face).client([proxy.url], ttl_ms=LONG_TTL_MS, node_timeout_ms=IMPATIENT_MS)
        connect_to_all(client, node, name)
        lock = make(client, name, auto_renew=False, at_least_ms=LONG_MS)
        lock.acquire()
        held = list(proxy.links)
        for link in held:
            link.requests(HOLD)
        with pytest.raises(LockError) as late:
            lock.extend()
        assert late.value.code == "unavailable"
        until(lambda: sum(link.requests_waiting for link in held), "the extension is on its way")
        for link in held:
            # Otherwise the release would follow the extension, and undo what it does.
            link.reset()
        # The call may end before the release has got through.
        with contextlib.suppress(LockError):
            lock.release()
        until(lambda: server.left_ms(key) <= LONG_MS, "the release has arrived")
        before, asked = server.get(key), Asked(node)
        proxy.let_go()
        until(asked.count, "the extension has arrived")
        until(lambda: not sum(link.requests_waiting for link in held), "all of it has")
        assert 0 < server.left_ms(key) <= LONG_MS, "it has extended what was released"
        assert server.get(key) == before


@every_face
@every_shape
def test_a_lost_lock_is_not_kept(drivers: Drivers, five_nodes: Cluster, face: str, make: Make, name: str) -> None:
    """Its keys are gone from a quorum, and are released on the others at once."""
    key = key_of(make, name)
    client = drivers.start(face).client(five_nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=5 * SLACK_MS)
    connect_to_all(client, five_nodes, name)
    lock = make(client, name, auto_renew=False, at_least_ms=LONG_MS)
    lock.acquire()
    until(lambda: all(server.has(key) for server in five_nodes), "every node has granted it")
    for server in list(five_nodes)[:3]:
        server.command("DEL", key)
    with pytest.raises(LockError) as lost:
        lock.extend()
    assert (lost.value.code, lost.value.reason) == ("lost", "deleted")
    assert ended(lock) == "deleted"
    until(lambda: not five_nodes.has(key), "the others are free at once", limit_s=SLACK_MS / 1000)


@every_face
def test_a_lost_attempt_is_not_kept(drivers: Drivers, five_nodes: Cluster, face: str, name: str) -> None:
    """Another has a quorum. What a minority has granted is given back at once."""
    client = drivers.start(face).client(five_nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=5 * SLACK_MS)
    connect_to_all(client, five_nodes, name)
    for server in list(five_nodes)[:3]:
        server.command("SET", name, "another library's token")
    lock = client.lock(name, at_least_ms=LONG_MS)
    assert not lock.try_acquire()
    assert not any(server.has(name) for server in list(five_nodes)[3:])


@every_face
@every_shape
@pytest.mark.parametrize("least_ms", [TTL_MS // 2, 2 * TTL_MS], ids=["shorter than the ttl", "longer than the ttl"])
def test_a_crash_keeps_it_for_the_longer_of_both(
    drivers: Drivers, nodes: Cluster, face: str, make: Make, least_ms: int, name: str
) -> None:
    kept_ms = max(TTL_MS, least_ms)
    client, others = (drivers.start(each).client(nodes.urls) for each in (face, "rust"))
    lock = make(client, name, ttl_ms=TTL_MS, at_least_ms=least_ms, auto_renew=False)
    won = lock.acquire()
    waiting = wait(nodes, make(others, name))
    lock.driver.kill()
    freed_ns = waiting.result()["return_ns"]
    assert won["invoke_ns"] + kept_ms * 1e6 <= freed_ns <= won["return_ns"] + (kept_ms + SLACK_MS) * 1e6


@every_face
def test_the_default_of_a_client(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """It is that of its locks and slots. Locks of several names have none."""
    client = drivers.start(face).client(node.urls, ttl_ms=LONG_TTL_MS, at_least_ms=LONG_MS)
    for lock, key in ((client.lock(name), name), (client.semaphore(name, 1), slot_key(name, 0))):
        lock.acquire()
        lock.release()
        assert 0 < node[0].left_ms(key) <= LONG_MS
    names = [f"{{{name}}}/{letter}" for letter in "ab"]
    several = client.lock_all(names)
    several.acquire()
    several.release()
    assert not any(node.has(each) for each in names)
