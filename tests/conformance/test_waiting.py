"""Waiting: servers notify waiters, which do not poll, take turns between processes, and leave nothing behind."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, Call, Lock, LockError
from conformance.history import SLACK_MS
from conformance.story import next_won, several, within
from conformance.test_pairs import PAIRS
from support.clock import until
from support.proxy import Faults, Proxy
from support.rights import fewest, for_any_name
from support.servers import Cluster, Server

every_pair = pytest.mark.parametrize(("holder", "waiter"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
LONG_TTL_MS = 60_000
"""A ttl of locks that do not expire within a test case."""
BACKSTOP_LEAST_MS = 1500
"""The minimum time between two requests of one waiter while nothing happens."""
MANY = 40
CROWD = 200
SHORT_TIMEOUT_MS = 50
"""Less than it takes until each of many has had its turn."""
CONTENTION_S = 1.5
DISTANCE_S = 0.002
NODE_TIMEOUT_MS = 200
FREED_BY = [("DEL",), ("UNLINK",), ("PEXPIRE", 1)]


def scripts_run(nodes: Iterable[Server]) -> int:
    """How often clients have asked the nodes for anything."""
    return sum(calls(server, "eval") + calls(server, "evalsha") for server in nodes)


def calls(server: Server, command: str) -> int:
    """How often a server has run a command."""
    return all_calls(server)[command]


def all_calls(server: Server) -> Counter[str]:
    """How often a server has run each command, at one moment."""
    lines = (line.partition(":calls=") for line in server.info("commandstats").decode().splitlines())
    return Counter({name.removeprefix("cmdstat_"): int(rest.partition(",")[0]) for name, _, rest in lines if rest})


def wait(nodes: Cluster, lock: Lock) -> Call:
    """Starts an acquire, and returns when a quorum has denied it twice: in the call, and in the background."""
    before = [scripts_run([server]) for server in nodes]
    call = lock.start_acquire()

    def denied() -> int:
        return sum(scripts_run([server]) >= number + 2 for server, number in zip(nodes, before, strict=True))

    until(lambda: denied() > len(nodes) // 2, "a quorum has denied it twice")
    return call


@every_face
@pytest.mark.parametrize("freed_by", FREED_BY, ids=lambda words: words[0].lower())
@pytest.mark.parametrize("shape", ["lock", "several"])
def test_whoever_frees_the_key_wakes_the_waiter(
    drivers: Drivers, nodes: Cluster, shape: str, face: str, freed_by: tuple[str, ...], name: str
) -> None:
    names = several(name) if shape == "several" else [name]
    for server in nodes:
        server.command("SET", names[-1], "another library's token", "PX", LONG_TTL_MS)
    client = drivers.start(face).client(nodes.urls)
    waiting = wait(nodes, client.lock_all(names) if shape == "several" else client.lock(name))
    command, *rest = freed_by
    with within(0):
        for server in nodes:
            server.command(command, names[-1], *rest)
        assert waiting.result()["acquired"]


@every_face
@pytest.mark.parametrize("n", [1, 5], ids=["one node", "five nodes"])
def test_flush_wakes_the_waiter(
    drivers: Drivers, start_nodes: Callable[..., Cluster], n: int, face: str, name: str
) -> None:
    nodes = start_nodes(n)
    for server in nodes:
        server.command("SET", name, "another library's token", "PX", LONG_TTL_MS)
    lock = drivers.start(face).client(nodes.urls).lock(name)
    waiting = wait(nodes, lock)
    with within(0):
        for server in nodes:
            server.command("FLUSHALL")
        assert waiting.result()["acquired"]


@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.cancels])
def test_waiters_that_are_cancelled_keep_nobody_back(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """One call is in the front of its process's queue, and one behind it."""
    has = drivers.start("rust").client(nodes.urls, ttl_ms=LONG_TTL_MS).lock(name)
    has.acquire()
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    locks = [client.lock(name) for _ in range(4)]
    waiting = [wait(nodes, locks[0]), *(lock.start_acquire() for lock in locks[1:])]
    for leaver in (0, 2):
        locks[leaver].cancel(waiting[leaver])
        assert waiting[leaver].result()["cancelled"]
    has.release()
    left = [(locks[i], waiting[i]) for i in (1, 3)]
    while left:
        with within(0):
            served, won = next_won(left)
        assert won.result()["acquired"]
        left.remove((served, won))
        served.release()
    until(lambda: not any(server.get(name) for server in nodes), "no key is left")


@every_face
@pytest.mark.parametrize("right", ["+client|tracking", "~redlock:waiters:*"])
def test_waiter_with_one_right_too_few(
    drivers: Drivers, start_nodes: Callable[..., Cluster], right: str, face: str, name: str
) -> None:
    """It polls if it is not notified, and has no turns if it may not write that it waits."""
    user = fewest() if right.startswith("~") else for_any_name(fewest())
    user = dataclasses.replace(user, rules=tuple(rule for rule in user.rules if rule != right))
    nodes = start_nodes(1, user=user)
    # In a cluster, the tag makes it a lock of the server that has `name`.
    key = f"lock:{{{name}}}"
    has = drivers.start("rust").client(nodes.urls, ttl_ms=LONG_TTL_MS).lock(key)
    has.acquire()
    has.extend(ttl_ms=LONG_TTL_MS)
    wants = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS).lock(key)
    waiting = wait(nodes, wants)
    assert waiting.pending
    with within(0):
        has.release()
        assert waiting.result()["acquired"]
    wants.release()
    assert not nodes.has(key)


@every_face
@pytest.mark.parametrize("shape", ["lock", "several"])
def test_waiting_costs_next_to_nothing(drivers: Drivers, node: Cluster, shape: str, face: str, name: str) -> None:
    """Fifty waiters of a process ask as rarely as one, and the order of their names does not matter."""
    names = several(name) if shape == "several" else [name]
    has = drivers.start("rust").client(node.urls, ttl_ms=LONG_TTL_MS).lock(names[len(names) // 2])
    has.acquire()
    client = drivers.start(face).client(node.urls, ttl_ms=LONG_TTL_MS)
    waiting = wait(node, client.lock_all(names))
    before = scripts_run(node)
    locks = [client.lock_all(names[::-1], timeout_ms=3 * BACKSTOP_LEAST_MS) for _ in range(49)]
    behind = [lock.start_acquire() for lock in locks]
    assert all(lock.denied(call) for lock, call in zip(locks, behind, strict=True))
    asked = scripts_run(node) - before
    assert asked <= 1 + (3 * BACKSTOP_LEAST_MS + SLACK_MS) // BACKSTOP_LEAST_MS, f"{asked} scripts"
    has.release()
    assert waiting.result()["acquired"]


def contend(locks: Sequence[Lock], seconds: float, first_timeout_ms: int | None = SHORT_TIMEOUT_MS) -> Counter[str]:
    """Lets all of them acquire and release again and again, for so long. Returns how their calls have ended."""
    end = time.monotonic() + seconds

    def use(lock: Lock, timeout_ms: int | None) -> Counter[str]:
        ended: Counter[str] = Counter()
        while time.monotonic() < end:
            try:
                acquired = lock.start_acquire(timeout_ms=timeout_ms).result()["acquired"]
            except LockError as error:
                ended[error.code] += 1
                continue
            ended["acquired" if acquired else "timeout"] += 1
            if acquired:
                with contextlib.suppress(LockError):
                    lock.release()
        return ended

    with ThreadPoolExecutor(len(locks)) as threads:
        timeouts = [first_timeout_ms, *[SHORT_TIMEOUT_MS] * (len(locks) - 1)]
        return sum(threads.map(use, locks, timeouts), Counter[str]())


@every_face
def test_many_waiters_that_run_out_of_time_blame_no_node(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """The node answers all the time, whichever of the calls asks it, and over whichever connection."""
    with Proxy(node[0]) as proxy:
        proxy.replies(Faults(delay_s=DISTANCE_S))
        # A machine that stands still for that long answers nobody.
        patient = {"node_timeout_ms": 5 * SLACK_MS, "connect_timeout_ms": 5 * SLACK_MS}
        client = drivers.start(face).client([proxy.url], ttl_ms=LONG_TTL_MS, **patient)
        assert not client.lock(name).is_locked(), "the node has answered once"
        # One call waits for as long as it takes: the others have a queue, if their time is too short for an answer.
        ended = contend([client.lock(name) for _ in range(CROWD)], CONTENTION_S, first_timeout_ms=None)
    assert set(ended) == {"acquired", "timeout"}, f"{ended}"


@every_face
def test_many_waiters_of_a_node_that_hangs_are_told(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    """None of them waits for as long as a node may take to answer, but together they do."""
    (server,) = nodes = start_nodes(1)
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=NODE_TIMEOUT_MS)
    locks = [client.lock(name) for _ in range(MANY)]
    contend(locks, CONTENTION_S / 3)
    server.freeze()
    until(lambda: "unavailable" in contend(locks, CONTENTION_S / 3), "its silence is noticed")
    ended = contend(locks, CONTENTION_S / 3)
    server.thaw()
    assert set(ended) == {"unavailable"}, f"{ended}"
