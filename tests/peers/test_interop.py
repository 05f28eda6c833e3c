"""Other libraries' locks and ours exclude each other, hold by hold; what was seen goes into the compatibility page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.driver import ANSWER_LIMIT_S, FACES, Driver
from conformance.story import Asked, within
from peers.compatibility import ROWS, Row
from peers.interop import OURS, TTL_MS, Peer, PeerError
from support.clock import until
from support.servers import Cluster, Server

Start = Callable[[str], Driver]
Peers = Callable[[Row, Cluster], Peer]
Nodes = Callable[..., Cluster]
Note = Callable[[str, str, str], None]

NODES = {1: "one node", 3: "three nodes"}

ROUNDS = 50

BY_NAME = {row.name: row for row in ROWS if row.here}

SHARING = [(row, n) for row in BY_NAME.values() if row.shares for n in NODES if n == 1 or row.several]


def face(row: Row) -> str:
    """Our face that competes with a peer."""
    return row.face or OURS[row.language]


def pairs() -> list[object]:
    """Every peer with a face of ours, and the first on one node with all of them."""
    first = next(iter(BY_NAME.values()))
    others = [(first, 1, each) for each in FACES if each != face(first)]
    all_of_them = [(row, n, face(row)) for row, n in SHARING] + others
    return [pytest.param(*pair, id=f"{pair[0].name}, {NODES[pair[1]]}, {pair[2]}") for pair in all_of_them]


@pytest.mark.parametrize(("row", "n", "ours_by"), pairs())
def test_both_hold_and_wait(row: Row, n: int, ours_by: str, ours: Start, theirs: Peers, start_nodes: Nodes) -> None:
    nodes = start_nodes(n)
    client = ours(ours_by).client(nodes.urls)
    peer, mine = theirs(row, nodes), client.lock(row.key)

    fence = mine.acquire()["fence"]
    assert not peer.acquire("foo")
    asked = Asked(nodes)
    peer.start_acquire("foo")
    asked.wait()
    assert peer.pending
    mine.check()
    mine.release()
    assert peer.acquired()

    view = client.inspect(row.key)
    # One that still had our key when it asked does not have its own.
    assert view["state"] == "foreign"
    has_it = [node for node in view["nodes"] if node["state"] == "foreign"]
    assert len(has_it) == view["holders"] > n // 2
    assert all(0 < seen["ttl_left_ms"] <= TTL_MS for seen in (view, *has_it))
    assert not mine.try_acquire()
    asked = Asked(nodes)
    waiting = mine.start_acquire()
    asked.wait()
    assert waiting.pending
    peer.release()
    assert waiting.result()["fence"] > fence
    mine.release()


class Section:
    """What the lock is for: changing a number on a server by reading and writing it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._inside: str | None = None

    def enter(self, who: str) -> None:
        """Adds one to the number; nobody else may be there at the same time."""
        assert self._inside is None, f"{who} is in while {self._inside} is"
        self._inside = who
        self._server.command("SET", "number", self.number + 1)
        assert self._inside == who, f"{self._inside} got in while {who} was"
        self._inside = None

    @property
    def number(self) -> int:
        """How often somebody was in."""
        return int(self._server.get("number") or 0)


def compete(rounds: threading.Barrier, enter: Callable[[], None]) -> None:
    """Enters with the other side in every round: one of them has to wait."""
    try:
        for _ in range(ROUNDS):
            rounds.wait(2 * ANSWER_LIMIT_S)
            enter()
    except BaseException:
        rounds.abort()
        raise


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("row", "n"), [pytest.param(*pair, id=f"{pair[0].name}, {NODES[pair[1]]}") for pair in SHARING]
)
def test_both_compete(row: Row, n: int, ours: Start, theirs: Peers, start_nodes: Nodes, seen: Note) -> None:
    nodes = start_nodes(n)
    mine, peer = ours(face(row)).client(nodes.urls).lock(row.key), theirs(row, nodes)
    section = Section(nodes[0])

    def enter_ours() -> None:
        mine.acquire()
        section.enter("ours")
        mine.release()

    def enter_theirs() -> None:
        while not peer.acquire("foo", row.wait_ms):
            assert row.wait_ms, "it has not waited for ever"
        section.enter("theirs")
        peer.release()

    rounds = threading.Barrier(2)
    with ThreadPoolExecutor() as threads:
        sides = [threads.submit(compete, rounds, enter) for enter in (enter_ours, enter_theirs)]
    broken = [error for side in sides if (error := side.exception())]
    # The side that was waiting for the other tells nothing.
    for error in sorted(broken, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    assert section.number == 2 * ROUNDS
    seen(row.name, NODES[n], "yes")


def test_waiters_of_python_redis_lock_sleep_on(ours: Start, theirs: Peers, start_nodes: Nodes, seen: Note) -> None:
    """They wait for an item in a list, which its own release pushes and ours does not."""
    row, expire_ms = BY_NAME["python-redis-lock"], 5000
    nodes = start_nodes(1)
    mine, peer = ours("python").client(nodes.urls).lock(row.key), theirs(row, nodes)
    mine.acquire()
    with within(expire_ms):
        peer.start_acquire("foo", ttl_ms=expire_ms)
        until(lambda: blocked(nodes[0]), "their waiter sleeps")
        mine.release()
        assert nodes[0].get(row.key) is None
        assert blocked(nodes[0])
        assert peer.pending
        assert peer.acquired()
    seen(
        row.name,
        "wake-up",
        "Waiters of python-redis-lock sleep in BLPOP until a release of that library pushes a value; ours does not. "
        "They sleep until their `timeout`, or else `expire`, has passed, and without both forever: set `expire`.",
    )


def blocked(server: Server) -> bool:
    """Whether somebody sleeps in BLPOP."""
    clients = server.command("CLIENT", "LIST")
    assert isinstance(clients, bytes)
    return b"cmd=blpop" in clients and b"flags=b" in clients


if "redisson" in BY_NAME:

    @pytest.mark.timeout(180)
    def test_redisson_has_a_protocol_of_its_own(ours: Start, theirs: Peers, start_nodes: Nodes, seen: Note) -> None:
        row = BY_NAME["redisson"]
        nodes = start_nodes(1, tcp=True)
        client = ours(face(row)).client(nodes.urls)
        peer, mine = theirs(row, nodes), client.lock(row.key)

        assert peer.acquire("foo")
        assert not mine.try_acquire()
        view = client.inspect(row.key)
        assert view["state"] == "foreign"
        assert 0 < view["ttl_left_ms"] <= TTL_MS
        asked = Asked(nodes)
        waiting = mine.start_acquire()
        asked.wait()
        assert waiting.pending
        peer.release()
        assert waiting.result()["acquired"]

        for wait_ms in (0, None):
            with pytest.raises(PeerError, match="WRONGTYPE"):
                peer.acquire("foo", wait_ms)
        mine.check()
        mine.release()
        seen(row.name, "one node", "no, see below")
        seen(
            row.name,
            "protocol",
            "The lock of Redisson is a hash. Our lock sees it as held: it is denied, waits, and wins when Redisson "
            "releases. The other way round, our lock makes Redisson fail: `tryLock` and `lock` throw a "
            "`RedisException` with the server's WRONGTYPE, at once and instead of waiting. A name never has two "
            "holders, but use separate names for Redisson.",
        )
