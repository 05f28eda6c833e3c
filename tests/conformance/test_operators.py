"""What operators do from a program: to list the locks that are held, and to break one."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import LockError
from conformance.history import History
from conformance.story import connect_to_all, slot_key
from conformance.test_pairs import PAIRS
from support.clock import until
from support.rights import fewest, for_any_name
from support.servers import Cluster, Server

every_pair = pytest.mark.parametrize(("holder", "operator"), PAIRS, ids=["-".join(pair) for pair in PAIRS])

TTL_MS = 3_000
LOST_MS = TTL_MS + 1_000
MANY = 4_000
"""Locks that are listed in half a second, with their fences, and not in one step."""
FEW = 3
"""Steps of a list for its first lock, of the 40 that all of them take."""


def scans(server: Server) -> int:
    """How often a server was asked for a part of its keys."""
    asked = re.search(rb"cmdstat_scan:calls=(\d+)", server.info("commandstats"))
    return int(asked[1]) if asked else 0


@every_pair
def test_held_locks_are_listed(drivers: Drivers, nodes: Cluster, holder: str, operator: str, name: str) -> None:
    """Each name once, on however many nodes, and each slot that is held."""
    owner = drivers.start(holder).client(nodes.urls)
    locks = [owner.lock(f"{name}:b", label="worker 7"), owner.lock(f"{name}:a"), owner.lock(f"{name}:free")]
    slots = [owner.semaphore(f"{name}:pool", 3) for _ in range(2)]
    reader = owner.lock(f"{name}:page", shared=True)
    for lock in (*locks, *slots, reader):
        lock.acquire()
    locks.pop().release()
    client = drivers.start(operator).client(nodes.urls)
    connect_to_all(client, nodes, name)
    until(lambda: client.inspect(f"{name}:free")["state"] == "free", "no node has it")
    exactly = re.sub(r"([\\*?\[\]])", r"\\\1", name)
    views = client.list_locks(f"{exactly}:*")
    held = [f"{name}:a", f"{name}:b", f"{name}:page", f"{name}:pool", f"{name}:pool"]
    assert [view["name"] for view in views] == held
    assert [view["state"] for view in views] == ["held", "held", "shared", "held", "held"]
    assert views[1]["label"] == "worker 7"
    assert views[1]["fence"] <= (locks[0].fence or 0)
    assert [view["slot"] for view in views[3:]] == sorted(slot.slot or 0 for slot in slots)
    assert [view["name"] for view in client.list_locks(f"{exactly}:[^b-z]")] == [f"{name}:a"]
    assert client.list_locks(exactly) == []
    assert {view["name"] for view in client.list_locks("*")} >= set(held)
    for lock in (*locks, *slots, reader):
        lock.release()


@every_face
def test_a_list_goes_as_far_as_its_reader(
    drivers: Drivers, start_nodes: Callable[[int], Cluster], face: str, name: str
) -> None:
    """Nothing is asked ahead, so that neither the program nor the server has all names before it at once."""
    (own_node,) = start_nodes(1)
    fill = (
        "for k = 1, ARGV[1] do redis.call('SET', k, 'theirs') redis.call('SET', 'redlock:fence:{' .. k .. '}', 1) end"
    )
    own_node.command("EVAL", fill, 0, MANY)
    client = drivers.start(face).client([own_node.url])
    (view,) = client.list_locks("*", most=1)
    assert view["state"] == "foreign"
    assert 0 < scans(own_node) <= FEW
    views = client.list_locks("77*")
    assert [view["name"] for view in views] == sorted(str(k) for k in range(1, MANY + 1) if str(k).startswith("77"))


@every_face
def test_a_list_needs_a_right_and_a_quorum(
    drivers: Drivers, start_nodes: Callable[[int], Cluster], face: str, name: str
) -> None:
    (own_node,) = start_nodes(1)
    user = for_any_name(fewest())
    own_node.set_user(user.name, "on", f">{user.password}", *user.rules)
    client = drivers.start(face).client([own_node.url_as(user.name, user.password)])
    with pytest.raises(LockError, match=r"\+scan") as refused:
        client.list_locks("*")
    assert refused.value.code == "forbidden"
    own_node.set_user(user.name, "+scan")
    assert client.list_locks(name) == []
    own_node.kill()
    with pytest.raises(LockError) as refused:
        client.list_locks("*")
    assert refused.value.code == "unavailable"


@every_pair
def test_a_lock_is_broken(drivers: Drivers, nodes: Cluster, holder: str, operator: str, name: str) -> None:
    """The fence goes on, and the holder learns of its loss."""
    lock = drivers.start(holder).client(nodes.urls, ttl_ms=TTL_MS).lock(name, label="worker 7")
    lock.acquire()
    fence, client = lock.fence, drivers.start(operator).client(nodes.urls)
    until(lambda: client.inspect(name)["holders"] == len(nodes), "every node has granted the lock")
    broken = client.break_lock(name)
    assert broken is not None
    assert (broken["name"], broken["state"], broken["label"]) == (name, "held", "worker 7")
    assert client.break_lock(name) is None
    lost = lock.start_wait_lost(LOST_MS).result()["lost"]
    assert (lost["code"], lost["reason"]) == ("lost", "deleted")
    after = client.lock(name)
    after.acquire()
    assert (after.fence or 0) > (fence or 0)
    after.release()


@every_face
def test_a_broken_lock_goes_to_a_waiter(
    drivers: Drivers, history: History, nodes: Cluster, face: str, name: str
) -> None:
    """The former holder then hears that it is taken."""
    history.rule("--no-exclusion")
    client, others = (drivers.start(each).client(nodes.urls) for each in (face, "rust"))
    for each in (client, others):
        connect_to_all(each, nodes, name)
    lock, waiter = client.lock(name, auto_renew=False), others.lock(name)

    def on_every_node() -> bool:
        return bool(client.inspect(name)["holders"] == len(nodes))

    lock.acquire()
    until(on_every_node, "every node has granted the lock")
    call = waiter.start_acquire()
    until(lambda: client.inspect(name)["waiting"] == 1, "it waits")
    assert client.break_lock(name) is not None
    assert call.result()["acquired"]
    until(on_every_node, "every node has granted it to the other")
    with pytest.raises(LockError) as lost:
        lock.extend()
    assert (lost.value.code, lost.value.reason) == ("lost", "taken")
    waiter.release()


@every_face
def test_a_slot_is_broken(drivers: Drivers, history: History, nodes: Cluster, face: str, name: str) -> None:
    history.rule("--no-exclusion")
    client = drivers.start(face).client(nodes.urls, auto_renew=False)
    connect_to_all(client, nodes, name)
    slots = [client.semaphore(name, 2) for _ in range(2)]
    for each in slots:
        each.acquire()
    assert client.break_lock(name) is None, "a lock of this name is another one"
    broken = client.break_lock(name, slots[0].slot)
    assert broken is not None
    assert broken["slot"] == slots[0].slot
    third = client.semaphore(name, 2)
    third.acquire()
    assert third.slot == broken["slot"]
    key = slot_key(name, broken["slot"])
    until(lambda: all(server.has(key) for server in nodes), "every node has granted it to the other")
    with pytest.raises(LockError) as lost:
        slots[0].extend()
    assert (lost.value.code, lost.value.reason) == ("lost", "taken")
    for each in (slots[1], third):
        each.release()


@every_face
def test_what_is_not_broken(drivers: Drivers, start_nodes: Callable[[int], Cluster], face: str, name: str) -> None:
    (own_node,) = start_nodes(1)
    client = drivers.start(face).client([own_node.url])
    reader = client.lock(name, shared=True)
    reader.acquire()
    own_node.command("RPUSH", f"{name}:data", "precious")
    for each in (name, f"{name}:data"):
        with pytest.raises(LockError) as refused:
            client.break_lock(each)
        assert (refused.value.code, refused.value.option) == ("invalid_argument", "name")
        assert own_node.has(each)
    for slot in (-1, 1_000, 2**40) if face not in {"rust", "rust-blocking"} else (1_000,):
        with pytest.raises(LockError) as refused:
            client.break_lock(name, slot)
        assert (refused.value.code, refused.value.option) == ("invalid_argument", "slot")
    reader.release()
