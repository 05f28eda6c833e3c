"""Every language excludes every other: separate processes, one name."""

from __future__ import annotations

import pytest

from conformance.conftest import Drivers
from conformance.driver import FACES, Call, Lock
from conformance.story import Asked, leader_of, next_won, several
from support.clock import until
from support.servers import Cluster

# These are all pairs of languages, and the two remaining faces once on either side.
PAIRS = [(holder, waiter) for holder in ("rust", "python", "node") for waiter in ("rust", "python", "node")]
PAIRS += [("rust-blocking", "asyncio"), ("asyncio", "rust-blocking")]

HAND_OVERS = 4
ROUNDS = 5


every_pair = pytest.mark.parametrize(("holder", "waiter"), PAIRS, ids=["-".join(pair) for pair in PAIRS])


def hand_over(nodes: Cluster, has: Lock, wants: Lock) -> None:
    """Two locks that exclude each other take turns. Each waits for the other."""
    fence = has.acquire()["fence"]
    for _ in range(HAND_OVERS):
        assert not wants.try_acquire()
        asked = Asked(nodes)
        waiting = wants.start_acquire()
        asked.wait()
        assert waiting.pending
        has.check()
        has.release()
        won = waiting.result()
        assert won["acquired"]
        assert won["fence"] > fence
        fence = won["fence"]
        has, wants = wants, has


@every_pair
def test_hand_over(drivers: Drivers, nodes: Cluster, holder: str, waiter: str, name: str) -> None:
    has, wants = (drivers.start(face).client(nodes.urls).lock(name) for face in (holder, waiter))
    hand_over(nodes, has, wants)


@every_pair
def test_several_names_and_one_of_them(drivers: Drivers, nodes: Cluster, holder: str, waiter: str, name: str) -> None:
    has, wants = (drivers.start(face).client(nodes.urls) for face in (holder, waiter))
    hand_over(nodes, has.lock_all(several(name)), wants.lock(several(name)[1]))


@every_pair
def test_sets_that_share_a_name(drivers: Drivers, nodes: Cluster, holder: str, waiter: str, name: str) -> None:
    first, second, third = several(name)
    has, wants = (drivers.start(face).client(nodes.urls) for face in (holder, waiter))
    hand_over(nodes, has.lock_all([first, second]), wants.lock_all([third, second]))


@every_pair
def test_slots_of_a_semaphore(drivers: Drivers, nodes: Cluster, holder: str, waiter: str, name: str) -> None:
    """The other slot stays taken."""
    clients = [drivers.start(face).client(nodes.urls) for face in (holder, waiter)]
    keeper, has, wants = (client.semaphore(name, 2) for client in (clients[0], *clients))
    kept = keeper.acquire()["slot"]
    hand_over(nodes, has, wants)
    assert {has.slot, wants.slot} == {1 - kept}
    keeper.check()


@every_pair
def test_a_leader_and_a_lock_of_its_name(drivers: Drivers, nodes: Cluster, holder: str, waiter: str, name: str) -> None:
    leader = drivers.start(holder).client(nodes.urls).election(name)
    lock = drivers.start(waiter).client(nodes.urls).lock(name)
    numbers = []
    for _ in range(HAND_OVERS // 2):
        leading = leader.start_run()
        leader_of([leader])
        assert not lock.try_acquire()
        asked = Asked(nodes)
        waiting = lock.start_acquire()
        asked.wait()
        assert waiting.pending
        leader.end_term()
        won = waiting.result()
        numbers += [leading.result()["result"], won["fence"]]
        assert not leader.leads
        asked = Asked(nodes)
        candidate = leader.start_run()
        asked.wait()
        assert candidate.pending
        lock.release()
        leader_of([leader])
        leader.end_term()
        numbers.append(candidate.result()["result"])
    assert numbers == sorted(set(numbers))


def test_all_at_once(drivers: Drivers, nodes: Cluster, name: str) -> None:
    """All faces compete all the time. The history shows one holder at a time and increasing fences."""
    locks = [drivers.start(face).client(nodes.urls, ttl_ms=5000).lock(name) for face in FACES]
    waiting: list[tuple[Lock, Call]] = [(lock, lock.start_acquire()) for lock in locks]
    fences = []
    left = dict.fromkeys((lock.driver.label for lock in locks), ROUNDS)
    while waiting:
        holder, won = next_won(waiting)
        waiting.remove((holder, won))
        fences.append(won.result()["fence"])
        holder.check()
        holder.release()
        left[holder.driver.label] -= 1
        if left[holder.driver.label]:
            waiting.append((holder, holder.start_acquire()))
    assert fences == sorted(set(fences))
    assert len(fences) == ROUNDS * len(FACES)


@pytest.mark.parametrize("face", FACES)
def test_plain_protocol(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Locks of other libraries and ours exclude each other: SET NX PX, and delete if the value is still mine."""
    lock = drivers.start(face).client(nodes.urls).lock(name)
    for server in nodes:
        assert server.command("SET", name, "another library's token", "NX", "PX", 60_000)
    assert not lock.try_acquire()
    asked = Asked(nodes)
    waiting = lock.start_acquire()
    asked.wait()
    assert waiting.pending
    for server in nodes:
        server.command("DEL", name)
    assert waiting.result()["acquired"]
    quorum = len(nodes) // 2 + 1
    until(lambda: sum(server.get(name) is not None for server in nodes) >= quorum, "a quorum has granted it")
    denied = [server.command("SET", name, "another library's token", "NX", "PX", 60_000) for server in nodes]
    assert denied.count(None) >= quorum
    lock.check()
    lock.release()
