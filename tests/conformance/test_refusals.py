"""Nodes that answer with a refusal, first a minority and then a majority, and how locks recover."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import LockError
from conformance.story import connect_to_all, fence_key, one_try_ms, reached, within
from support.clock import until
from support.servers import Cluster, ReplyError, Server

USER, PASSWORD = "worker", "S3CR3T"
FULL_RIGHTS = ("on", f">{PASSWORD}", "~*", "&*", "+@all")
LIMIT_MS = 10_000
NODE_TIMEOUT_MS = 1_500
"""Longer than a busy machine stands still, so that each refusal is heard."""
TOO_MANY = 1 << 53
"""The first fence that some languages cannot distinguish from its neighbours."""

both_drives = pytest.mark.parametrize("face", ["python", "node"])
"""One face whose calls run where the caller is, and one whose calls run in the background."""

End = Callable[[], object]


def full(server: Server, _: str) -> End:
    """Is at `maxmemory`, with nothing to evict."""
    server.configure(maxmemory_policy="noeviction", maxmemory=1)
    return lambda: server.configure(maxmemory=0)


def cannot_save(server: Server, _: str) -> End:
    """Cannot save snapshots, so it accepts no writes, not even deletions."""
    server.configure(save="3600 1")
    (server.data / "dump.rdb").mkdir()
    server.command("BGSAVE")
    until(lambda: b"rdb_last_bgsave_status:err" in server.info("persistence"), "saving has failed")
    return lambda: server.configure(save="")


def read_only(server: Server, _: str) -> End:
    """Is a replica of a master that is gone."""
    server.command("REPLICAOF", "127.0.0.1", 1)
    return lambda: server.command("REPLICAOF", "NO", "ONE")


def short_of_replicas(server: Server, _: str) -> End:
    """Accepts writes only with replicas that it does not have."""
    server.configure(min_replicas_to_write=3)
    return lambda: server.configure(min_replicas_to_write=0)


def busy(server: Server, _: str) -> End:
    """Runs another client's script, which does not end."""
    runaway = run_away(server, "while true do end")

    def end() -> None:
        server.command("SCRIPT", "KILL")
        until(lambda: not is_busy(server), "the script is out of the way")
        runaway()

    return end


def unkillable(server: Server, _: str) -> End:
    """Runs a script that has written, so only the end of the server ends it."""
    runaway = run_away(server, "redis.call('SET', 'written', 1) while true do end")
    with pytest.raises(ReplyError, match="UNKILLABLE"):
        server.command("SCRIPT", "KILL")

    def end() -> None:
        server.restart()
        runaway()

    return end


def run_away(server: Server, script: str) -> End:
    """Runs a script that does not end."""
    server.configure(lua_time_limit=10)
    connection = server.connect()
    connection.send("EVAL", script, 0)
    until(lambda: is_busy(server), "the script is in the way")
    return connection.close


def is_busy(server: Server) -> bool:
    """Whether a script blocks all clients."""
    try:
        server.command("PING")
    except ReplyError as error:
        return str(error).startswith("BUSY")
    return False


def paused(server: Server, _: str) -> End:
    """Pauses all writes, as managed services do before a failover."""
    server.command("CLIENT", "PAUSE", 60_000, "WRITE")
    return lambda: server.command("CLIENT", "UNPAUSE")


def crowded(server: Server, _: str) -> End:
    """Has its maximum of clients, and the library is not among them."""
    admin = server.connect()
    admin.ask("CONFIG", "SET", "maxclients", 1)
    admin.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def end() -> None:
        admin.ask("CONFIG", "SET", "maxclients", 1000)
        admin.close()

    return end


def fence_of_another_type(server: Server, name: str) -> End:
    """Has a key of another type in the place of the fence."""
    server.command("DEL", fence_key(name))
    server.command("RPUSH", fence_key(name), "x")
    return lambda: server.command("DEL", fence_key(name))


def fence_used_up(server: Server, name: str) -> End:
    """The next fence would not be exact in every language."""
    server.command("SET", fence_key(name), TOO_MANY)
    return lambda: server.command("DEL", fence_key(name))


def without(*rules: str) -> Callable[[Server, str], End]:
    """Changes the user's rights by these rules while the user is connected."""

    def begin(server: Server, _: str) -> End:
        server.set_user(USER, *rules)
        if "off" in rules:
            # A user stays logged in on open connections.
            server.command("CLIENT", "KILL", "USER", USER)
        return lambda: server.set_user(USER, *FULL_RIGHTS)

    return begin


@dataclass(frozen=True)
class Refusal:
    """A request that a node refuses."""

    begin: Callable[[Server, str], End]
    says: str
    """The text of the node's vote, as a regular expression."""
    code: str = "unavailable"
    spares_holders: bool = False
    """Whether a holder can still extend and release."""
    persist: bool = False
    """Whether a restart ends it, after which the data have to be there."""


REFUSALS = {
    "out of memory": Refusal(full, "OOM", spares_holders=True),
    "cannot save": Refusal(cannot_save, "MISCONF"),
    "read-only": Refusal(read_only, "READONLY|is a replica"),
    "short of replicas": Refusal(short_of_replicas, "NOREPLICAS"),
    "busy": Refusal(busy, "BUSY"),
    "unkillable": Refusal(unkillable, "BUSY", persist=True),
    "paused": Refusal(paused, "no answer within|does not answer"),
    "crowded": Refusal(crowded, "closed the connection|cannot be reached|max number of clients"),
    "fence of another type": Refusal(fence_of_another_type, "FENCE", spares_holders=True),
    "fence used up": Refusal(fence_used_up, "FENCE", spares_holders=True),
    "no right to set": Refusal(without("-set"), "NOPERM", "forbidden", spares_holders=True),
    "no right to scripts": Refusal(without("-@scripting"), "NOPERM", "forbidden"),
    "no right to keys": Refusal(without("resetkeys"), "NOPERM", "forbidden"),
    "user is off": Refusal(without("off"), "WRONGPASS", "forbidden"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
@both_drives
def test_refusing_nodes(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, refusal: Refusal, name: str
) -> None:
    """A minority delays no call. A majority is an error in time that gives the reason, and then everything recovers."""
    nodes = start_nodes(3, persist=refusal.persist, options=("--user", USER, *FULL_RIGHTS))
    driver = drivers.start(face)
    urls = [server.url_as(USER, PASSWORD) for server in nodes]
    client = driver.client(urls, restart_delay_ms=0, node_timeout_ms=NODE_TIMEOUT_MS)
    held, lock = client.lock(f"held {name}", ttl_ms=60_000, auto_renew=False), client.lock(name, timeout_ms=0)
    connect_to_all(client, nodes, name)
    held.acquire()
    until(lambda: all(server.command("EXISTS", held.name) for server in nodes), "every node has granted the lock")

    ends = [refusal.begin(nodes[0], name)]
    lock.acquire(timeout_ms=LIMIT_MS)
    assert not client.lock(name).try_acquire()
    held.extend()
    lock.release()

    ends.append(refusal.begin(nodes[1], name))
    with within(one_try_ms(NODE_TIMEOUT_MS)), pytest.raises(LockError) as refused:
        lock.acquire()
    assert (refused.value.code, refused.value.name) == (refusal.code, name)
    assert len(refused.value.nodes) == len(nodes)
    for node, vote in refused.value.nodes[:2]:
        assert re.search(refusal.says, vote), f"{node}: {vote}"
    if refusal.spares_holders:
        held.extend()
    else:
        with within(NODE_TIMEOUT_MS + 1000), pytest.raises(LockError) as not_extended:
            held.extend()
        assert not_extended.value.code == "unavailable"
        held.check()
    assert PASSWORD not in driver.said()

    for end in ends:
        end()
    reached(lambda: lock.acquire(timeout_ms=LIMIT_MS), refusal.code)
    lock.release()
    until(lambda: not nodes.has(lock.name), "nothing of any attempt is left")
    held.extend()
    held.release()
    until(lambda: not nodes.has(held.name), "the last node has released it")


@every_face
def test_rights_are_withdrawn(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str) -> None:
    """A forbidden request is not retried for ever: waiters are notified at once, and so are later calls."""
    (server,) = nodes = start_nodes(1, options=("--user", USER, *FULL_RIGHTS))
    driver = drivers.start(face)
    client = driver.client([server.url_as(USER, PASSWORD)])
    holder, waiter = client.lock(name), client.lock(name)
    holder.acquire()
    waiting = waiter.start_acquire()
    # The waiter asks again after a while even if no node reports a change, and is refused then.
    server.set_user(USER, "-@scripting")
    with within(2000):
        failed = [error_of(waiting.result), error_of(lambda: client.lock(name).try_acquire())]
    for error in failed:
        assert error.code == "forbidden"
        assert [vote for _, vote in error.nodes if "NOPERM" in vote], error.nodes
    holder.check()
    server.set_user(USER, *FULL_RIGHTS)
    holder.release()
    waiter.acquire()
    waiter.release()
    assert not nodes.has(name)
    assert PASSWORD not in driver.said()


def error_of(call: Callable[[], object]) -> LockError:
    """The error with which `call` fails."""
    with pytest.raises(LockError) as raised:
        call()
    return raised.value


@both_drives
def test_lock_key_of_another_type_is_held(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    """Whatever the key is, the library must not remove it, whether it was there before or has replaced our lock."""
    nodes = start_nodes(3)
    client = drivers.start(face).client(nodes.urls)
    connect_to_all(client, nodes, name)
    lock = client.lock(name, auto_renew=False)
    for server in nodes:
        server.command("RPUSH", name, "x")
    assert not lock.try_acquire()
    assert all(server.command("LLEN", name) == 1 for server in nodes)
    for server in nodes:
        server.command("DEL", name)
    lock.acquire()
    for server in nodes:
        server.command("DEL", name)
        server.command("RPUSH", name, "x")
    lost = error_of(lock.extend)
    assert (lost.code, lost.reason) == ("lost", "taken")
    assert all(server.command("LLEN", name) == 1 for server in nodes)


@both_drives
def test_scripts_are_forgotten(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str) -> None:
    """A server may drop its scripts at any time. It is then sent their text, and callers do not notice."""
    nodes = start_nodes(3)
    lock = drivers.start(face).client(nodes.urls).lock(name, timeout_ms=LIMIT_MS)
    for call in 2 * (lock.acquire, lock.extend, lock.release):
        call()
        for server in nodes:
            server.command("SCRIPT", "FLUSH")
    until(lambda: not nodes.has(name), "the last node has released it")
