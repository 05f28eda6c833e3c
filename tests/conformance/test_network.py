"""The network delays, loses, holds back or cuts messages, passes one direction only, or leads to another server.

Unless a test case is about the end of a ttl, its locks live for a minute: a key that is gone earlier was released.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, Call, Client, Json, Lock, LockError
from conformance.history import SLACK_MS
from conformance.story import Asked, connect_to_all, heard, reached, was_asked, within
from support.clock import now_ns, until
from support.proxy import HOLD, LOSE, Faults, Network, Proxy
from support.servers import Cluster, Server

# The callers of one drive their connections themselves; the background does it for the other.
two_faces = pytest.mark.parametrize("face", ["python", "node"])

LONG_TTL_MS = 60_000
CONNECT_MS = 2000
"""How long a try may take to connect."""
PATIENT_MS = 5 * SLACK_MS
"""A `node_timeout` that nodes keep even on a slow machine."""
IMPATIENT_MS = 300
"""A `node_timeout` that a test case waits for."""
IDLE_S = 5.1
"""After so long without an answer, the library does not trust a connection."""
THREADS = 500
OWN_CONNECTIONS, SHARED_CONNECTIONS = 8, 2
"""The default of `max_connections`, and the connections of the background, to each node."""
NAMES, ROUNDS, CROWD = 20, 3, 12


def won(call: Call) -> bool:
    """Whether an acquire was won; if not, others had the lock or no quorum answered."""
    try:
        acquired: bool = call.result()["acquired"]
    except LockError as error:
        if error.code not in {"timeout", "unavailable"}:
            raise
        return False
    return acquired


def unavailable(call: Call) -> None:
    """Checks that an acquire fails because no quorum answers."""
    with pytest.raises(LockError) as refused:
        call.result()
    assert refused.value.code == "unavailable"


def no_key_left(nodes: Cluster, name: str) -> None:
    """Waits until no node has the lock's key."""
    until(lambda: not nodes.has(name), "the key is gone from every node")


def end(state: Json) -> float:
    """The end of the validity of a lock in this state, in ns, but never later than the library means it."""
    return float(state["read_ns"] + state["remaining_ms"] * 1e6)


def token_on(server: Server, name: str | bytes) -> bytes:
    """The token in the key; empty if there is no key."""
    return (server.get(name) or b"").partition(b":")[0]


@every_face
def test_reset_behind_the_acquire(
    drivers: Drivers, five_nodes: Cluster, network: Network, face: str, name: str
) -> None:
    """It was executed, and its answer is lost with the connection. The next attempt has another token."""
    client = drivers.start(face).client(network.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    lock = client.lock(name)
    connect_to_all(client, five_nodes, name)
    for link in network.links:
        link.replies(HOLD)
    acquiring = lock.start_acquire(timeout_ms=10_000)
    until(lambda: all(server.get(name) for server in five_nodes), "every node has granted it")
    first = {token_on(server, name) for server in five_nodes}
    for link in network.links:
        link.reset()
    acquiring.result()
    until(lambda: not first & {token_on(server, name) for server in five_nodes}, "the first attempt is released")
    assert len(first) == 1
    assert sum(bool(token_on(server, name)) for server in five_nodes) > len(five_nodes) // 2
    lock.check()
    lock.release()
    no_key_left(five_nodes, name)


@pytest.mark.parametrize("count", [1, 3], ids=["one node", "three nodes"])
@pytest.mark.parametrize("faults", [LOSE, HOLD], ids=["swallowed", "late"])
def test_idle_connections_that_a_firewall_has_forgotten(
    drivers: Drivers, five_nodes: Cluster, count: int, faults: Faults, name: str
) -> None:
    """Neither end of them hears of it. The next calls take other connections within `node_timeout`, in every language.

    What was sent over the former ones may arrive after all. The last answer of three comes when no caller waits for it,
    and may be read by the next call: it says nothing about the time between. All faces wait together, because a
    connection is idle only after a while.
    """
    nodes = list(five_nodes)[:count]
    with Network(nodes) as network:
        acquirers, holders = list[Lock](), list[Lock]()
        for face in FACES:
            driver = drivers.start(face)
            # Clients with different options do not share connections.
            for locks, connect_ms in [(acquirers, CONNECT_MS), (holders, CONNECT_MS + 1)]:
                client = driver.client(network.urls, ttl_ms=10 * LONG_TTL_MS, connect_timeout_ms=connect_ms)
                connect_to_all(client, nodes, name)
                locks.append(client.lock(f"{name} {face} {connect_ms}", node_timeout_ms=3 * SLACK_MS))
        for lock in holders:
            lock.acquire()
        for lock in acquirers:
            lock.acquire()
            lock.release()
        time.sleep(IDLE_S)
        network.forget(faults)
        for lock in holders:
            lock.release()
        # Less than `node_timeout`. It takes half of that with three nodes.
        with within(2 * SLACK_MS):
            for call in [lock.start_acquire(timeout_ms=0) for lock in acquirers]:
                assert call.result()["acquired"]
        for lock in acquirers:
            lock.release()
        network.let_go()
        until(lambda: not any(server.has(lock.name) for server in five_nodes for lock in acquirers + holders), "no key")


@pytest.mark.parametrize("face", ["rust-blocking", "python"])
def test_more_threads_than_connections(
    drivers: Drivers, five_nodes: Cluster, network: Network, face: str, name: str
) -> None:
    """Those that come too many share the connections of the background. No call fails, though files are scarce."""
    driver = drivers.fresh(face)
    driver.limit_open_files(256)
    # Another connection is made for one on which a node is silent for so long.
    patient = {"node_timeout_ms": LONG_TTL_MS / 2, "connect_timeout_ms": LONG_TTL_MS / 2}
    client = driver.client(network.urls, ttl_ms=LONG_TTL_MS, **patient)

    def use(i: int) -> None:
        lock = client.lock(f"{name} {i}")
        lock.acquire()
        lock.release()

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(use, range(THREADS)))
    assert max(proxy.accepted for proxy in network.proxies) <= OWN_CONNECTIONS + SHARED_CONNECTIONS


@every_face
def test_acquire_that_outlives_its_connection(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """The client's end breaks with the acquire on its way. The acquire arrives, and no release can follow it."""
    with Proxy(node[0]) as proxy:
        client = drivers.start(face).client([proxy.url], ttl_ms=LONG_TTL_MS, node_timeout_ms=IMPATIENT_MS)
        lock = client.lock(name)
        connect_to_all(client, node, name)
        held = list(proxy.links)
        for link in held:
            link.requests(HOLD)
        proxy.refuse(True)
        asked = Asked(node)
        acquiring = lock.start_acquire(timeout_ms=0)
        until(lambda: any(link.requests_waiting for link in held), "the acquire is held back")
        began = time.monotonic()
        for link in held:
            link.reset()
        unavailable(acquiring)
        proxy.refuse(False)
        asked.wait()
        gone_in_time(proxy, node, name, began)


def gone_in_time(proxy: Proxy, node: Cluster, name: str, began: float) -> None:
    """Lets an acquire continue that was given up after `began`, and checks that the key it creates does not stay.

    Its release is retried after pauses that double, so the next one is at most as far away as the first one.
    """
    assert not was_asked(node, name), "the acquire was not held back"
    let_go = time.monotonic()
    proxy.let_go()
    until(lambda: was_asked(node, name), "the acquire has been executed")
    no_key_left(node, name)
    assert time.monotonic() - let_go <= let_go - began + SLACK_MS / 1000, "the key has stayed"


@every_face
def test_release_that_is_sent_again_finds_the_next_holder(
    drivers: Drivers, node: Cluster, face: str, name: str
) -> None:
    """The answer to the first release is lost with its connection, and meanwhile another client has the lock.

    This looks the same as a lock that another had taken before the release, so it is reported as a loss.
    """
    with Proxy(node[0]) as proxy, ThreadPoolExecutor() as threads:
        client = drivers.start(face).client([proxy.url], ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
        lock, other = client.lock(name), drivers.start("rust").client(node.urls).lock(name)
        lock.acquire()
        proxy.replies(HOLD)
        released = threads.submit(lock.release)
        until(lambda: not node.has(name), "the release has been executed")
        other.acquire()
        proxy.reset()
        proxy.let_go()
        with pytest.raises(LockError) as lost:
            released.result()
        assert (lost.value.code, lost.value.reason) == ("lost", "taken")
        other.release()


@every_face
@pytest.mark.parametrize("broken", [False, True], ids=["silence", "broken connections"])
def test_holder_that_is_cut_off(
    drivers: Drivers, five_nodes: Cluster, network: Network, face: str, broken: bool, name: str
) -> None:
    """The loss is reported at the end of the validity and not later. The next holder then has and keeps the lock."""
    # So long that a slow machine has time for a renewal, which meets the silence.
    lock = drivers.start(face).client(network.urls, ttl_ms=2 * SLACK_MS).lock(name)
    earliest_ns = end(lock.acquire())
    for proxy in network.proxies:
        if broken:
            proxy.refuse(True)
            proxy.reset()
        else:
            proxy.requests(HOLD)
            proxy.replies(HOLD)
    latest_ns = end(lock.state())
    # No call asks in between: the loss must be reported by itself.
    told = lock.start_wait_lost(limit_ms=10_000).result()
    assert (told["lost"]["code"], told["lost"]["reason"]) == ("lost", "unreachable")
    assert earliest_ns <= told["told_ns"] <= latest_ns + SLACK_MS * 1e6, "told too early or too late"
    other = drivers.start("rust").client(five_nodes.urls).lock(name)
    assert other.acquire(timeout_ms=10_000)["fence"] > (lock.fence or 0)
    network.let_go()
    with pytest.raises(LockError) as released:
        lock.release()
    assert released.value.reason == "unreachable"
    other.extend()
    other.release()
    no_key_left(five_nodes, name)


@two_faces
def test_held_lock_survives_its_connections(
    drivers: Drivers, five_nodes: Cluster, network: Network, face: str, name: str
) -> None:
    """Its renewals meet broken connections, then silent ones, and succeed in the end."""
    lock = drivers.start(face).client(network.urls, ttl_ms=3000, node_timeout_ms=IMPATIENT_MS).lock(name)
    lock.acquire()
    for fault in (Faults(cut_after=1), LOSE):
        faulty = list(network.links)
        for link in faulty:
            link.replies(fault)
        end_ns = end(lock.state())

        def is_renewed(faulty: int = len(faulty), end_ns: float = end_ns) -> bool:
            state = lock.state()
            assert state["held"], "lost by what was over in time"
            # A renewal adds a second; the old connections had no part in it.
            return end(state) > end_ns + 500e6 and len(network.links) > faulty

        until(is_renewed, "it is renewed")
    # Otherwise the release, too, would have to notice that these connections are silent.
    for link in faulty:
        link.reset()
    lock.check()
    lock.release()
    no_key_left(five_nodes, name)


@two_faces
def test_replies_byte_by_byte(drivers: Drivers, five_nodes: Cluster, network: Network, face: str, name: str) -> None:
    client = drivers.start(face).client(network.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    connect_to_all(client, five_nodes, name)
    for link in network.links:
        link.requests(Faults(slices=True))
        link.replies(Faults(slices=True))
    every_answer_is_its_own(client, five_nodes, name, lambda: None)


@two_faces
def test_connections_that_break_within_replies(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    with Network(node) as network:
        client = drivers.start(face).client(network.urls, ttl_ms=LONG_TTL_MS)
        for passed in (0, 1, 4, 30):

            def cut(passed: int = passed) -> None:
                for link in network.links:
                    link.replies(Faults(cut_after=passed))

            connect_to_all(client, node, f"{name}/{passed}")
            every_answer_is_its_own(client, node, f"{name}/{passed}", cut)


def every_answer_is_its_own(client: Client, nodes: Cluster, name: str, harm: Callable[[], None]) -> None:
    """Acquires many locks at once, every second of which others hold, and does `harm` before every step."""
    locks = [client.lock(f"{name}/{i}") for i in range(NAMES)]
    free, taken = locks[::2], locks[1::2]
    for lock in taken:
        for server in nodes:
            server.command("SET", lock.name, "another library's token", "PX", LONG_TTL_MS)
    harm()
    calls = [lock.start_acquire(timeout_ms=10_000 if lock in free else 0) for lock in locks]
    assert [won(call) for call in calls] == [lock in free for lock in locks]
    for lock in free:
        values = [server.get(lock.name) or b"" for server in nodes]
        assert any(b":%d:" % (lock.fence or 0) in value for value in values), "this is another lock's fence"
    harm()
    for lock, call in [(lock, lock.driver.start("extend", lock=lock.handle)) for lock in free]:
        try:
            call.result()
        except LockError as error:
            if error.code != "unavailable":
                raise
            # A process makes no more than twenty connections a second to a node that ends them.
            reached(lock.extend)
    harm()
    for lock in free:
        try:
            lock.release()
        except LockError as error:
            if error.code != "unavailable":
                raise
    until(lambda: not any(nodes.has(lock.name) for lock in free), "no key of ours is left")
    assert all(nodes.has(lock.name) for lock in taken)


@every_face
def test_one_server_under_two_addresses(drivers: Drivers, five_nodes: Cluster, face: str, name: str) -> None:
    """The server votes once: with another one it is a quorum of three, and alone it is not one of two."""
    driver = drivers.fresh(face)
    one, other = five_nodes[0], five_nodes[1]
    with Network([one, one, other]) as network:
        client = driver.client(network.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
        lock = client.lock(name)
        lock.acquire()
        first, second, _ = (found["node"] for found in client.diagnose())
        heard(driver, "node_listed_twice", node=second, other=first)
        assert one.get(name)
        assert other.get(name), "it was acquired without the second server"
        lock.release()
        no_key_left(five_nodes, name)
        network.proxies[2].refuse(True)
        network.proxies[2].reset()
        assert not won(lock.start_acquire(timeout_ms=0)), "one server has voted twice"
        no_key_left(five_nodes, name)
    with Network([one, one]) as network:
        with pytest.raises(LockError) as refused:
            driver.client(network.urls).lock(name).acquire(timeout_ms=10_000)
        assert refused.value.code == "invalid_argument"
        no_key_left(five_nodes, name)


@every_face
@pytest.mark.parametrize("n", [1, 3], ids=["one node", "three nodes"])
def test_servers_that_are_replaced_by_empty_ones(
    drivers: Drivers, own_nodes: Cluster, face: str, n: int, name: str
) -> None:
    """The new servers do not know the holder, so they have no vote for one ttl."""
    ttl_ms = 2 * SLACK_MS
    quorum = n // 2 + 1
    first = list(own_nodes)[:n]
    with Network(first) as network:
        options = {"ttl_ms": ttl_ms, "node_timeout_ms": ttl_ms - 100, "auto_renew": False}
        client = drivers.start(face).client(network.urls, **options)
        holder, other = client.lock(name), client.lock(name)
        connect_to_all(client, first, name)
        fence = holder.acquire()["fence"]
        replaced_ns = now_ns()
        for proxy, server in zip(network.proxies[:quorum], list(own_nodes)[3:], strict=False):
            proxy.server = server
            proxy.reset()
        assert not won(other.start_acquire(timeout_ms=0)), "an empty server has voted"
        # It also waits for the holder, which is still valid for a moment; the history judges that at the end.
        next_one = other.acquire(timeout_ms=10_000)
        assert ttl_ms * 1e6 <= next_one["return_ns"] - replaced_ns
        assert next_one["fence"] > fence
        other.release()
    no_key_left(own_nodes, name)


@every_face
def test_connections_to_the_server_before_are_given_up(
    drivers: Drivers, own_nodes: Cluster, face: str, name: str
) -> None:
    """The address leads to another server now, as a new connection shows, and the older ones still work."""
    driver = drivers.start(face)
    with Network([own_nodes[0]]) as network:
        options = {"ttl_ms": 2000, "node_timeout_ms": IMPATIENT_MS}
        holder = driver.client(network.urls, **options).lock(name)
        holder.acquire()
        end_ns = end(holder.state())
        until(lambda: end(holder.state()) > end_ns + 300e6, "it is renewed")
        network.proxies[0].server = own_nodes[1]
        loss = holder.start_wait_lost(limit_ms=20_000)
        # A client with connections of its own.
        other = driver.client(network.urls, connect_timeout_ms=CONNECT_MS + 1, **options).lock(name)
        # The new server has no vote for one ttl. The history judges that at most one holds the lock.
        other.acquire(timeout_ms=20_000)
        assert loss.result()["lost"]["reason"] == "deleted"
        other.release()
