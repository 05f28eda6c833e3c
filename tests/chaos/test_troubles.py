"""The run distinguishes what troubles leave behind from what the library leaves behind."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from chaos import cluster, sentinel
from chaos.cluster import SHARDS, ClusterTroubles
from chaos.failovers import FailoverTroubles
from chaos.nodes import CUT_BYTES, KINDS, Nodes, NodeTroubles, node
from chaos.schedule import Trouble
from chaos.sentinel import DOWN_AFTER_MS, SentinelTroubles, look_often
from chaos.troubles import lock_of, locks
from chaos.ways import UNKNOWN, act
from support.clock import now_ns, until
from support.proxy import Proxy
from support.sentinels import Sentinels
from support.servers import LIMIT_S, Server
from support.shards import Shards

LONG_MS = 60_000


class Alone:
    """An arena of one server."""

    def __init__(self, server: Server) -> None:
        self.servers = [server]


@pytest.fixture
def server() -> Iterator[Server]:
    with node(0) as server:
        yield server


@pytest.fixture
def troubles(server: Server) -> NodeTroubles:
    arena: Nodes = Alone(server)  # type: ignore[assignment]
    return NodeTroubles(arena)


def strike(troubles: NodeTroubles, name: str, amount: float) -> None:
    kind = next(kind for kind in KINDS if kind.name == name)
    trouble = Trouble(kind=kind, at_s=0, lasts_s=0, where=0, amount=amount)
    troubles.begin(trouble)
    troubles.end(trouble)


def test_a_release_that_a_power_cut_has_undone_is_known(server: Server, troubles: NodeTroubles) -> None:
    server.command("SET", "held", "a:1", "PX", LONG_MS)
    server.command("SET", "released", "b:2", "PX", LONG_MS)
    before = server.written()
    server.command("DEL", "released")
    # The power cut loses the deletion, and nothing before it.
    strike(troubles, "power cut", (server.written() - before) / CUT_BYTES)
    assert troubles.revived == {(0, b"held", b"a:1"), (0, b"released", b"b:2")}
    server.command("SET", "held", "c:3", "PX", LONG_MS)
    left = {(0, name, value) for name, value in locks(server)} - troubles.revived
    assert left == {(0, b"held", b"c:3")}, "what came later is nobody's excuse"
    troubles.put_right()
    assert troubles.revived == {(0, b"released", b"b:2")}


@pytest.mark.parametrize(
    ("key", "name", "slot"),
    [
        ("redlock:slot:0:{pool}", "pool", 0),
        ("redlock:slot:12::{tag}-pool", "{tag}-pool", 12),
        ("plain", "plain", None),
    ],
)
def test_a_permit_is_the_key_of_its_semaphore_and_slot(server: Server, key: str, name: str, slot: int | None) -> None:
    for mine in (key, "redlock:slot:bell:{pool}", "redlock:fence:{pool}", "redlock:waiters::redlock:slot:0:{pool}"):
        server.command("SET", mine, "a:1")
    assert list(locks(server)) == [(key.encode(), b"a:1")]
    assert lock_of(key) == {"name": name} | ({} if slot is None else {"slot": slot})


def test_a_shared_lock_has_the_fence_with_which_its_period_began(server: Server) -> None:
    server.command("ZADD", "read", "inf", "redlock:shared:7", 5000, "a:one", 6000, "b")
    assert list(locks(server)) == [(b"read", b"shared:7")]


def replication(server: Server) -> dict[str, str]:
    told = server.command("INFO")
    assert isinstance(told, bytes)
    lines = (line.partition(":") for line in told.decode().splitlines())
    return {name: value for name, _, value in lines}


def test_a_first_replica_renames_the_data_of_a_node_that_goes_on(server: Server, troubles: NodeTroubles) -> None:
    server.command("SET", "kept", "a:1")
    kind = next(kind for kind in KINDS if kind.name == "first replica")
    trouble = Trouble(kind=kind, at_s=0, lasts_s=0, where=0)
    before = replication(server)
    troubles.begin(trouble)
    until(lambda: replication(server)["master_replid"] != before["master_replid"], "it has a replica")
    after = replication(server)
    troubles.end(trouble)
    assert after["run_id"] == before["run_id"]
    assert set(after["master_replid2"]) == {"0"}
    assert dict(locks(server)) == {b"kept": b"a:1"}


def told_by(proxy: Proxy, command: bytes) -> bytes:
    """What a client reads that sends this over a new connection."""
    with socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])), timeout=LIMIT_S) as client:
        client.sendall(command)
        return client.recv(1000)


@pytest.mark.parametrize("number", range(len(UNKNOWN)))
def test_a_command_that_is_unknown_is_refused_by_name(server: Server, number: int) -> None:
    words = (b"*1\r\n$4\r\nINFO\r\n", b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n")
    tracking = b"*3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n"
    with Proxy(server) as proxy:
        act(proxy, "unknown command", number / len(UNKNOWN))
        assert told_by(proxy, (*words, tracking)[number]).lower().startswith(b"-err unknown")


@dataclass
class Eager:
    """A way with a client that connects again and again."""

    made: int

    def living(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(view=0), SimpleNamespace(view=1)]

    def change_way(self, _view: int, _nodes: list[int], what: str, _amount: float = 0) -> int:
        return self.made if what == "heal" else 0


@pytest.mark.parametrize(("made", "storms"), [(40, 0), (41, 1)])
def test_who_connects_too_often_to_a_node_that_hangs_up_is_told(made: int, storms: int) -> None:
    arena: Nodes = Eager(made)  # type: ignore[assignment]
    troubles = NodeTroubles(arena)
    kind = next(kind for kind in KINDS if kind.name == "hang-up")
    trouble = Trouble(kind=kind, at_s=0, lasts_s=1, where=0)
    troubles.begin(trouble)
    troubles.end(trouble)
    assert len(troubles.storms) == storms


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[FailoverTroubles]:
    """Trouble in a healthy cluster, or in a healthy group with sentinels, without workers."""
    names = {"hot": [f"name {i}" for i in range(30)]}
    with ThreadPoolExecutor(1) as background:
        if request.param == "cluster":
            with Shards(SHARDS, replicas=1) as shards:
                alone: Any = SimpleNamespace(shards=shards, background=background, servers=shards.servers)
                yield ClusterTroubles(alone, names=names)
        else:
            with Sentinels(down_after_ms=DOWN_AFTER_MS) as watched:
                for each in watched.sentinels:
                    look_often(each)
                alone = SimpleNamespace(group=watched, background=background, servers=watched.servers)
                watched.settled()
                yield SentinelTroubles(alone, names=names)


@pytest.mark.parametrize("group", ["cluster", "sentinel"], indirect=True)
@pytest.mark.parametrize(
    "name", ["kill primary", pytest.param("freeze primary", marks=pytest.mark.test_all("a kill does it too"))]
)
def test_a_primary_is_replaced_and_excuses_what_it_granted_last(group: FailoverTroubles, name: str) -> None:
    kinds = cluster.KINDS if isinstance(group, ClusterTroubles) else sentinel.KINDS
    kind = next(kind for kind in kinds if kind.name == name)
    trouble, former, lock, from_ns = Trouble(kind, 0, 0, 0), group.primary(0), group.concerned(0)[0], now_ns()
    former.command("SET", lock, "a:1", "PX", LONG_MS)
    heir = group.arena.shards.replicas(0)[0] if isinstance(group, ClusterTroubles) else group.arena.servers[1]
    heir.await_all_of(former)
    group.begin(trouble)
    struck_ns = now_ns()
    group.end(trouble)
    (lapse,) = group.lapses(trouble, from_ns)
    assert group.primary(0) is not former
    (takeover,) = group.takeovers
    assert lapse.to_ns
    assert lapse.divides == (name != "kill primary")
    if name == "kill primary":
        assert lapse.to_ns <= struck_ns, "a dead server grants nothing"
    else:
        assert lapse.to_ns > takeover.at_ns, "it may grant until it has noticed"
    assert set(lapse.names) == set(group.concerned(0))
    assert lapse.may_lose(lock, struck_ns)
    assert not lapse.may_lose(lock, from_ns - 1)
    assert not lapse.may_lose("another name", struck_ns)
    assert (0, lock.encode(), b"a:1") in group.revived
    assert list(group.settle()) == [], "it was made here"
