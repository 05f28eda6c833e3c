"""Nodes that end and come back with all of their data, with some, with none, or as another server."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from conformance.conftest import Drivers
from conformance.driver import Client, LockError
from conformance.history import History
from conformance.story import connect_to_all, one_try_ms, reached, within
from support.clock import until
from support.servers import Cluster, Server

TTL_MS = 3000
"""A ttl of locks that stay held on a slow machine, and a quarantine that a test case waits for."""
LONG_TTL_MS = 60_000
LIMIT_MS = 10_000
SHORT_MS = 200
"""A timeout that ends long before a quarantine."""
NODE_TIMEOUT_MS = 500
WHOLE_SECONDS_MS = 1000
"""A server reports its uptime in whole seconds, so a quarantine may last up to a second longer."""

both_drives = pytest.mark.parametrize("face", ["python", "node"])
"""One face whose calls run where the caller is, and one whose calls run in the background."""


def crash(server: Server) -> Callable[[], None]:
    """Crashes and keeps nothing on its disk."""
    return server.wipe


def power_cut(server: Server) -> Callable[[], None]:
    """Writes down what it does, but the last writes have not reached the disk."""
    written = server.written()
    return lambda: server.lose_power(written)


def old_snapshot(server: Server) -> Callable[[], None]:
    """Is restored with older data."""
    snapshot = server.snapshot()
    return lambda: server.restore(snapshot)


FORGET = [crash, power_cut, old_snapshot]


@pytest.mark.parametrize("begin", FORGET)
@pytest.mark.parametrize("n", [1, 3], ids=["one node", "three nodes"])
@both_drives
def test_nodes_that_have_forgotten_a_lock_do_not_grant_it(
    drivers: Drivers,
    start_nodes: Callable[..., Cluster],
    face: str,
    n: int,
    begin: Callable[[Server], Callable[[], None]],
    name: str,
) -> None:
    """It has no vote before its ttl has passed; the history judges that there is one holder at a time."""
    nodes = start_nodes(n, persist=begin is not crash)
    client = drivers.start(face).client(nodes.urls, ttl_ms=TTL_MS, node_timeout_ms=NODE_TIMEOUT_MS)
    holder = drivers.start("rust").client(nodes.urls).lock(name, ttl_ms=TTL_MS, auto_renew=False)
    connect_to_all(client, nodes, name)
    majority = n // 2 + 1
    forget = [begin(server) for server in list(nodes)[:majority]]
    fence = holder.acquire()["fence"]
    for each in forget:
        each()
    connect_again(client, name)
    for timeout_ms in (0, SHORT_MS):
        with within(one_try_ms(NODE_TIMEOUT_MS) + timeout_ms), pytest.raises(LockError) as barred:
            client.lock(name, ttl_ms=LONG_TTL_MS).acquire(timeout_ms=timeout_ms)
        assert barred.value.code == "unavailable"
        assert len(barred.value.nodes) == n
        for _, vote in barred.value.nodes[:majority]:
            assert "restarted; its votes count again in" in vote
    waiter = client.lock(name)
    with within(TTL_MS + WHOLE_SECONDS_MS):
        # Who only waits waits for the votes, too.
        waiting = client.start_wait_free(f"{name}/other")
        won = waiter.acquire(timeout_ms=LIMIT_MS)
        assert waiting.result()["free"]
    assert won["fence"] > fence
    waiter.release()
    until(lambda: not nodes.has(name), "the lock is free")
    waiter.acquire()


@pytest.mark.parametrize("n", [1, 3], ids=["one node", "three nodes"])
@both_drives
def test_restart_delay_may_be_switched_off(
    drivers: Drivers, history: History, start_nodes: Callable[..., Cluster], face: str, n: int, name: str
) -> None:
    """A lock that the nodes have forgotten is then granted at once, and only the fence shows which holder is late."""
    history.rule("--no-exclusion")
    nodes = start_nodes(n)
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, restart_delay_ms=0)
    holder = drivers.start("rust").client(nodes.urls).lock(name, ttl_ms=LONG_TTL_MS, auto_renew=False)
    connect_to_all(client, nodes, name)
    fence = holder.acquire()["fence"]
    for server in nodes:
        server.wipe()
    connect_again(client, name)
    assert client.lock(name).acquire(timeout_ms=LIMIT_MS)["fence"] > fence
    until(lambda: all(server.has(name) for server in nodes), "every node has granted it")
    with pytest.raises(LockError) as lost:
        holder.extend()
    assert (lost.value.code, lost.value.reason) == ("lost", "taken")


@both_drives
def test_process_that_starts_after_a_restart_knows_nothing_of_it(
    drivers: Drivers, history: History, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    """The promise ends there: the process gets a lock that the node has forgotten, and the fence shows who is late."""
    history.rule("--no-exclusion")
    (server,) = nodes = start_nodes(1)
    holder = drivers.start("rust").client(nodes.urls).lock(name, ttl_ms=LONG_TTL_MS, auto_renew=False)
    fence = holder.acquire()["fence"]
    server.wipe()
    newcomer = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=LONG_TTL_MS)
    assert newcomer.acquire(timeout_ms=LIMIT_MS)["fence"] > fence
    with pytest.raises(LockError) as lost:
        holder.extend()
    assert (lost.value.code, lost.value.reason) == ("lost", "taken")
    newcomer.release()


def connect_again(client: Client, name: str) -> None:
    """Waits until the client is connected to every node, and so has seen which nodes are new."""
    until(lambda: all(node["state"] != "unavailable" for node in client.inspect(name)["nodes"]), "every node is seen")


@both_drives
def test_clean_restart_keeps_locks(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str) -> None:
    """The holder continues, no other client gets its lock, and its ttl has continued while the server was down."""
    (server,) = nodes = start_nodes(1, persist=True)
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    holder, other = client.lock(name, auto_renew=False), client.lock(name, restart_delay_ms=0)
    fence = holder.acquire()["fence"]
    before_ms, asked = ttl_left_ms(server, name), time.monotonic()
    server.shut_down()
    with pytest.raises(LockError) as down:
        holder.extend()
    assert down.value.code == "unavailable"
    holder.check()
    server.restart()
    down_ms = (time.monotonic() - asked) * 1000
    assert ttl_left_ms(server, name) <= before_ms - down_ms + 1, "its ttl has stood still"
    assert not reached(other.try_acquire)
    assert reached(holder.extend)["fence"] == fence
    holder.release()
    assert not nodes.has(name)
    assert other.acquire(timeout_ms=LIMIT_MS)["fence"] > fence


def ttl_left_ms(server: Server, name: str) -> int:
    """How long the lock lasts on the server."""
    left = server.left_ms(name)
    assert left > 0, "it is not there"
    return left


@both_drives
def test_node_that_loads_its_data(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str) -> None:
    """The node reports it, a single try does not wait for it, and it counts when it has loaded."""
    # The file has 10,000 commands, which take longer together than a busy machine stands still.
    (server,) = nodes = start_nodes(1, persist=True, options=("--key-load-delay", "200"))
    client = drivers.start(face).client(nodes.urls, restart_delay_ms=0)
    holder, other = client.lock(name, ttl_ms=LONG_TTL_MS), client.lock(name)
    holder.acquire()
    server.command("EVAL", "for i = 1, 10000 do redis.call('SET', 'k' .. i, i) end", 0)
    server.kill()
    server.restart(wait=False)
    refused: list[LockError] = []

    def says_loading() -> bool:
        with within(one_try_ms(NODE_TIMEOUT_MS)), pytest.raises(LockError) as error:
            other.acquire(timeout_ms=0)
        refused.append(error.value)
        return "LOADING" in error.value.message

    until(says_loading, "the node says that it loads")
    assert {error.code for error in refused} == {"unavailable"}
    holder.check()
    until(lambda: not still_loads(server), "it has loaded")
    assert not reached(other.try_acquire)
    holder.extend()
    holder.release()
    other.acquire(timeout_ms=LIMIT_MS)


def still_loads(server: Server) -> bool:
    """Whether the node reports that it loads."""
    return b"loading:1" in server.info("persistence")
