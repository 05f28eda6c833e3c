"""Semaphores: as many holders as permits and never one more, each with a slot of its own, on every face."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, MOST_PERMITS, Client, Lock, LockError
from conformance.history import SLACK_MS
from conformance.story import connect_to_all, fence_key, one_try_ms, slot_key, was_asked, within
from conformance.test_loss import ended
from conformance.test_waiting import BACKSTOP_LEAST_MS, all_calls, calls, scripts_run, wait
from support.clock import until
from support.servers import Cluster, Server

PERMITS = 3
LONG_TTL_MS = 60_000
"""A ttl longer than any test case, so that a key that is gone was released."""
SHORT_TTL_MS = 2000
RENEWED_TTL_MS = 3000
"""A ttl whose rest is always longer than the backstop of waiters."""
PATIENT_MS = 5 * SLACK_MS
"""A node_timeout that nodes keep however slow the machine is."""
BACKSTOP_MS = 2000
"""When a waiter looks again though nothing has happened that it is notified of."""
COUNT_KEPT_MS = 4000
"""When a waiter asks at the latest, because its count would expire."""
CROWD = 30
ANOTHERS = b"another library's token"


def keys(name: str, permits: int = PERMITS) -> list[str]:
    """The keys of the slots."""
    return [slot_key(name, slot) for slot in range(permits)]


def free(nodes: Cluster, name: str, permits: int = PERMITS) -> bool:
    """Whether no slot has a key anywhere."""
    return not any(nodes.has(key) for key in keys(name, permits))


def filled(clients: Sequence[Client], name: str, permits: int = PERMITS) -> list[Lock]:
    """As many holders as there are permits, in the order of their slots."""
    holders = [client.semaphore(name, permits) for client in islice(cycle(clients), permits)]
    for holder in holders:
        holder.acquire()
    assert sorted(holder.slot or 0 for holder in holders) == list(range(permits))
    return sorted(holders, key=lambda holder: holder.slot or 0)


def looks_at_most(time_ms: float) -> float:
    """How many scripts a waiter sends to a node in some time while nothing is released.

    A look reads the bell and the slots. Beside the backstop, a waiter keeps its count, once in four seconds.
    """
    return 2 * (2 + time_ms / BACKSTOP_LEAST_MS + time_ms / COUNT_KEPT_MS)


def take(nodes: Cluster, name: str, *slots: int) -> None:
    """Has somebody else hold slots."""
    for server in nodes:
        for slot in slots:
            server.command("SET", slot_key(name, slot), ANOTHERS, "PX", LONG_TTL_MS)


def delete(nodes: Cluster, name: str, *slots: int) -> None:
    """Deletes the keys of slots by hand."""
    for server in nodes:
        for slot in slots:
            server.command("DEL", slot_key(name, slot))


@every_face
def test_as_many_hold_it_as_there_are_permits(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client, others = (drivers.start(each).client(nodes.urls, ttl_ms=LONG_TTL_MS) for each in (face, "rust"))
    late = client.semaphore(name, PERMITS)
    assert not late.is_locked()
    holders = filled([client, others], name)
    assert not late.try_acquire()
    assert not others.semaphore(name, PERMITS).try_acquire()
    assert late.denied(late.start_acquire(timeout_ms=SLACK_MS))
    assert late.is_locked()
    for slot, holder in enumerate(holders):
        state = holder.state()
        assert (state["held"], state["slot"], state["fence"]) == (True, slot, holder.fence)
        assert holder.shown_names() == {"name": name, "names": [name]}
        assert nodes.has(slot_key(name, slot))
        assert nodes.has(fence_key(slot_key(name, slot)))
        holder.check()
        assert holder.extend(ttl_ms=2 * LONG_TTL_MS)["remaining_ms"] > LONG_TTL_MS
    for slot, holder in enumerate(holders):
        holder.release()
        until(lambda: not late.is_locked(), "a slot is free")
        won = late.acquire()
        assert won["slot"] == slot, "it has the slot of another holder"
        assert won["fence"] > (holder.fence or 0)
        late.release()
        assert holder.try_acquire()
    for holder in holders:
        holder.release()
    until(lambda: free(nodes, name), "no key is left")


@every_face
def test_the_one_free_slot_of_a_thousand(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """One try finds it, and a waiter is told of it, wherever it is."""
    client = drivers.start(face).client(node.urls, ttl_ms=LONG_TTL_MS)
    take(node, name, *range(MOST_PERMITS))
    late = client.semaphore(name, MOST_PERMITS)
    assert late.is_locked()
    for slot in (0, 511, MOST_PERMITS - 1):
        delete(node, name, slot)
        assert not late.is_locked()
        assert late.try_acquire()
        assert late.slot == slot
        waiter = client.semaphore(name, MOST_PERMITS)
        assert not waiter.try_acquire()
        call = waiter.start_acquire()
        until(lambda: client.inspect_semaphore(name, 1)[0]["waiting"] == 1, "it waits")
        late.release()
        assert call.result()["slot"] == slot
        waiter.release()
        take(node, name, slot)
    views = client.inspect_semaphore(name, MOST_PERMITS)
    assert [view["slot"] for view in views] == [*range(MOST_PERMITS)]
    assert {view["state"] for view in views} == {"foreign"}


@every_face
def test_a_minority_that_is_away_gives_no_further_permit(
    drivers: Drivers, own_nodes: Cluster, face: str, name: str
) -> None:
    """One node is dead and one hangs. When they are back, there is no other permit either."""
    patient = {"ttl_ms": LONG_TTL_MS, "node_timeout_ms": PATIENT_MS}
    clients = [drivers.start(each).client(own_nodes.urls, **patient) for each in (face, "rust")]
    own_nodes[0].kill()
    own_nodes[4].freeze()
    holders = filled(clients, name)
    assert not any(client.semaphore(name, PERMITS).try_acquire() for client in clients)
    own_nodes[0].restart()
    own_nodes[4].thaw()
    assert not any(client.semaphore(name, PERMITS).try_acquire() for client in clients)
    holders[1].release()
    assert clients[0].semaphore(name, PERMITS).acquire(timeout_ms=PATIENT_MS)["slot"] == 1


@every_face
def test_a_crashed_holder_keeps_its_slot_for_one_ttl(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """The other holders live on, and their ttl is long."""
    others = drivers.start("rust").client(nodes.urls, ttl_ms=LONG_TTL_MS)
    holders = filled([others], name)
    holders[1].release()
    crashed = drivers.start(face).client(nodes.urls).semaphore(name, PERMITS, ttl_ms=SHORT_TTL_MS)
    fence = crashed.acquire()["fence"]
    waiting = wait(nodes, others.semaphore(name, PERMITS))
    killed_ns = crashed.driver.kill()
    won = waiting.result()
    assert won["slot"] == crashed.slot == 1
    assert won["fence"] > fence
    assert won["return_ns"] - killed_ns <= (SHORT_TTL_MS + SLACK_MS) * 1e6


@every_face
def test_a_slot_that_is_deleted_by_hand_is_found(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Nobody rings for it, so it takes a waiter's next look."""
    take(nodes, name, *range(PERMITS))
    lock = drivers.start(face).client(nodes.urls).semaphore(name, PERMITS)
    waiting = wait(nodes, lock)
    with within(BACKSTOP_MS):
        delete(nodes, name, 1)
        won = waiting.result()
    assert won["slot"] == 1


@every_face
def test_callers_with_different_permits(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """At most the larger number hold it. Who allows fewer uses the first slots only."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    others = drivers.start("rust").client(nodes.urls, ttl_ms=LONG_TTL_MS)
    holders = filled([others], name, 5)
    few, many = client.semaphore(name, 3), client.semaphore(name, 5)
    assert not many.try_acquire()
    for slot in (3, 4):
        holders[slot].release()
    assert not few.try_acquire()
    assert few.denied(few.start_acquire(timeout_ms=SLACK_MS))
    assert few.is_locked()
    assert not many.is_locked()
    assert many.acquire()["slot"] in {3, 4}
    waiting = wait(nodes, few)
    many.release()
    assert many.acquire()["slot"] in {3, 4}
    assert waiting.pending
    with within(0):
        holders[1].release()
        assert waiting.result()["slot"] == 1


@every_face
def test_one_try_finds_the_one_free_slot(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Wherever it is. A try looks once, and takes no longer for it than it says."""
    permits, node_timeout_ms = 8, 500
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=node_timeout_ms)
    lock = client.semaphore(name, permits)
    take(nodes, name, *range(permits))
    with within(one_try_ms(node_timeout_ms) + 3 * node_timeout_ms):
        assert not lock.try_acquire()
    for slot in range(permits):
        delete(nodes, name, slot)
        with within(one_try_ms(node_timeout_ms) + 3 * node_timeout_ms):
            assert lock.try_acquire(), f"slot {slot} is free"
        assert lock.slot == slot
        lock.release()
        until(lambda: not nodes.has(slot_key(name, slot)), "every node has released it")  # noqa: B023
        take(nodes, name, slot)
        assert lock.denied(lock.start_acquire(timeout_ms=0))


@every_face
def test_a_lost_attempt_at_a_slot_leaves_nothing(drivers: Drivers, five_nodes: Cluster, face: str, name: str) -> None:
    """The slot is taken on a quorum. What the others have granted is given back before another slot is tried."""
    client = drivers.start(face).client(five_nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    lock = client.semaphore(name, 2)
    connect_to_all(client, five_nodes, name)
    majority, minority = list(five_nodes)[:3], list(five_nodes)[3:]
    for server in majority:
        server.command("SET", slot_key(name, 0), ANOTHERS)

    def tried_everywhere() -> bool:
        """Which slot is tried first is a matter of chance."""
        assert lock.try_acquire(), "the other slot is free"
        assert lock.slot == 1
        assert not any(server.has(slot_key(name, 0)) for server in minority), "it keeps a part of a slot"
        lock.release()
        return was_asked(minority, slot_key(name, 0))

    until(tried_everywhere, "the slot that is taken was tried too")
    assert all(server.get(slot_key(name, 0)) == ANOTHERS for server in majority)


@every_face
def test_a_lock_and_a_semaphore_of_one_name_do_not_meet(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    driver = drivers.start(face)
    client = driver.client(nodes.urls, ttl_ms=LONG_TTL_MS)
    lock, semaphore = client.lock(name), client.semaphore(name, 1)
    lock.acquire()
    assert not semaphore.is_locked()
    assert semaphore.try_acquire()
    assert not client.semaphore(name, 1).try_acquire()
    assert client.inspect(name)["fence"] is not None
    lock.release()
    until(lambda: client.inspect(name)["state"] == "free", "the lock is free")
    assert client.inspect_semaphore(name, 1)[0]["state"] == "held"
    semaphore.check()
    assert lock.try_acquire()
    semaphore.release()
    lock.check()


@every_face
def test_what_an_inspection_shows(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """A view for each slot, in order, and how many wait for any of them."""
    options = {"ttl_ms": LONG_TTL_MS, "node_timeout_ms": PATIENT_MS}
    client = drivers.start(face).client(nodes.urls, **options)
    shown = ("name", "key", "slot", "state", "quorum")
    quorum = len(nodes) // 2 + 1

    def seen(*states: str) -> bool:
        views = client.inspect_semaphore(name, len(states))
        each = [(name, key, slot, quorum) for slot, key in enumerate(keys(name, len(states)))]
        assert [tuple(view[field] for field in shown if field != "state") for view in views] == each
        return [view["state"] for view in views] == [*states]

    assert seen("free", "free", "free")
    holders = [
        drivers.start("rust").client(nodes.urls, **options).semaphore(name, 2, label=f"worker {i}") for i in (0, 1)
    ]
    for holder in holders:
        holder.acquire()
    assert seen("held", "held", "free")
    views = client.inspect_semaphore(name, 2)
    for holder, label in zip(holders, ("worker 0", "worker 1"), strict=True):
        view = views[holder.slot or 0]
        assert view["label"] == label
        assert view["fence"] <= (holder.fence or 0)
        assert 0 < view["ttl_left_ms"] <= LONG_TTL_MS
    assert [view["waiting"] for view in views] == [0, 0]
    waiting = wait(nodes, client.semaphore(name, 2))
    until(lambda: [view["waiting"] for view in client.inspect_semaphore(name, 2)] == [1, 1], "one waits")
    holders[0].release()
    assert waiting.result()["slot"] == holders[0].slot
    plain = client.inspect(name)
    assert (plain["slot"], plain["state"]) == (None, "free")


@every_face
def test_waiting_costs_next_to_nothing(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """Many waiters of a process look as rarely as one."""
    holders = filled([drivers.start("rust").client(node.urls, ttl_ms=LONG_TTL_MS)], name)
    client = drivers.start(face).client(node.urls, ttl_ms=LONG_TTL_MS)
    waiting = wait(node, client.semaphore(name, PERMITS))
    before = scripts_run(node)
    locks = [client.semaphore(name, PERMITS, timeout_ms=3 * BACKSTOP_LEAST_MS) for _ in range(CROWD)]
    behind = [lock.start_acquire() for lock in locks]
    assert all(lock.denied(call) for lock, call in zip(locks, behind, strict=True))
    asked = scripts_run(node) - before
    assert asked <= looks_at_most(3 * BACKSTOP_LEAST_MS + SLACK_MS), f"{asked} scripts"
    holders[2].release()
    assert waiting.result()["acquired"]


@every_face
@pytest.mark.parametrize("n", [1, 5], ids=["one node", "five nodes"])
def test_renewals_wake_no_waiter(
    drivers: Drivers, start_nodes: Callable[..., Cluster], n: int, face: str, name: str
) -> None:
    nodes = start_nodes(n)
    holding = drivers.start("rust").client(nodes.urls, ttl_ms=RENEWED_TTL_MS, node_timeout_ms=RENEWED_TTL_MS // 2)
    connect_to_all(holding, nodes, name)
    holders = filled([holding], name)
    until(lambda: all(server.has(key) for server in nodes for key in keys(name)), "every node has each slot")
    waiting = wait(nodes, drivers.start(face).client(nodes.urls).semaphore(name, PERMITS))

    def looks() -> int:
        """How often the waiter has asked: all scripts but the renewals, each of which extends a lock and its fence."""
        # Renewals go on, so each server is asked once for all of its numbers.
        counts = [all_calls(server) for server in nodes]
        return sum(each["eval"] + each["evalsha"] - each["pexpire"] // 2 for each in counts)

    before, began = looks(), time.monotonic()
    renewed = sum(calls(server, "pexpire") for server in nodes)
    many = 4 * PERMITS * n
    until(lambda: sum(calls(server, "pexpire") for server in nodes) - renewed >= 2 * many, "all are renewed many times")
    time_ms = (time.monotonic() - began) * 1000
    assert looks() - before <= n * looks_at_most(time_ms), f"{looks() - before} looks in {time_ms:.0f} ms"
    holders[0].release()
    assert waiting.result()["acquired"]


@every_face
def test_a_slot_that_is_deleted_is_lost_alone(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, auto_renew=False)
    connect_to_all(client, nodes, name)
    holders = filled([client], name)
    until(lambda: all(server.has(key) for server in nodes for key in keys(name)), "every node has each slot")
    delete(nodes, name, 1)
    for slot, holder in enumerate(holders):
        if slot != 1:
            holder.extend()
    with pytest.raises(LockError) as lost:
        holders[1].extend()
    assert (lost.value.code, lost.value.reason, lost.value.name) == ("lost", "deleted", name)
    assert ended(holders[1]) == "deleted"
    for slot in (0, 2):
        holders[slot].check()
    assert client.semaphore(name, PERMITS).acquire()["slot"] == 1


@every_face
def test_keys_of_another_type_are_in_the_way(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    def put(server: Server, slot: int) -> None:
        server.command("RPUSH", slot_key(name, slot), "not a string")

    client = drivers.start(face).client(nodes.urls)
    for server in nodes:
        put(server, 0)
        put(server, 2)
    assert client.semaphore(name, PERMITS).acquire()["slot"] == 1
    assert not client.semaphore(name, PERMITS).try_acquire()
    assert [view["state"] for view in client.inspect_semaphore(name, PERMITS)] == ["foreign", "held", "foreign"]
    assert all(server.command("LLEN", slot_key(name, 2)) == 1 for server in nodes)


@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.cancels])
def test_cancelled_waiters_keep_nobody_back(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """One call is in the front of its process's queue, and one behind it."""
    holders = filled([drivers.start("rust").client(nodes.urls, ttl_ms=LONG_TTL_MS)], name)
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    locks = [client.semaphore(name, PERMITS) for _ in range(4)]
    waiting = [wait(nodes, locks[0]), *(lock.start_acquire() for lock in locks[1:])]
    for leaver in (0, 2):
        locks[leaver].cancel(waiting[leaver])
        assert waiting[leaver].result()["cancelled"]
    with within(0):
        holders[0].release()
        holders[1].release()
        assert {waiting[stayer].result()["slot"] for stayer in (1, 3)} == {0, 1}
    for lock in (locks[1], locks[3], holders[2]):
        lock.release()
    until(lambda: free(nodes, name), "no key is left")
