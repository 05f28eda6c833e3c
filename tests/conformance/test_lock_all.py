"""Several names at once: all of them or none, one fence for all, and no deadlock, on every face."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, Lock, LockError
from conformance.history import SLACK_MS, History
from conformance.story import connect_to_all, fence_key, several, within
from conformance.test_loss import ended
from conformance.test_waiting import wait
from support.clock import until
from support.servers import Cluster, Server

LONG_TTL_MS = 60_000
"""A ttl longer than any test case, so that a key that is gone was released."""
TTL_MS = 3000
"""A ttl of locks that stay held on a slow machine."""
PATIENT_MS = 5 * SLACK_MS
"""A node_timeout that nodes keep however slow the machine is."""
USES = 50
"""How often others use a free name, so that a waiter that takes single names meets it free."""
HOUR_US = 3_600_000_000
"""So many that a restoration that the first of them has begun is among what a node has executed."""
ROUNDS = 8
ANOTHERS = b"another library's token"


def free_on(server: Server, names: list[str]) -> bool:
    """Whether no name has a key there."""
    return not any(server.has(each) for each in names)


def free(nodes: Cluster, names: list[str]) -> bool:
    """Whether no name has a key anywhere."""
    return all(free_on(server, names) for server in nodes)


def held_on(server: Server, names: list[str]) -> bool:
    """Whether each name has a key there."""
    return all(server.has(each) for each in names)


def held(nodes: Cluster, names: list[str]) -> bool:
    """Whether each name has a key on every node."""
    return all(held_on(server, names) for server in nodes)


@every_face
def test_all_are_held_and_released_together(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    names = several(name)
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    lock = client.lock_all(names[::-1])
    assert not lock.is_locked()
    fence = lock.acquire()["fence"]
    assert lock.shown_names() == {"name": ", ".join(names), "names": names}
    assert lock.state()["slot"] is None
    others = [drivers.start("rust").client(nodes.urls).lock(each) for each in names]
    for each, other in zip(names, others, strict=True):
        assert client.inspect(each)["state"] == "held"
        assert not other.try_acquire(), f"{each} is not held"
    lock.check()
    assert lock.extend(ttl_ms=2 * LONG_TTL_MS)["remaining_ms"] > LONG_TTL_MS
    lock.release()
    until(lambda: free(nodes, names), "no node has a key")
    assert not lock.is_locked()
    for other in others:
        assert other.acquire()["fence"] > fence
        assert lock.is_locked(), "one of its names is held"
        other.release()
    until(lambda: not lock.is_locked(), "the last one is free")
    assert lock.acquire()["fence"] > max(other.fence or 0 for other in others)


@every_face
@pytest.mark.parametrize("taken", [0, 2], ids=["first", "last"])
def test_a_held_name_denies_all(drivers: Drivers, nodes: Cluster, face: str, taken: int, name: str) -> None:
    names = several(name)
    holder = drivers.start("rust").client(nodes.urls).lock(names[taken])
    holder.acquire()
    until(lambda: held(nodes, [names[taken]]), "every node has granted it")
    lock = drivers.start(face).client(nodes.urls).lock_all(names)
    assert not lock.try_acquire()
    assert lock.denied(lock.start_acquire(timeout_ms=SLACK_MS))
    assert lock.is_locked()
    rest = [each for each in names if each != names[taken]]
    assert free(nodes, rest), "it has taken what was free"
    assert not any(nodes.has(fence_key(each)) for each in rest)
    holder.check()
    holder.release()
    until(lock.try_acquire, "it gets all of them")
    lock.release()


@every_face
@pytest.mark.parametrize("last", [0, 2], ids=["first", "last"])
def test_a_waiter_holds_none_and_is_woken_by_the_last(
    drivers: Drivers, nodes: Cluster, face: str, last: int, name: str
) -> None:
    """Until the last name is free, others can use the names that are."""
    names = several(name)
    others = drivers.start("rust").client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    holders = [others.lock(each) for each in names]
    for holder in holders:
        holder.acquire()
    until(lambda: held(nodes, names), "every node has granted each name")
    lock = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS).lock_all(names)
    # It is free when the waiter asks for the first time, and another name becomes free later.
    early = 0 if last else 1
    holders[early].release()
    until(lambda: not nodes.has(names[early]), "it is free")
    waiting = wait(nodes, lock)
    for number, holder in enumerate(holders):
        if number != last:
            if number != early:
                holder.release()
            for _ in range(USES):
                assert holder.try_acquire(), "the waiter holds a name"
                holder.release()
    assert waiting.pending
    with within(0):
        holders[last].release()
        won = waiting.result()
    assert won["fence"] > max(holder.fence or 0 for holder in holders)
    lock.release()


@every_face
def test_overlapping_sets_never_deadlock(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Every two of them share a name, in opposite orders. All have their turns, and the history judges each name."""
    first, second, third = several(name)
    sets = [[first, second], [second, first], [second, third], [third, first], [first, second, third], [second]]
    clients = [drivers.start(each).client(nodes.urls, ttl_ms=LONG_TTL_MS) for each in (face, "rust", "python")]
    locks = [clients[number % 3].lock_all(names) for number, names in enumerate(sets)]

    def work(lock: Lock) -> list[int]:
        fences = []
        for _ in range(ROUNDS):
            fences.append(lock.acquire()["fence"])
            lock.check()
            lock.release()
        return fences

    with ThreadPoolExecutor(len(locks)) as pool:
        fences = list(pool.map(work, locks))
    assert all(each == sorted(set(each)) for each in fences)


@every_face
def test_one_name_is_the_ordinary_lock(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    lock, plain = client.lock_all([name, name], label="worker 7"), client.lock(name)
    fence = lock.acquire()["fence"]
    assert lock.shown_names() == {"name": name, "names": [name]}
    view = client.inspect(name)
    assert (view["state"], view["label"], view["slot"]) == ("held", "worker 7", None)
    assert not plain.try_acquire()
    lock.release()
    assert plain.acquire()["fence"] > fence


@every_face
@pytest.mark.parametrize("ahead", [0, 2], ids=["first", "last"])
def test_its_fence_is_larger_than_each_former_one(
    drivers: Drivers, nodes: Cluster, face: str, ahead: int, name: str
) -> None:
    """One of the names is far ahead of the others. Afterwards, all of them are."""
    names = several(name)
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    lock = client.lock_all(names)
    largest = lock.acquire()["fence"] + HOUR_US
    lock.release()
    until(lambda: free(nodes, names), "no node has a key")
    for server in nodes:
        server.command("SET", fence_key(names[ahead]), largest)
    fence = lock.acquire()["fence"]
    assert fence > largest
    lock.release()
    for each in names:
        plain = client.lock(each)
        assert plain.acquire()["fence"] > fence, f"the fence of {each} is not that of all"
        plain.release()
    assert lock.acquire()["fence"] > fence


@every_face
@pytest.mark.parametrize("gone", [0, 2], ids=["first", "last"])
def test_one_name_that_is_deleted_loses_all(drivers: Drivers, nodes: Cluster, face: str, gone: int, name: str) -> None:
    """On a quorum it is lost. What is left of the others is released, and nothing that is gone comes back."""
    names = several(name)
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    connect_to_all(client, nodes, name)
    lock = client.lock_all(names, auto_renew=False)
    lock.acquire()
    until(lambda: held(nodes, names), "every node has granted it")
    majority = list(nodes)[: len(nodes) // 2 + 1]
    for server in majority:
        server.command("DEL", names[gone])
    with pytest.raises(LockError) as lost:
        lock.extend()
    assert (lost.value.code, lost.value.reason, lost.value.name) == ("lost", "deleted", ", ".join(names))
    assert ended(lock) == "deleted"
    until(lambda: free(nodes, names), "what was left is released")
    assert lock.acquire()["fence"] > (lock.fence or 0) - 1


@every_face
@pytest.mark.parametrize("taken", [0, 2], ids=["first", "last"])
def test_one_name_that_another_has_loses_all(
    drivers: Drivers, history: History, nodes: Cluster, face: str, taken: int, name: str
) -> None:
    """The key of the other owner stays, and the keys that were its own do not."""
    history.rule("--no-exclusion")
    names = several(name)
    client, others = (drivers.start(each).client(nodes.urls, ttl_ms=LONG_TTL_MS) for each in (face, "rust"))
    for each in (client, others):
        connect_to_all(each, nodes, name)
    lock, other = client.lock_all(names, auto_renew=False), others.lock(names[taken])
    lock.acquire()
    until(lambda: held(nodes, names), "every node has granted it")
    for server in nodes:
        server.command("DEL", names[taken])
    assert other.acquire()["fence"] > (lock.fence or 0)
    until(lambda: held(nodes, names), "every node has granted it to the other")
    with pytest.raises(LockError) as lost:
        lock.extend()
    assert (lost.value.code, lost.value.reason) == ("lost", "taken")
    assert ended(lock) == "taken"
    until(lambda: free(nodes, [each for each in names if each != names[taken]]), "its own keys are released")
    other.check()
    other.extend()
    other.release()


@every_face
def test_a_release_leaves_the_keys_of_others(drivers: Drivers, five_nodes: Cluster, face: str, name: str) -> None:
    """On a minority another has one of the names. The release deletes all that is its own, there too."""
    names = several(name)
    client = drivers.start(face).client(five_nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    connect_to_all(client, five_nodes, name)
    lock = client.lock_all(names, auto_renew=False)
    lock.acquire()
    until(lambda: held(five_nodes, names), "every node has granted it")
    minority = list(five_nodes)[:2]
    for server, each in zip(minority, (names[0], names[2]), strict=True):
        server.command("SET", each, ANOTHERS)
    lock.release()
    until(lambda: all(free_on(server, names) for server in list(five_nodes)[2:]), "all is released elsewhere")
    until(lambda: free_on(minority[0], names[1:]) and free_on(minority[1], names[:2]), "and there")
    assert [minority[0].get(names[0]), minority[1].get(names[2])] == [ANOTHERS, ANOTHERS]


@every_face
@pytest.mark.parametrize("n", [3], ids=["three nodes"])
def test_a_minority_that_has_lost_a_name_gets_it_back(
    drivers: Drivers, undisturbed: Callable[[int], Cluster], face: str, n: int, name: str
) -> None:
    """The next renewals restore it. No node is without a name for long, whichever name it has lost."""
    nodes, names = undisturbed(n), several(name)
    lock = drivers.start(face).client(nodes.urls).lock_all(names, ttl_ms=TTL_MS)
    fence = lock.acquire()["fence"]

    def is_whole(server: Server) -> bool:
        lock.check()
        return held_on(server, names)

    # A node that was still being connected to when the others had granted gets it with the first renewal.
    until(lambda: all(map(is_whole, nodes)), "every node has the lock")
    for server, each in zip(nodes, names, strict=True):
        server.command("DEL", each)
        until(lambda: is_whole(server), "the node has got it back")  # noqa: B023
    assert lock.extend()["fence"] == fence
    lock.release()
    until(lambda: free(nodes, names), "the last node has released it")


@every_face
def test_a_key_of_another_type_is_in_the_way(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    names = several(name)
    lock = drivers.start(face).client(nodes.urls).lock_all(names)
    for server in nodes:
        server.command("RPUSH", names[1], "not a string")
    assert not lock.try_acquire()
    assert lock.is_locked()
    assert free(nodes, [names[0], names[2]])
    waiting = wait(nodes, lock)
    for server in nodes:
        assert server.command("LLEN", names[1]) == 1
        server.command("DEL", names[1])
    assert waiting.result()["acquired"]


@every_face
def test_a_key_of_another_type_is_another_owners(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    names = several(name)
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    connect_to_all(client, nodes, name)
    lock = client.lock_all(names)
    lock.acquire()
    until(lambda: held(nodes, names), "every node has granted it")
    for server in nodes:
        server.command("DEL", names[2])
        server.command("RPUSH", names[2], "not a string")
    with pytest.raises(LockError) as lost:
        lock.release()
    assert (lost.value.code, lost.value.reason) == ("lost", "taken")
    until(lambda: free(nodes, names[:2]), "its own keys are released")
    assert all(server.command("LLEN", names[2]) == 1 for server in nodes)


@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.cancels])
def test_cancelled_waiters_keep_nobody_back(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    names = several(name)
    has = drivers.start("rust").client(nodes.urls, ttl_ms=LONG_TTL_MS).lock(names[1])
    has.acquire()
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    leaver, stayer = client.lock_all(names), client.lock_all(names[1:])
    leaving, staying = wait(nodes, leaver), stayer.start_acquire()
    leaver.cancel(leaving)
    assert leaving.result()["cancelled"]
    with within(0):
        has.release()
        assert staying.result()["acquired"]
    until(lambda: free(nodes, names[:1]), "the cancelled call has left nothing")
    stayer.release()
    until(lambda: free(nodes, names), "no key is left")
