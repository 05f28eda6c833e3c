"""A Redis Cluster as a node: locks and waiters follow the slot of their name."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from conformance.conftest import Drivers, every_face, log_ends, shown
from conformance.driver import Client, LockError
from conformance.story import fence_key, heard, reached, several, slot_key
from conformance.test_slots import is_on_its_way
from conformance.test_waiting import calls
from support.clock import until
from support.resp import ReplyError
from support.rights import in_cluster
from support.servers import Cluster, Server, User
from support.shards import Shards
from support.topology import cluster

TTL_MS = 6000
"""Long enough to outlive a failover here, so that held locks stay held."""

OUTLIVING_TTL_MS = 12_000
"""The same where the cluster has to elect: an election that fails is repeated after four seconds."""

LONG_TTL_MS = 60_000

BEGINS_MOST, SENT_ON_MOST = 1 + 5, 1 + 5
"""A call begins again five times, and each of its requests is sent on five times. Nothing goes round in circles."""


@pytest.fixture(scope="session")
def started(user: User | None) -> Iterator[Callable[[Path], Shards]]:
    """Clusters that test cases share, by their program."""
    with ExitStack() as stack:
        yield cache(lambda program: stack.enter_context(cluster(replicas=1, program=program, user=user)))


@pytest.fixture
def shards(request: pytest.FixtureRequest, program: Path, started: Callable[[Path], Shards]) -> Iterator[Shards]:
    """Three primaries with a replica each, shared with other test cases: move the slots of your own names alone."""
    with shown(request, "servers", lambda: log_ends(started(program))):
        yield started(program)


@pytest.fixture
def own_shards(start_shards: Callable[..., Shards]) -> Shards:
    """Three primaries with a replica each, of this test case alone."""
    return start_shards(3, replicas=True)


@pytest.fixture
def two(start_shards: Callable[..., Shards]) -> Shards:
    """Two primaries without replicas, of this test case alone. Each needs the other to serve."""
    return start_shards(2).without_deaths()


@pytest.fixture(params=["ip", "unknown-endpoint"])
def named(request: pytest.FixtureRequest, shards: Shards) -> Iterator[None]:
    """Servers name each other so. Behind a proxy or in a container, the host is the one that the client has reached."""

    def name_by(endpoint: str) -> None:
        for server in shards:
            # Redis 6.2 names every host.
            with contextlib.suppress(ReplyError):
                server.command("CONFIG", "SET", "cluster-preferred-endpoint-type", endpoint)

    name_by(request.param)
    yield
    name_by("ip")


def refusal(client: Client, name: str) -> str:
    """Why a quorum cannot be asked for a lock."""
    with pytest.raises(LockError) as refused:
        client.lock(name).acquire(timeout_ms=0)
    assert refused.value.code == "unavailable"
    return refused.value.message


@every_face
@pytest.mark.usefixtures("named")
def test_a_held_lock_and_its_waiter_follow_the_slot(drivers: Drivers, shards: Shards, face: str, name: str) -> None:
    holder = drivers.start(face).client([shards.url], ttl_ms=TTL_MS).lock(name)
    fence = holder.acquire()["fence"]
    waiter = drivers.start(face).client([shards.url], ttl_ms=TTL_MS).lock(name)
    waiting = waiter.start_acquire()
    shard = shards.shard(name)
    source, target = shards.owner(name), shards.servers[(shard + 1) % shards.primaries]
    assert source.command("EXISTS", name)
    shards.open(name, source, target)
    shards.move_all(name, source, target)
    # The server answers ASK, and MOVED afterwards.
    holder.extend()
    shards.close(name, source, target)
    holder.extend()
    assert not drivers.start(face).client([shards.url]).lock(name).try_acquire()
    assert waiting.pending
    holder.release()
    won = waiting.result()
    assert won["fence"] > fence
    assert target.command("EXISTS", name)
    waiter.release()
    until(lambda: not target.command("EXISTS", name), "the lock is free")


def killed(shards: Shards, primary: Server) -> None:
    """The primary dies."""
    primary.kill()
    shards.successor(primary)


def frozen(shards: Shards, primary: Server) -> None:
    """It hangs, and takes writes for a moment when it goes on, until it hears of the other one."""
    primary.freeze()
    shards.successor(primary)
    primary.thaw()


def planned(shards: Shards, primary: Server) -> None:
    """It steps back in good order."""
    shards.fail_over(shards.servers.index(primary))


@every_face
@pytest.mark.parametrize("end", [killed, frozen, planned])
def test_a_held_lock_outlives_its_primary(
    drivers: Drivers, own_shards: Shards, face: str, end: Callable[[Shards, Server], None], name: str
) -> None:
    shards = own_shards
    holder = drivers.fresh(face).client([shards.url], ttl_ms=OUTLIVING_TTL_MS).lock(name)
    holder.acquire()
    waiter = drivers.start(face).client([shards.url], restart_delay_ms=0).lock(name)
    waiting = waiter.start_acquire()
    codes: list[str] = []

    def has_begun() -> bool:
        codes.extend(event["code"] for event in holder.driver.events())
        return "connect_failed" in codes

    until(has_begun, "the first connect has only asked for the map")
    assert "node_unreachable" not in codes
    shard = shards.shard(name)
    primary, replica = shards.servers[shard], shards.servers[shards.primaries + shard]
    replica.await_all_of(primary)
    extended = calls(replica, "pexpire")
    end(shards, primary)
    until(lambda: calls(replica, "pexpire") > extended, "it is extended there")
    event = heard(holder.driver, "failover", to=f"127.0.0.1:{replica.port}")
    assert event["fields"]["from"] == f"127.0.0.1:{primary.port}"
    assert event["fields"]["node"].startswith("redis+cluster://")
    holder.check()
    assert waiting.pending
    holder.release()
    waiting.result()
    assert replica.has(name)
    waiter.release()
    until(lambda: not replica.command("EXISTS", name), "the lock is free")


def test_a_shard_that_is_down(drivers: Drivers, two: Shards, name: str) -> None:
    """Names of the other shard do not notice, unless the cluster wants all slots. The lock is used again afterwards."""
    client = drivers.start("rust").client([two.url], ttl_ms=LONG_TTL_MS)
    dead, other, number = two.owner(name), two.other(name), two.slot(name)
    elsewhere = next(each for each in (f"{name}/{n}" for n in itertools.count()) if two.owner(each) is other)
    lock, further = client.lock(name), client.lock(elsewhere)
    lock.acquire()
    dead.freeze()
    refusal(client, f"{{{name}}}2")
    assert further.try_acquire()
    further.release()
    dead.thaw()
    for coverage in ("no", "yes"):
        for server in two:
            server.command("CONFIG", "SET", "cluster-require-full-coverage", coverage)

        def is_down() -> bool:
            for server in two:
                # One may have heard of the slot again from another one.
                with contextlib.suppress(ReplyError):
                    server.command("CLUSTER", "DELSLOTS", number)
            try:
                return not dead.command("EXISTS", name)
            except ReplyError as error:
                return str(error).startswith("CLUSTERDOWN")

        until(is_down, "it does not have the slot")
        told = "slots without a primary|does not have a primary for this name's slot now"
        with pytest.raises(LockError, match=told) as failed:
            lock.extend()
        assert failed.value.code == "unavailable"
        lock.check()
        assert re.search(told, refusal(client, f"{{{name}}}2"))
        dead.command("CLUSTER", "ADDSLOTS", number)
        two.settled()
        # It is the same server as before, and not in quarantine.
        reached(lock.extend)
        further = client.lock(f"{{{name}}}3")
        further.acquire()
        further.release()


def test_two_servers_that_name_each_other(drivers: Drivers, two: Shards, name: str) -> None:
    # Each call ends by what the servers answer, however long a busy machine takes for it.
    patient = {"node_timeout_ms": LONG_TTL_MS / 4, "connect_timeout_ms": LONG_TTL_MS / 4}
    client = drivers.start("rust").client([two.url], ttl_ms=LONG_TTL_MS, **patient)
    one, other, number = two.owner(name), two.other(name), two.slot(name)
    # A renewal would be counted too.
    lock = client.lock(name, auto_renew=False)
    lock.acquire()
    ids = [server.command("CLUSTER", "MYID") for server in (one, other)]
    # A server that has keys of a slot cannot be told that another one has it.
    two.open(name, one, other)
    two.move_all(name, one, other)
    for server, named in ((one, ids[1]), (other, ids[0])):
        server.command("CLUSTER", "SETSLOT", number, "STABLE")
        server.command("CLUSTER", "SETSLOT", number, "NODE", bytes(named))  # type: ignore[arg-type]

    def rejected() -> int:
        told = b"".join(server.info("commandstats") for server in two)
        return sum(int(count) for count in re.findall(rb"cmdstat_eval.*rejected_calls=(\d+)", told))

    sends_on = "sends requests on to 127.0.0.1:"
    lacks = f"does not have this name's slot, and {sends_on}"
    for call, says, most in (
        (lambda: client.lock(name).acquire(timeout_ms=0), lacks, BEGINS_MOST),
        (lambda: client.lock(name).is_locked(), sends_on, BEGINS_MOST * SENT_ON_MOST),
        (lock.extend, f"stays valid for as long as it was.*{sends_on}", BEGINS_MOST * SENT_ON_MOST),
        (lock.release, f"it is retried in the background.*{sends_on}", None),
    ):
        before = rejected()
        with pytest.raises(LockError, match=says) as failed:
            call()
        assert failed.value.code == "unavailable"
        # The background goes on with a release.
        assert most is None or 1 <= rejected() - before <= most
    for server in (other, one):
        server.command("CLUSTER", "SETSLOT", number, "NODE", bytes(ids[1]))  # type: ignore[arg-type]
    until(lambda: not other.command("EXISTS", name), "it is released")
    assert reached(client.lock(name).acquire)


@pytest.mark.parametrize("dead", range(3))
def test_a_cluster_is_one_node_of_several(
    drivers: Drivers, two: Shards, program: Path, user: User | None, dead: int, name: str
) -> None:
    with Cluster(2, program=program, user=user) as singles:
        client = drivers.start("rust").client([two.url, *singles.urls], ttl_ms=LONG_TTL_MS)
        servers = [two.owner(name), *singles]
        lock = client.lock(name)
        lock.acquire()
        until(lambda: all(server.has(name) for server in servers), "all have it")
        servers[dead].kill()
        lock.extend()
        assert not client.lock(name).try_acquire()
        lock.release()
        until(lambda: not any(server.has(name) for server in servers if server.running), "none has it")
        again = client.lock(name)
        again.acquire()
        assert all(server.has(name) for server in servers if server.running), "both are needed"


@every_face
def test_operators_of_a_cluster(drivers: Drivers, shards: Shards, user: User | None, face: str, name: str) -> None:
    """Locks are listed from all shards, and one is broken wherever its key is."""
    if user:
        for server in shards:
            server.set_user(user.name, "+scan")
    client = drivers.start(face).client([shards.url])
    names = [f"{name}/{number:02}" for number in range(20)]
    locks = [client.lock(each) for each in names]
    for lock in locks:
        lock.acquire()
    assert len({shards.owner(each) for each in names}) == shards.primaries
    exactly = re.sub(r"([\\*?\[\]])", r"\\\1", name)
    assert [view["name"] for view in client.list_locks(f"{exactly}/*")] == names
    source, target = shards.owner(names[0]), shards.other(names[0])
    shards.open(names[0], source, target)
    shards.move_all(names[0], source, target)
    assert client.break_lock(names[0])
    shards.close(names[0], source, target)
    assert client.inspect(names[0])["state"] == "free"
    for lock in locks[1:]:
        lock.release()


@every_face
def test_names_in_different_slots(drivers: Drivers, shards: Shards, face: str, name: str) -> None:
    """No script can touch them together, and nothing is sent."""
    others = (f"{name}/{number}" for number in itertools.count())
    other = next(each for each in others if shards.slot(each) != shards.slot(name))
    client = drivers.start(face).client([shards.url])
    with pytest.raises(LockError, match="hash tag") as refused:
        client.lock_all([other, name]).acquire()
    assert (refused.value.code, refused.value.option) == ("invalid_argument", "names")
    assert not any(shards.owner(each).command("EXISTS", each) for each in (name, other))
    assert client.lock_all([f"{{{name}}}{other}", f"{{{name}}}"]).try_acquire()


@every_face
def test_several_names_in_an_open_slot(drivers: Drivers, shards: Shards, face: str, name: str) -> None:
    """Some of them have moved, so no script can touch all. They stay held, and are released name by name."""
    names, parts = several(name), [f"{{{name}}}-{part}" for part in ("none", "fence", "lock", "both")]
    # A call goes from name to name and from server to server, for which a busy machine takes long.
    client = drivers.start(face).client([shards.url], ttl_ms=LONG_TTL_MS, node_timeout_ms=LONG_TTL_MS / 4)
    lock, slot = client.lock_all(names), client.semaphore(name, 1)
    every = [lock, slot, *map(client.lock, parts)]
    for each in every:
        each.acquire()
    source, target = shards.owner(name), shards.other(name)
    shards.open(name, source, target)
    _, fence, alone, both = parts
    moved = [names[1], slot_key(name, 0), fence_key(fence), alone, both, fence_key(both)]
    shards.move_keys(moved, source, target)
    for each in every:
        before = each.state()
        after = each.extend()
        assert after["read_ns"] + after["remaining_ms"] * 1e6 > before["read_ns"] + before["remaining_ms"] * 1e6
    for each in every:
        each.release()
    keys = [*names, slot_key(name, 0), *parts]
    until(lambda: not any(is_on_its_way(key, target) for key in keys), "what has moved is released")
    left = source.command("CLUSTER", "GETKEYSINSLOT", shards.slot(name), 100)
    assert isinstance(left, list)
    assert not {key.encode() for key in keys} & {key for key in left if isinstance(key, bytes)}
    shards.move_all(name, source, target)
    shards.close(name, source, target)
    assert lock.acquire()["fence"] > 0
    assert slot.try_acquire()


@every_face
def test_a_diagnosis_tells_of_an_open_slot(
    drivers: Drivers, own_shards: Shards, user: User | None, face: str, name: str
) -> None:
    shards = own_shards
    shard = shards.shard(name)
    source, target = shards.servers[shard], shards.servers[(shard + 1) % shards.primaries]
    if user:
        for server in shards.servers:
            server.set_user(user.name, "+cluster|nodes")
    client = drivers.start(face).client([shards.url])
    before = [finding for diagnosis in client.diagnose() for finding in diagnosis["findings"]]
    checks = {finding["check"] for finding in before if finding["level"] == "ok"}
    # A failover forgets. This user may not ask for the rest.
    assert user or checks >= {"cluster", "slots", "coverage", "failover", "map"}
    assert user or {finding["check"] for finding in before if finding["level"] != "ok"} == {"replicas"}
    shards.open(name, source, target)
    diagnoses = client.diagnose()
    found = {
        diagnosis["node"]: finding
        for diagnosis in diagnoses
        for finding in diagnosis["findings"]
        if "open, on the way" in finding["message"]
    }
    assert found.keys() == {source.address, target.address}
    assert {(finding["check"], finding["level"]) for finding in found.values()} == {("slots", "warning")}
    begin = f"slot {shards.slot(name)} open, on the way "
    assert found[source.address]["message"].startswith(f"{begin}to 127.0.0.1:{target.port}: held locks stay held")
    assert found[target.address]["message"].startswith(f"{begin}here from 127.0.0.1:{source.port}; ")


@every_face
def test_a_server_that_is_not_in_a_cluster(
    drivers: Drivers, program: Path, user: User | None, face: str, name: str
) -> None:
    with Server(tcp=True, program=program, user=user and in_cluster(user)) as server:
        url = server.url.replace("redis://", "redis+cluster://")
        with pytest.raises(LockError) as refused:
            drivers.start(face).client([url]).lock(name).acquire(timeout_ms=0)
    assert refused.value.code == "unavailable"
    ((_, vote),) = refused.value.nodes
    assert "list it as redis://" in vote
