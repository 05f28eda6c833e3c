"""Trouble in a cluster does what it says, and excuses what a failover may cost and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from chaos.cluster import FAILOVERS, KINDS, PLAN, SHARDS, Cluster, ClusterTroubles
from chaos.played import seeds
from chaos.schedule import CREW, EPOCH_S, Trouble, epochs, kinds, meet
from chaos.troubles import Lapse
from support.clock import now_ns
from support.resp import ReplyError
from support.servers import Server
from support.shards import Shards

SEEDS = seeds(20, 4)
LONG_MS = 60_000


@pytest.mark.parametrize("seed", SEEDS)
def test_one_thing_at_a_time_happens_to_slots_and_roles(seed: int) -> None:
    for epoch in epochs(PLAN, seed, 8):
        assert {trouble.kind.of for trouble in epoch.troubles} <= {"steady", epoch.of}
        assert all(trouble.where < (CREW if trouble.kind.subject == "worker" else SHARDS) for trouble in epoch.troubles)
        assert all(0 < trouble.at_s <= trouble.until_s <= EPOCH_S for trouble in epoch.troubles)
        shards = [trouble for trouble in epoch.troubles if trouble.kind.subject == "shard"]
        for alone in (trouble for trouble in shards if trouble.kind.alone):
            assert not [other for other in shards if other is not alone and meet(alone, other)]
        failed_over = [trouble.where for trouble in shards if trouble.kind.name in FAILOVERS]
        assert len(failed_over) == len(set(failed_over))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_of_a_minute_has_every_kind(seed: int) -> None:
    assert kinds(epochs(PLAN, seed, 6)) == {kind.name for kind in KINDS}


@dataclass
class Alone:
    """An arena of a cluster without workers."""

    shards: Shards
    background: ThreadPoolExecutor
    servers: list[Server] = field(init=False)

    def __post_init__(self) -> None:
        self.servers = self.shards.servers


@pytest.fixture(scope="module")
def cluster() -> Iterator[Alone]:
    with ThreadPoolExecutor(1) as background, Shards(SHARDS, replicas=1) as shards:
        yield Alone(shards, background)


@pytest.fixture
def troubles(cluster: Alone) -> ClusterTroubles:
    """Trouble in a cluster that is well, with the names of an epoch."""
    cluster.shards.settled()
    arena: Cluster = cluster  # type: ignore[assignment]
    return ClusterTroubles(arena, names={"hot": [f"name {i}" for i in range(30)]})


def trouble_of(name: str, where: int, lasts_s: float = 0) -> Trouble:
    kind = next(kind for kind in KINDS if kind.name == name)
    return Trouble(kind=kind, at_s=0, lasts_s=lasts_s, where=where)


def held(troubles: ClusterTroubles, where: int) -> str:
    """A name on a shard, whose lock is held there and at the replica."""
    name = troubles.concerned(where)[0]
    primary = troubles.primary(where)
    for key in (name, f"redlock:fence:{{{name}}}"):
        primary.command("SET", key, "a:1", "PX", LONG_MS)
    for replica in troubles.arena.shards.replicas(where):
        replica.await_all_of(primary)
    return name


def through(troubles: ClusterTroubles, trouble: Trouble) -> list[Lapse]:
    """Begins and ends a trouble; returns what it excuses."""
    from_ns = now_ns()
    troubles.begin(trouble)
    troubles.end(trouble)
    return list(troubles.lapses(trouble, from_ns))


def keys(server: Server, *names: str) -> list[bool]:
    """Which of the keys are on a server, also those of a slot on its way."""
    found = []
    for name in names:
        with server.connect() as connection:
            connection.ask("ASKING")
            try:
                found.append(connection.ask("EXISTS", name) == 1)
            except ReplyError:
                found.append(False)
    return found


def test_names_are_on_all_shards(troubles: ClusterTroubles) -> None:
    there = [troubles.concerned(shard) for shard in range(SHARDS)]
    assert all(there)
    assert sorted(name for names in there for name in names) == sorted(troubles.names["hot"])


def test_a_planned_failover_keeps_the_lock_and_excuses_nothing(troubles: ClusterTroubles) -> None:
    former, name = troubles.primary(0), held(troubles, 0)
    assert through(troubles, trouble_of("planned failover", 0)) == []
    assert troubles.primary(0) is not former
    assert troubles.primary(0).has(name)
    assert not troubles.revived
    assert [takeover.lane for takeover in troubles.takeovers] == ["shard 1"]
    (quarantine,) = troubles.quarantines
    assert quarantine.names == set(troubles.concerned(0))
    assert list(troubles.settle()) == []


@pytest.mark.parametrize("name", ["kill primary", "freeze primary"])
def test_a_primary_is_replaced_and_excuses_what_it_granted_last(troubles: ClusterTroubles, name: str) -> None:
    former, lock, from_ns = troubles.primary(1), held(troubles, 1), now_ns()
    trouble = trouble_of(name, 1)
    troubles.begin(trouble)
    struck_ns = now_ns()
    troubles.end(trouble)
    (lapse,) = troubles.lapses(trouble, from_ns)
    assert troubles.primary(1) is not former
    assert former.running
    (takeover,) = troubles.takeovers
    assert lapse.to_ns
    assert lapse.divides == (name != "kill primary")
    if name == "kill primary":
        assert lapse.to_ns <= struck_ns, "a dead server grants nothing"
        (quarantine,) = troubles.quarantines
        assert quarantine.lost_ns < quarantine.replaced_ns < takeover.at_ns
        assert quarantine.names == set(lapse.names)
    else:
        assert lapse.to_ns > takeover.at_ns, "it may grant until it has noticed"
        assert not troubles.arena.shards.is_primary(former)
    assert set(lapse.names) == set(troubles.concerned(1))
    assert lapse.may_lose(lock, struck_ns)
    assert not lapse.may_lose(lock, from_ns - 1)
    assert not lapse.may_lose(troubles.concerned(0)[0], struck_ns)
    assert (0, lock.encode(), b"a:1") in troubles.revived
    assert list(troubles.settle()) == [], "it was made here"


def test_a_slot_moves_with_its_lock(troubles: ClusterTroubles) -> None:
    name, source, target = held(troubles, 0), troubles.primary(0), troubles.primary(1)
    assert through(troubles, trouble_of("slot moved", 0)) == []
    assert name in troubles.concerned(1)
    assert name not in troubles.concerned(0)
    assert target.has(name)
    assert source is troubles.primary(0)


@pytest.mark.parametrize(
    ("kind", "at_source", "at_target"),
    [
        ("slot open", [True, True], [False, False]),
        ("slot half moved", [False, True], [True, False]),
        ("slot emptied", [False, False], [True, True]),
    ],
)
def test_a_slot_stays_open_for_a_while(
    troubles: ClusterTroubles, kind: str, at_source: list[bool], at_target: list[bool]
) -> None:
    name, source, target = held(troubles, 2), troubles.primary(2), troubles.primary(0)
    both = name, f"redlock:fence:{{{name}}}"
    trouble = trouble_of(kind, 2, lasts_s=1)
    troubles.begin(trouble)
    assert name in troubles.concerned(2), "it is still there for clients"
    assert (keys(source, *both), keys(target, *both)) == (at_source, at_target)
    troubles.end(trouble)
    assert list(troubles.lapses(trouble, 0)) == []
    assert name in troubles.concerned(0)
    assert keys(target, *both) == [True, True]
