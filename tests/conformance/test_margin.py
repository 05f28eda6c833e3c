"""Locks that count as lost some time before others can have them, on every face."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import Client, Lock, LockError
from conformance.history import SLACK_MS, History
from conformance.story import connect_to_all, several
from conformance.test_loss import ended
from conformance.test_observing import number
from conformance.test_waiting import wait
from support.clock import until
from support.servers import Cluster

TTL_MS = 3000
MARGIN_MS = 1500
"""Longer than a slow machine may be late."""
LONG_TTL_MS = 60_000
LONGER_TTL_MS = TTL_MS + MARGIN_MS
"""A ttl whose margin leaves a slow machine time for its renewals."""
MAX_HOLD_MS = 4500
LIMIT_MS = 10_000

Make = Callable[..., Lock]


def plain(client: Client, name: str, **options: object) -> Lock:
    """An ordinary lock."""
    return client.lock(name, **options)


def of_all(client: Client, name: str, **options: object) -> Lock:
    """A lock of several names."""
    return client.lock_all(several(name), **options)


def slot(client: Client, name: str, **options: object) -> Lock:
    """The only slot of a semaphore."""
    return client.semaphore(name, 1, **options)


every_shape = pytest.mark.parametrize("make", [plain, of_all, slot])


def validity_ms(ttl_ms: int, margin_ms: int) -> float:
    """How long a lock is valid from the start of its attempt."""
    return ttl_ms - ttl_ms / 100 - 2 - margin_ms


@every_face
@every_shape
def test_it_is_lost_before_others_can_have_it(
    drivers: Drivers, history: History, nodes: Cluster, face: str, make: Make, name: str
) -> None:
    """The loss is told a margin before its keys can be had, whoever waits for them."""
    history.rule("--told-late-ms", str(SLACK_MS))
    client, others = (drivers.start(each).client(nodes.urls) for each in (face, "rust"))
    lock = make(client, name, ttl_ms=TTL_MS, margin_ms=MARGIN_MS, auto_renew=False)
    won = lock.acquire()
    valid_ms = validity_ms(TTL_MS, MARGIN_MS)
    assert won["remaining_ms"] <= valid_ms
    waiting = wait(nodes, make(others, name))
    lost = lock.start_wait_lost(limit_ms=LIMIT_MS).result()
    assert (lost["lost"]["code"], lost["lost"]["reason"]) == ("lost", "expired")
    # It is valid from the start of its attempt, which is somewhere within the call.
    assert won["invoke_ns"] + valid_ms * 1e6 <= lost["told_ns"]
    assert lost["told_ns"] <= won["return_ns"] + (valid_ms + SLACK_MS) * 1e6
    state = lock.state()
    assert (state["held"], state["remaining_ms"]) == (False, 0)
    with pytest.raises(LockError) as checked:
        lock.check()
    assert (checked.value.code, checked.value.reason) == ("lost", "expired")
    next_won = waiting.result()
    assert next_won["return_ns"] >= won["invoke_ns"] + (valid_ms + MARGIN_MS) * 1e6, "another has it within the margin"
    assert next_won["return_ns"] <= won["return_ns"] + (TTL_MS + SLACK_MS) * 1e6
    assert next_won["fence"] > won["fence"]


@every_face
def test_a_margin_behind_max_hold(drivers: Drivers, history: History, nodes: Cluster, face: str, name: str) -> None:
    """The nodes keep the lock for longer than it may be held, and it is released only after the margin."""
    history.rule("--told-late-ms", str(SLACK_MS))
    client, others = (drivers.start(each).client(nodes.urls) for each in (face, "rust"))
    lock = client.lock(name, ttl_ms=LONGER_TTL_MS, margin_ms=MARGIN_MS, max_hold_ms=MAX_HOLD_MS)
    won = lock.acquire()
    waiting = wait(nodes, others.lock(name))
    lost = lock.start_wait_lost(limit_ms=LIMIT_MS).result()
    assert lost["lost"]["reason"] == "max_hold"
    assert won["invoke_ns"] + MAX_HOLD_MS * 1e6 <= lost["told_ns"]
    assert lost["told_ns"] <= won["return_ns"] + (MAX_HOLD_MS + SLACK_MS) * 1e6
    next_won = waiting.result()
    assert next_won["return_ns"] >= won["invoke_ns"] + (MAX_HOLD_MS + MARGIN_MS) * 1e6, (
        "another has it within the margin"
    )
    assert next_won["return_ns"] <= won["return_ns"] + (MAX_HOLD_MS + MARGIN_MS + SLACK_MS) * 1e6


@every_face
@every_shape
def test_a_release_within_the_margin_is_sent_at_once(
    drivers: Drivers, nodes: Cluster, face: str, make: Make, name: str
) -> None:
    """It says that its holder has stopped, and it tells of the loss all the same."""
    ttl_ms = 4 * SLACK_MS
    client, others = (drivers.start(each).client(nodes.urls) for each in (face, "rust"))
    lock = make(client, name, ttl_ms=ttl_ms, margin_ms=ttl_ms // 2, auto_renew=False)
    lock.acquire()
    waiting = wait(nodes, make(others, name))
    assert lock.start_wait_lost(limit_ms=LIMIT_MS).result()["lost"]["reason"] == "expired"
    assert waiting.pending
    began = time.monotonic()
    assert ended(lock) == "expired"
    assert waiting.result()["acquired"]
    took_ms = (time.monotonic() - began) * 1000
    assert took_ms <= SLACK_MS, "it has waited for the margin"


@every_face
def test_it_is_renewed_sooner(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """A third of what is left beside the margin passes between two renewals, and a tenth more or less."""
    driver = drivers.fresh(face)
    ttl_ms, renewals = 3000, 5
    lock = driver.client(node.urls).lock(name, ttl_ms=ttl_ms, margin_ms=ttl_ms // 2)
    lock.acquire()
    began = time.monotonic()
    until(lambda: number(driver, "redlock_renewals_total", outcome="renewed") >= renewals, "it is renewed many times")
    took_ms = (time.monotonic() - began) * 1000
    assert took_ms <= renewals * 1.1 * (ttl_ms // 2) / 3 + SLACK_MS, "it is renewed too late for its margin"
    lock.check()
    lock.release()


@every_face
def test_a_lock_whose_nodes_do_not_answer(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    """They hang, and its own clock tells of the loss. When they are back, nobody has it before the margin is over."""
    client, others = (drivers.start(each).client(own_nodes.urls) for each in (face, "rust"))
    lock = client.lock(name, ttl_ms=TTL_MS + SLACK_MS, margin_ms=MARGIN_MS)
    lock.acquire()
    waiting = wait(own_nodes, others.lock(name))
    for server in own_nodes:
        server.freeze()
    last = lock.state()
    told = lock.start_wait_lost(limit_ms=LIMIT_MS).result()
    assert (told["lost"]["code"], told["lost"]["reason"]) == ("lost", "unreachable")
    for server in own_nodes:
        server.thaw()
    valid_until_ns = last["read_ns"] + last["remaining_ms"] * 1e6
    assert waiting.result()["return_ns"] >= valid_until_ns + MARGIN_MS * 1e6, "another has it within the margin"


@every_face
def test_keys_that_are_gone_need_no_margin(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Others can have the lock already, so what is left of it is released at once."""
    options = {"ttl_ms": LONG_TTL_MS, "margin_ms": LONG_TTL_MS // 2, "node_timeout_ms": 5 * SLACK_MS}
    client = drivers.start(face).client(nodes.urls, **options)
    connect_to_all(client, nodes, name)
    lock = client.lock(name, auto_renew=False)
    lock.acquire()
    until(lambda: all(server.has(name) for server in nodes), "every node has granted it")
    for server in list(nodes)[: len(nodes) // 2 + 1]:
        server.command("DEL", name)
    with pytest.raises(LockError) as lost:
        lock.extend()
    assert (lost.value.code, lost.value.reason) == ("lost", "deleted")
    until(lambda: not nodes.has(name), "it is free at once", limit_s=SLACK_MS / 1000)


@every_face
def test_an_extension_keeps_the_margin(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """Also one by another ttl, which cannot be shorter than twice the margin."""
    client = drivers.start(face).client(node.urls)
    lock = client.lock(name, ttl_ms=LONG_TTL_MS, margin_ms=MARGIN_MS, auto_renew=False)
    lock.acquire()
    for given, ttl_ms in (({}, LONG_TTL_MS), ({"ttl_ms": 2 * LONG_TTL_MS}, 2 * LONG_TTL_MS)):
        extended = lock.extend(**given)
        most_ms = validity_ms(ttl_ms, MARGIN_MS)
        assert most_ms - 2 * SLACK_MS <= extended["remaining_ms"] <= most_ms
    with pytest.raises(LockError) as short:
        lock.extend(ttl_ms=2 * MARGIN_MS - 1)
    assert (short.value.code, short.value.option) == ("invalid_argument", "margin")
    lock.check()
    lock.release()
