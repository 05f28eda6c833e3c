"""A Redis Cluster as a node: locks and waiters follow the slot of their name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.conftest import Drivers, log_ends, shown
from conformance.driver import FACES, LockError
from conformance.test_waiting import calls
from support.clock import until
from support.rights import in_cluster
from support.servers import Server, User
from support.shards import Shards

every_face = pytest.mark.parametrize("face", FACES)

TTL_MS = 6000
"""Long enough to outlive a failover here, so that held locks stay held."""

OUTLIVING_TTL_MS = 12_000
"""The same where the cluster has to elect: an election that fails is repeated after four seconds."""


@pytest.fixture
def shards(request: pytest.FixtureRequest, program: Path, user: User | None) -> Iterator[Shards]:
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
    source, target = shards.servers[shard], shards.servers[(shard + 1) % shards.primaries]
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
def test_a_held_lock_outlives_a_dead_primary(drivers: Drivers, shards: Shards, face: str, name: str) -> None:
    holder = drivers.start(face).client([shards.url], ttl_ms=OUTLIVING_TTL_MS).lock(name)
    holder.acquire()
    shard = shards.shard(name)
    primary, replica = shards.servers[shard], shards.servers[shards.primaries + shard]
    primary.command("WAIT", 1, 1000)
    primary.kill()
    until(lambda: shards.is_primary(replica), "the replica is the primary")
    extended = calls(replica, "pexpire")
    until(lambda: calls(replica, "pexpire") > extended, "it is extended there")
    holder.check()
    holder.release()
    until(lambda: not replica.command("EXISTS", name), "the lock is free")


@every_face
def test_a_diagnosis_tells_of_an_open_slot(
    drivers: Drivers, shards: Shards, user: User | None, face: str, name: str
) -> None:
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
