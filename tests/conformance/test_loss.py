"""Locks that end without a release: a crash, an expiry, a pause."""

from __future__ import annotations

import contextlib
import time

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import Lock, LockError
from conformance.history import SLACK_MS, History
from conformance.story import one_try_ms, several, within
from support.clock import until
from support.servers import Cluster

TTL_MS = 1000
RENEWED_TTL_MS = 3000
"""A ttl of locks that stay held on a slow machine."""
SHORT_TTL_MS = 500
"""A ttl for a lock that should expire, and of which nothing is asked before that."""


def validity_ms(ttl_ms: int) -> float:
    """How long a lock is valid from the start of its attempt, which is before its acquire returns."""
    return ttl_ms - ttl_ms / 100 - 2


def ended(lock: Lock) -> str | None:
    """Checks in every way that a lock is lost; returns the reason."""
    state = lock.state()
    assert (state["held"], state["remaining_ms"]) == (False, 0)
    with pytest.raises(LockError) as checked:
        lock.check()
    with pytest.raises(LockError) as extended:
        lock.extend()
    with pytest.raises(LockError) as released:
        lock.release()
    assert {error.value.code for error in (checked, extended, released)} == {"lost"}
    return checked.value.reason


@every_face
@pytest.mark.parametrize("shape", ["lock", "several", "reader"])
def test_crashed_holder_blocks_for_one_ttl(drivers: Drivers, nodes: Cluster, shape: str, face: str, name: str) -> None:
    client, others = (drivers.start(each).client(nodes.urls) for each in (face, "rust"))
    if shape == "several":
        holder = client.lock_all(several(name), ttl_ms=SHORT_TTL_MS)
        waiter = others.lock_all(several(name)[1:])
    else:
        holder, waiter = client.lock(name, ttl_ms=SHORT_TTL_MS, shared=shape == "reader"), others.lock(name)
    fence = holder.acquire()["fence"]
    waiting = waiter.start_acquire()
    killed_ns = holder.driver.kill()
    won = waiting.result()
    assert won["fence"] > fence
    assert won["return_ns"] - killed_ns <= (SHORT_TTL_MS + SLACK_MS) * 1e6


@every_face
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "shared"])
def test_held_locks_are_renewed(drivers: Drivers, nodes: Cluster, shared: bool, face: str, name: str) -> None:
    lock = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=RENEWED_TTL_MS, shared=shared)
    won = lock.acquire()
    first_end_ns = won["read_ns"] + won["remaining_ms"] * 1e6

    def is_over() -> bool:
        state = lock.state()
        assert state["held"]
        return bool(state["read_ns"] > first_end_ns)

    until(is_over, "the first lease is over")
    lock.check()
    lock.release()
    until(lambda: not nodes.has(name), "nothing is left")


@every_face
def test_expiry_is_told(drivers: Drivers, history: History, node: Cluster, face: str, name: str) -> None:
    history.rule("--told-late-ms", str(SLACK_MS))
    lock = drivers.start(face).client(node.urls).lock(name, ttl_ms=2 * TTL_MS, auto_renew=False)
    won = lock.acquire()
    assert lock.start_wait_lost(limit_ms=0).result()["lost"] is None
    told = lock.start_wait_lost(limit_ms=10_000).result()
    assert (told["lost"]["code"], told["lost"]["reason"]) == ("lost", "expired")
    assert told["told_ns"] > won["invoke_ns"] + validity_ms(2 * TTL_MS) * 1e6
    assert ended(lock) == "expired"
    assert lock.acquire()["fence"] > won["fence"]


@every_face
def test_nobody_is_told_that_an_expired_lock_is_held(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    lock = drivers.start(face).client(node.urls).lock(name, ttl_ms=SHORT_TTL_MS, auto_renew=False)
    won = lock.acquire()
    # The attempt began before it returned, so it is valid until then at the latest.
    latest_end_ns = won["return_ns"] + validity_ms(SHORT_TTL_MS) * 1e6

    def is_over() -> bool:
        state = lock.state()
        assert state["read_ns"] + state["remaining_ms"] * 1e6 <= latest_end_ns or not state["remaining_ms"]
        assert state["read_ns"] <= latest_end_ns or not state["held"]
        return bool(state["read_ns"] > latest_end_ns)

    until(is_over, "the validity is over")
    assert ended(lock) == "expired"


@every_face
def test_late_release_leaves_the_next_holder_alone(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    driver = drivers.start(face)
    client = driver.client(nodes.urls)
    late, next_holder = client.lock(name, ttl_ms=SHORT_TTL_MS, auto_renew=False), client.lock(name)
    fence = late.acquire()["fence"]
    assert next_holder.acquire()["fence"] > fence
    with pytest.raises(LockError) as lost:
        late.release()
    assert lost.value.code == "lost"
    assert nodes.has(name)
    next_holder.check()
    next_holder.extend()
    next_holder.release()


@every_face
def test_late_release_is_quick(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """The release has nothing to wait for, and reports what has happened."""
    lock = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=SHORT_TTL_MS, auto_renew=False)
    lock.acquire()
    until(lambda: not nodes.has(name), "it has run out")
    began = time.monotonic()
    with pytest.raises(LockError) as lost:
        lock.release()
    took_ms = (time.monotonic() - began) * 1000
    assert took_ms <= SHORT_TTL_MS / 4 + SLACK_MS, "it has waited for longer than one node_timeout"
    assert (lost.value.code, lost.value.reason) == ("lost", "expired")


@every_face
def test_paused_holder_learns_of_its_loss(
    drivers: Drivers, history: History, nodes: Cluster, face: str, name: str
) -> None:
    """A whole process stands still, renewal included. Another takes over, and the first notices it when it wakes up."""
    # Only the holder itself knows how far its last renewal reached.
    history.rule("--no-exclusion")
    paused = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=SHORT_TTL_MS)
    other = drivers.start("rust").client(nodes.urls).lock(name)
    paused.acquire()
    paused.driver.freeze()
    won = other.acquire(timeout_ms=SHORT_TTL_MS + SLACK_MS)
    paused.driver.thaw()
    lost = paused.start_wait_lost(limit_ms=10_000).result()["lost"]
    assert lost["code"] == "lost"
    assert ended(paused) == lost["reason"]
    assert other.state()["held"]
    assert won["fence"] > (paused.fence or 0)


@every_face
def test_minority_of_dead_and_hung_nodes(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    node_timeout_ms = 2 * SLACK_MS
    client = drivers.start(face).client(own_nodes.urls, node_timeout_ms=node_timeout_ms)
    lock, other = client.lock(name), client.lock(name, timeout_ms=0)
    own_nodes[0].kill()
    own_nodes[1].freeze()
    fence = lock.acquire()["fence"]
    assert not other.try_acquire()
    lock.extend()
    lock.release()
    assert other.acquire()["fence"] > fence
    other.release()
    own_nodes[2].kill()
    with within(one_try_ms(node_timeout_ms)), pytest.raises(LockError) as refused:
        other.acquire()
    assert refused.value.code == "unavailable"
    assert len(refused.value.nodes) == len(own_nodes)


@every_face
def test_fences_increase_though_a_minority_forgets(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    lock = drivers.start(face).client(own_nodes.urls, restart_delay_ms=0).lock(name)
    fences = []
    for pair in ((0, 1), (2, 3), (4, 0)):
        fences.append(lock.acquire()["fence"])
        lock.release()
        for i in pair:
            own_nodes[i].wipe()
    assert fences == sorted(set(fences))


@every_face
def test_extension_brings_no_deleted_key_back(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Another client may have had the lock in between."""
    lock = drivers.start(face).client(nodes.urls, node_timeout_ms=5 * SLACK_MS).lock(name, auto_renew=False)
    lock.acquire()
    # At least a quorum has it. A node without a connection when the others had answered is not asked any more.
    deleted = [server for server in nodes if server.command("DEL", name)]
    with contextlib.suppress(LockError):
        lock.extend()
    assert not any(server.get(name) for server in deleted), "the extension has created the key"
    assert ended(lock) == "deleted"


@every_face
def test_value_that_begins_alike_is_somebody_elses(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """A token ends at its colon; a longer token that begins with it is another one."""
    lock = drivers.start(face).client(node.urls).lock(name, auto_renew=False)
    lock.acquire()
    token, colon, rest = (node[0].get(name) or b"").partition(b":")
    other = token + b"0" + colon + rest
    node[0].command("SET", name, other)
    with contextlib.suppress(LockError):
        lock.release()
    assert node[0].get(name) == other, "it has released what only begins like its own"


@every_face
def test_lock_whose_nodes_do_not_answer_is_lost_in_time(
    drivers: Drivers, history: History, own_nodes: Cluster, face: str, name: str
) -> None:
    """Only its own clock can report it. What is left of the lock is deleted when the nodes are back."""
    history.rule("--told-late-ms", str(SLACK_MS))
    # So long that a slow machine has time for a renewal, which meets the silence.
    ttl_ms = 2 * TTL_MS
    lock = drivers.start(face).client(own_nodes.urls).lock(name, ttl_ms=ttl_ms)
    won = lock.acquire()
    before_ms = won["remaining_ms"]

    def is_renewed() -> bool:
        nonlocal before_ms
        remaining_ms, before_ms = before_ms, lock.state()["remaining_ms"]
        return bool(before_ms > remaining_ms)

    until(is_renewed, "it is renewed")
    hung = list(own_nodes)[:3]
    for server in hung:
        server.freeze()
    told = lock.start_wait_lost(limit_ms=10_000).result()
    assert (told["lost"]["code"], told["lost"]["reason"]) == ("lost", "unreachable")
    assert told["told_ns"] > won["invoke_ns"] + validity_ms(ttl_ms) * 1e6
    for server in hung:
        server.thaw()
    until(lambda: not own_nodes.has(name), "it is gone from every node")
    assert ended(lock) == "unreachable"
    assert lock.acquire()["fence"] > won["fence"]


@every_face
def test_lock_ends_at_max_hold(drivers: Drivers, history: History, nodes: Cluster, face: str, name: str) -> None:
    """The lock ends then, however often it is renewed or extended."""
    history.rule("--told-late-ms", str(SLACK_MS))
    # The renewal that reaches it has most of a ttl for its answers.
    ttl_ms, max_hold_ms = 2 * TTL_MS, 3 * TTL_MS
    lock = drivers.start(face).client(nodes.urls).lock(name, ttl_ms=ttl_ms, max_hold_ms=max_hold_ms)
    won = lock.acquire()
    assert lock.extend()["remaining_ms"] <= max_hold_ms
    told = lock.start_wait_lost(limit_ms=10_000).result()
    assert (told["lost"]["code"], told["lost"]["reason"]) == ("lost", "max_hold")
    # The limit counts from the start of the attempt, which is somewhere in the call.
    assert won["invoke_ns"] + max_hold_ms * 1e6 <= told["told_ns"]
    assert told["told_ns"] <= won["return_ns"] + (max_hold_ms + SLACK_MS) * 1e6
    assert ended(lock) == "max_hold"
    until(lambda: not nodes.has(name), "the lock is free")
    assert lock.acquire()["fence"] > won["fence"]
