"""What an inspection shows of a lock as a whole: whose it is, since when, on how many nodes, and how many wait."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import Client, LockError
from conformance.history import SLACK_MS
from conformance.story import connect_to_all, fence_key, next_won
from conformance.test_pairs import PAIRS
from support.clock import until
from support.rights import fewest
from support.servers import Cluster, Server

every_pair = pytest.mark.parametrize(("holder", "looker"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
three_nodes = pytest.mark.parametrize("n", [3], ids=["three nodes"])

TTL_MS = 60_000
HOUR_US = 3_600_000_000
WAITING_MS = 300
PATIENT_MS = 5 * SLACK_MS
"""A node_timeout that nodes keep however slow the machine is."""
TOKENS = ("a" * 32, "b" * 32)

NOBODYS = {"label": None, "fence": None, "since_ms": None}


@every_pair
def test_held_by_another_face(drivers: Drivers, nodes: Cluster, holder: str, looker: str, name: str) -> None:
    client = drivers.start(looker).client(nodes.urls)
    lock = drivers.start(holder).client(nodes.urls, ttl_ms=TTL_MS).lock(name, label="worker 7", auto_renew=False)
    other = client.lock(name)
    assert not other.is_locked()
    assert not nodes.has(name), "looking leaves no key"
    assert not nodes.has(fence_key(name)), "looking leaves no key"
    began_ms = time.time() * 1000
    lock.acquire()
    assert lock.is_locked()
    until(lambda: client.inspect(name)["holders"] == len(nodes), "every node has granted the lock")
    view, ended_ms = client.inspect(name), time.time() * 1000
    shown = ("name", "key", "state", "label", "fence", "quorum", "waiting")
    assert {field: view[field] for field in shown} == {
        "name": name,
        "key": name,
        "state": "held",
        "label": "worker 7",
        "fence": lock.fence,
        "quorum": len(nodes) // 2 + 1,
        "waiting": 0,
    }
    assert began_ms - SLACK_MS <= view["since_ms"] <= ended_ms + SLACK_MS
    assert TTL_MS - (ended_ms - began_ms) - SLACK_MS <= view["ttl_left_ms"] <= TTL_MS
    assert other.is_locked()
    lock.release()

    free = client.inspect(name)
    assert free["state"] == "free"
    assert NOBODYS.items() <= free.items()
    assert free["ttl_left_ms"] is None
    until(lambda: client.inspect(name)["holders"] == 0, "the last node has released it")
    assert not other.is_locked()


@three_nodes
@every_face
def test_nodes_that_are_away(
    drivers: Drivers, start_nodes: Callable[..., Cluster], n: int, face: str, name: str
) -> None:
    """Two of three nodes are a quorum. One is not, whether it has the lock or not."""
    nodes = start_nodes(n)
    driver = drivers.start(face)
    client = driver.client(nodes.urls, node_timeout_ms=PATIENT_MS)
    lock = driver.client(nodes.urls, ttl_ms=TTL_MS).lock(name, label="worker 7", auto_renew=False)
    connect_to_all(client, nodes, name)
    lock.acquire()
    until(lambda: client.inspect(name)["holders"] == n, "every node has granted the lock")
    free = f"{name}, free"
    nodes[0].kill()
    held = client.inspect(name)
    assert (held["state"], held["label"], held["holders"], held["quorum"]) == ("held", "worker 7", 2, 2)
    assert (held["fence"], held["waiting"]) == (lock.fence, 0)
    assert (client.inspect(free)["state"], client.inspect(free)["holders"]) == ("free", 0)
    assert client.lock(name).is_locked()
    assert not client.lock(free).is_locked()
    nodes[1].kill()
    for each, holders in ((name, 1), (free, 0)):
        unknown = client.inspect(each)
        assert (unknown["state"], unknown["holders"], unknown["quorum"]) == ("unknown", holders, 2)
        assert NOBODYS.items() <= unknown.items()
        assert (unknown["ttl_left_ms"], unknown["waiting"]) == (None, 0)
        with pytest.raises(LockError) as undecided:
            client.lock(each).is_locked()
        assert undecided.value.code == "unavailable"
        answers = [answer for _, answer in undecided.value.nodes]
        assert answers[2] == ("held" if holders else "free")
        assert not {"held", "free"} & {*answers[:2]}
    nodes[2].kill()
    assert client.inspect(name)["waiting"] is None, "no node shows it"


@every_face
def test_a_node_that_may_have_forgotten_the_lock(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    """Its word that the lock is free does not count."""
    node = start_nodes(1)
    client = drivers.start(face).client(node.urls, ttl_ms=TTL_MS)
    lock = client.lock(name, auto_renew=False)
    lock.acquire()
    assert client.inspect(name)["state"] == "held"
    node[0].wipe()

    def is_seen() -> bool:
        """A new connection tells that the node has restarted."""
        view = client.inspect(name)
        assert (view["state"], view["holders"]) == ("unknown", 0)
        return bool(view["nodes"][0]["state"] == "free")

    until(is_seen, "the node is asked again")
    with pytest.raises(LockError) as undecided:
        client.lock(name).is_locked()
    assert undecided.value.code == "unavailable"
    assert "restart" in undecided.value.nodes[0][1]
    assert lock.state()["held"]


def put(server: Server, name: str, value: str) -> None:
    """Puts a value under the lock's key."""
    server.command("SET", name, value, "PX", TTL_MS)


@every_face
def test_two_owners_with_one_label(drivers: Drivers, five_nodes: Cluster, face: str, name: str) -> None:
    """Owners are told apart by their tokens, which are not shown. A label is not an identity."""
    driver = drivers.start(face)
    client = driver.client(five_nodes.urls, node_timeout_ms=PATIENT_MS)
    for number, server in enumerate(list(five_nodes)[:4]):
        put(server, name, f"{TOKENS[number % 2]}:7:worker")
    split = client.inspect(name)
    assert (split["state"], split["holders"]) == ("unknown", 2), "two owners are taken for one"
    assert NOBODYS.items() <= split.items()
    put(five_nodes[4], name, f"{TOKENS[0]}:5:worker")
    held = client.inspect(name)
    assert (held["state"], held["label"], held["holders"]) == ("held", "worker", 3)
    assert held["fence"] == 5, "two of the nodes may have granted theirs too late"
    said = driver.said()
    assert not [token for token in TOKENS if token[:16] in said], "half of a token is told"


@every_face
def test_fence_that_was_granted_too_late_does_not_count(
    drivers: Drivers, own_nodes: Cluster, face: str, name: str
) -> None:
    """A node that has seen larger fences grants one. When its answer comes, the others have decided on theirs."""
    client = drivers.start(face).client(own_nodes.urls, ttl_ms=TTL_MS)
    lock = client.lock(name, auto_renew=False)
    connect_to_all(client, own_nodes, name)
    late = own_nodes[0]
    late.command("SET", fence_key(name), time.time_ns() // 1000 + HOUR_US)
    late.freeze()
    lock.acquire()
    late.thaw()
    until(lambda: client.inspect(name)["nodes"][0]["state"] == "held", "the last node has granted it too")
    view = client.inspect(name)
    assert view["state"] == "held"
    assert view["nodes"][0]["fence"] > (lock.fence or 0)
    assert view["fence"] <= (lock.fence or 0), "a fence larger than the holder's"
    lock.release()


@every_face
def test_keys_of_others(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Any key is in the way; nothing but its time is known of it."""
    client, majority = drivers.start(face).client(nodes.urls, node_timeout_ms=PATIENT_MS), len(nodes) // 2 + 1
    for taken, server in enumerate(nodes, 1):
        server.command("SET", name, "another library's token", "PX", TTL_MS)
        view = client.inspect(name)
        assert view["state"] == ("foreign" if taken >= majority else "free")
        assert view["holders"] == taken
        assert client.lock(name).is_locked() == (taken >= majority)
        assert NOBODYS.items() <= view.items()
        assert (view["ttl_left_ms"] is not None) == (view["state"] == "foreign")
    nodes[0].command("PERSIST", name)
    left = client.inspect(name)["ttl_left_ms"]
    assert left is None if len(nodes) == 1 else 0 < left <= TTL_MS
    for server in nodes:
        server.command("DEL", name)
        server.command("RPUSH", name, "not a string")
    assert client.inspect(name)["state"] == "foreign"
    with pytest.raises(LockError) as refused:
        client.lock(name, protocol="setnx").is_locked()
    assert refused.value.code == "invalid_argument", "keys of the older protocol stay after they are out of date"
    for server in nodes:
        server.command("DEL", name)


def until_waiting(client: Client, name: str, number: int) -> None:
    """Waits until the nodes show so many waiters."""
    until(lambda: client.inspect(name)["waiting"] == number, f"{number} wait")


@every_face
def test_how_many_wait(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Each process that waits is counted once, however many of its callers do."""
    # An answer that comes too late would have a waiter counted twice.
    options = {"ttl_ms": TTL_MS, "node_timeout_ms": PATIENT_MS}
    client = drivers.start(face).client(nodes.urls, **options)
    holder = client.lock(name)
    holder.acquire()
    until(lambda: client.inspect(name)["holders"] == len(nodes), "every node has granted the lock")
    assert client.inspect(name)["waiting"] == 0
    clients = [drivers.start(waiter).client(nodes.urls, **options) for waiter in (face, "rust", "python")]
    waiting = []
    for waiter in clients:
        waiting.append(waiter.lock(name).start_acquire())
        until_waiting(client, name, len(waiting))
    other = clients[0].lock(name)
    assert other.denied(other.start_acquire(timeout_ms=WAITING_MS))
    assert client.inspect(name)["waiting"] == len(clients) == 3
    if len(nodes) > 1:
        # A node that has forgotten the count does not hide it.
        nodes[0].command("DEL", f"redlock:waiters:{{{name}}}")
        assert client.inspect(name)["waiting"] == len(clients)
    assert all(call.pending for call in waiting)


@every_face
def test_count_begins_again_with_the_next_holder(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    options = {"ttl_ms": TTL_MS, "node_timeout_ms": PATIENT_MS}
    client = drivers.start(face).client(node.urls, **options)
    has = client.lock(name)
    has.acquire()
    locks = [drivers.start(waiter).client(node.urls, **options).lock(name) for waiter in (face, "rust")]
    waiting = [(lock, lock.start_acquire()) for lock in locks]
    until_waiting(client, name, 2)
    for left in (1, 0):
        has.release()
        has, won = next_won(waiting)
        waiting.remove((has, won))
        assert won.result()["acquired"]
        until_waiting(client, name, left)
    has.release()


@every_face
def test_without_a_right_to_the_waiters_key(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    """Nobody knows then how many wait. Whose the lock is can be seen all the same."""
    right = "~redlock:waiters:*"
    for rules, waiting in ((fewest().rules, 0), (tuple(rule for rule in fewest().rules if rule != right), None)):
        (server,) = start_nodes(1, user=dataclasses.replace(fewest(), rules=rules))
        client = drivers.start(face).client([server.url])
        lock = client.lock(f"lock:{{{name}}}-{waiting}")
        lock.acquire()
        for _ in range(2):
            outside = client.inspect(name)
            assert (outside["state"], outside["waiting"]) == ("unknown", None)
            assert outside["nodes"][0]["state"] == "unavailable"
            # A name without rights does not matter to those with rights.
            view = client.inspect(f"lock:{{{name}}}-{waiting}")
            assert (view["state"], view["waiting"]) == ("held", waiting)
        lock.release()
