"""Trouble in a group with sentinels does what it says, and excuses what a failover may cost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from chaos.played import seeds
from chaos.schedule import CREW, EPOCH_S, Trouble, epochs, kinds, meet
from chaos.sentinel import DOWN_AFTER_MS, KINDS, NOTICE_MS, PLAN, SENTINELS, Sentinel, SentinelTroubles, look_often
from conformance.history import SLACK_MS
from support.clock import now_ns
from support.sentinels import Sentinels
from support.servers import Server

SEEDS = seeds(20, 4)
LONG_MS = 60_000


@pytest.mark.parametrize("seed", SEEDS)
def test_failovers_are_alone(seed: int) -> None:
    for epoch in epochs(PLAN, seed, 8):
        assert {trouble.kind.of for trouble in epoch.troubles} <= {"steady", epoch.of}
        count = {"worker": CREW, "sentinel": SENTINELS, "primary": SENTINELS}
        assert all(trouble.where < count[trouble.kind.subject] for trouble in epoch.troubles)
        assert all(0 < trouble.at_s <= trouble.until_s <= EPOCH_S for trouble in epoch.troubles)
        servers = [trouble for trouble in epoch.troubles if trouble.kind.subject != "worker"]
        failovers = [trouble for trouble in servers if trouble.kind.of == "data"]
        assert len(failovers) == (epoch.of == "data")
        for failover in failovers:
            assert not [other for other in servers if other is not failover and meet(failover, other)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_of_a_minute_has_every_kind(seed: int) -> None:
    assert kinds(epochs(PLAN, seed, 6)) == {kind.name for kind in KINDS}


def test_what_is_not_meant_to_replace_a_primary_is_shorter_than_what_sentinels_wait() -> None:
    silent = [kind for kind in KINDS if kind.name in ("freeze", "slow command")]
    assert all(kind.lasts_s[1] * 1000 < DOWN_AFTER_MS / 1.5 for kind in silent)


@dataclass
class Alone:
    """An arena of such a group without workers."""

    group: Sentinels
    background: ThreadPoolExecutor
    servers: list[Server] = field(init=False)

    def __post_init__(self) -> None:
        self.servers = self.group.servers


@pytest.fixture(scope="module")
def group() -> Iterator[Alone]:
    with ThreadPoolExecutor(1) as background, Sentinels(down_after_ms=DOWN_AFTER_MS) as sentinels:
        for sentinel in sentinels.sentinels:
            look_often(sentinel)
        yield Alone(sentinels, background)


@pytest.fixture
def troubles(group: Alone) -> SentinelTroubles:
    """Trouble in a group that is well, with the names of an epoch."""
    group.group.settled()
    arena: Sentinel = group  # type: ignore[assignment]
    return SentinelTroubles(arena, names={"hot": ["a", "b"]})


def trouble_of(name: str, where: int = 0) -> Trouble:
    kind = next(kind for kind in KINDS if kind.name == name)
    return Trouble(kind=kind, at_s=0, lasts_s=0, where=where)


@pytest.mark.parametrize("name", ["planned failover", "kill primary", "freeze primary"])
def test_a_primary_is_replaced_and_excuses_what_it_granted_last(troubles: SentinelTroubles, name: str) -> None:
    former, trouble = troubles.primary(0), trouble_of(name)
    former.command("SET", "a", "a:1", "PX", LONG_MS)
    for replica in troubles.arena.servers:
        replica.await_all_of(former)
    from_ns = now_ns()
    troubles.begin(trouble)
    struck_ns = now_ns()
    troubles.end(trouble)
    (lapse,) = troubles.lapses(trouble, from_ns)
    assert troubles.primary(0) is not former
    assert former.running
    (takeover,) = troubles.takeovers
    assert lapse.to_ns
    assert lapse.divides == (name != "kill primary")
    assert len(troubles.quarantines) == (name == "kill primary")
    if name == "kill primary":
        assert lapse.to_ns <= struck_ns, "a dead server grants nothing"
        (quarantine,) = troubles.quarantines
        assert quarantine.lost_ns < quarantine.replaced_ns < takeover.at_ns
        assert quarantine.names == {"a", "b"}
    else:
        assert lapse.to_ns == takeover.at_ns + (NOTICE_MS + SLACK_MS) * 1_000_000, "until clients have noticed"
    assert set(lapse.names) == {"a", "b"}
    assert (0, b"a", b"a:1") in troubles.revived
    assert list(troubles.settle()) == [], "it was made here"
    assert not troubles.arena.group.is_primary(troubles.arena.group.servers.index(former)), "it follows"


@pytest.mark.parametrize("name", ["kill sentinel", "freeze sentinel"])
def test_a_sentinel_is_away_for_a_while(troubles: SentinelTroubles, name: str) -> None:
    before, trouble = troubles.primary(0), trouble_of(name, where=1)
    troubles.begin(trouble)
    assert not troubles.arena.group.sentinels[1].answers
    assert troubles.primary(0) is before, "the others name it"
    troubles.end(trouble)
    assert troubles.arena.group.sentinels[1].answers
    assert list(troubles.lapses(trouble, 0)) == []
    assert list(troubles.settle()) == []
