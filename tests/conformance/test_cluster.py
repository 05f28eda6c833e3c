"""A Redis Cluster as a node: locks and waiters follow the slot of their name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from conformance.conftest import Drivers, every_face, log_ends, shown
from conformance.driver import LockError
from conformance.story import heard, several, slot_key
from conformance.test_slots import is_on_its_way
from conformance.test_waiting import calls
from support.clock import until
from support.rights import in_cluster
from support.servers import Server, User
from support.shards import Shards

TTL_MS = 6000
"""Long enough to outlive a failover here, so that held locks stay held."""

OUTLIVING_TTL_MS = 12_000
"""The same where the cluster has to elect: an election that fails is repeated after four seconds."""


@pytest.fixture(scope="session")
def started(user: User | None) -> Iterator[Callable[[Path], Shards]]:
    """Clusters that test cases share, by their program."""
    with ExitStack() as stack:
        rights = user and in_cluster(user)
        yield cache(lambda program: stack.enter_context(Shards(3, replicas=True, program=program, user=rights)))


@pytest.fixture
def shards(request: pytest.FixtureRequest, program: Path, started: Callable[[Path], Shards]) -> Iterator[Shards]:
    """Three primaries with a replica each, shared with other test cases: move the slots of your own names alone."""
    with shown(request, "servers", lambda: log_ends(started(program))):
        yield started(program)


@pytest.fixture
def own_shards(request: pytest.FixtureRequest, program: Path, user: User | None) -> Iterator[Shards]:
    """Three primaries with a replica each, of this test case alone."""
    with (
        Shards(3, replicas=True, program=program, user=user and in_cluster(user)) as shards,
        shown(request, "servers", lambda: log_ends(shards)),
    ):
        yield shards


@every_face
def test_a_held_lock_and_its_waiter_follow_the_slot(drivers: Drivers, shards: Shards, face: str, name: str) -> None:
    holder = drivers.start(face).client([shards.url], ttl_ms=TTL_MS).lock(name)
    fence = holder.acquire()["fence"]
    waiter = drivers.start(face).client([shards.url], ttl_ms=TTL_MS).lock(name)
    waiting = waiter.start_acquire()
    shard = shards.shard(name)
    source, target = shards.owner(name), shards.servers[(shard + 1) % shards.primaries]
    assert source.command("EXISTS", name)
    shards.migrate(name, source, target)
    holder.extend()
    assert not drivers.start(face).client([shards.url]).lock(name).try_acquire()
    assert waiting.pending
    holder.release()
    won = waiting.result()
    assert won["fence"] > fence
    assert target.command("EXISTS", name)
    waiter.release()
    until(lambda: not target.command("EXISTS", name), "the lock is free")


@every_face
def test_a_held_lock_outlives_a_dead_primary(drivers: Drivers, own_shards: Shards, face: str, name: str) -> None:
    shards = own_shards
    holder = drivers.fresh(face).client([shards.url], ttl_ms=OUTLIVING_TTL_MS).lock(name)
    holder.acquire()
    shard = shards.shard(name)
    primary, replica = shards.servers[shard], shards.servers[shards.primaries + shard]
    replica.await_all_of(primary)
    primary.kill()
    until(lambda: shards.is_primary(replica), "the replica is the primary")
    extended = calls(replica, "pexpire")
    until(lambda: calls(replica, "pexpire") > extended, "it is extended there")
    event = heard(holder.driver, "failover", to=f"127.0.0.1:{replica.port}")
    assert event["fields"]["from"] == f"127.0.0.1:{primary.port}"
    assert event["fields"]["node"].startswith("redis+cluster://")
    holder.check()
    holder.release()
    until(lambda: not replica.command("EXISTS", name), "the lock is free")


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
    names = several(name)
    client = drivers.start(face).client([shards.url], ttl_ms=OUTLIVING_TTL_MS)
    lock, slot = client.lock_all(names), client.semaphore(name, 1)
    for each in (lock, slot):
        each.acquire()
    source, target = shards.owner(name), shards.other(name)
    shards.open(name, source, target)
    shards.move_keys([names[1], slot_key(name, 0)], source, target)
    for each in (lock, slot):
        before = each.state()
        after = each.extend()
        assert after["read_ns"] + after["remaining_ms"] * 1e6 > before["read_ns"] + before["remaining_ms"] * 1e6
    for each in (lock, slot):
        each.release()
    keys = [*names, slot_key(name, 0)]
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
    shards.open(name, source, target)
    diagnoses = drivers.start(face).client([shards.url]).diagnose()
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
