"""A lock is handed over: one program detaches it, and another one goes on with the hold, on every face."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from conformance.conftest import ROOT, Drivers, every_face
from conformance.driver import FACES, Call, Client, Lock, LockError
from conformance.history import SLACK_MS
from conformance.story import connect_to_all, fence_key, several, slot_key
from support.clock import until
from support.servers import Cluster

PAIRS = [(face, face) for face in FACES] + list(zip(FACES, [*list(FACES)[1:], *list(FACES)[:1]], strict=True))
"""Each face to itself and to another one, so that each detaches and attaches for another language."""
LONG_TTL_MS = 60_000
SHORT_TTL_MS = 2000
HALF_TTL_MS = 30_000
WEEK_MS = 7 * 24 * 3_600_000
"""The longest `at_least`, longer than any ttl."""
FENCE_TTL_MS = 3_600_000
PATIENT_MS = 5 * SLACK_MS
"""A node_timeout that nodes keep however slow the machine is."""
SAFE = re.compile(r"redlock1\.[A-Za-z0-9_.-]+")
EXTEND = (Path(ROOT) / "core/src/protocol/lua/extend.lua").read_text()

SHAPES: dict[str, Callable[[Client, str], Lock]] = {
    "one name": lambda client, name: client.lock(name),
    "several names": lambda client, name: client.lock_all(several(name)),
    "a semaphore": lambda client, name: client.semaphore(f"{name}/pool", 2),
    "a reader": lambda client, name: client.lock(f"{name}/page", shared=True),
}


def refusal(call: Call) -> LockError:
    """The error of an attachment."""
    with pytest.raises(LockError) as refused:
        call.result()
    return refused.value


def outcome(call: Call) -> str:
    """What came of an attachment."""
    try:
        return "held" if call.result()["held"] else "nothing"
    except LockError as error:
        return error.code


def token(nodes: Cluster, name: str) -> set[bytes]:
    """The tokens in the values of a lock."""
    return {(server.get(name) or b"").partition(b":")[0] for server in nodes}


def is_free(lock: Lock) -> bool:
    """Whether nobody has a lock."""
    return not lock.is_locked()


@pytest.mark.parametrize(("holder", "worker"), PAIRS)
def test_a_lock_is_handed_over(drivers: Drivers, nodes: Cluster, holder: str, worker: str, name: str) -> None:
    """The hold goes on with the same names, fence and slot, and the former holder has it no more."""
    given, other = (
        drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
        for face in (holder, worker)
    )
    for client in (given, other):
        connect_to_all(client, nodes, name)
    for shape, make in SHAPES.items():
        lock = make(given, name)
        won = lock.acquire()
        shown = lock.shown_names()
        lock.check()
        text = lock.detach()
        assert not lock.state()["held"], shape
        with pytest.raises(LockError, match="not held"):
            lock.detach()
        assert SAFE.fullmatch(text), shape
        assert not any(url in text for url in nodes.urls)
        attached = other.attach(text, lock, ttl_ms=2 * LONG_TTL_MS)
        state = attached.state()
        assert (state["held"], state["fence"], state["slot"]) == (True, won["fence"], won["slot"]), shape
        assert state["remaining_ms"] > LONG_TTL_MS, "as the worker has asked"
        assert attached.shown_names() == shown
        attached.extend()
        with pytest.raises(LockError, match="not held"):
            lock.extend()
        lock.release()
        attached.check()
        # In Rust, another acquire of what attach has returned would attach again.
        attached.release()
        until(partial(is_free, lock), f"{shape}: it is released everywhere")


@every_face
def test_of_two_attachments_one_has_the_lock(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client, other = (drivers.start(each).client(nodes.urls, ttl_ms=LONG_TTL_MS) for each in (face, "rust"))
    connect_to_all(client, nodes, name)
    lock = client.lock(name)
    lock.acquire()
    text = lock.detach()
    first = client.attach(text, lock)
    for each in (client, other):
        second = refusal(each.start_attach(text))
        assert (second.code, second.reason, second.name) == ("lost", "taken", name)
        assert len(second.nodes) == len(nodes)
    first.check()
    first.extend()
    text = first.detach()
    # They may also split the nodes, and then each has to give back what it has.
    calls = [each.start_attach(text, timeout_ms=PATIENT_MS) for each in (client, other)]
    assert sorted(map(outcome, calls)) == ["held", "lost"]


@every_face
def test_late_extension_of_the_former_holder(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """It finds another's key: the token changes with the holder, and the fence does not."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS, auto_renew=False)
    connect_to_all(client, nodes, name)
    lock = client.lock(name)
    fence = lock.acquire()["fence"]
    until(lambda: all(server.get(name) for server in nodes), "every node has granted it")
    before = {server: server.get(name) or b"" for server in nodes}
    attached = client.attach(lock.detach(), lock)
    until(lambda: not token(nodes, name) & {value[:32] for value in before.values()}, "every node has re-keyed")
    for server, value in before.items():
        after = server.get(name) or b""
        assert after[32:] == value[32:], "the fence and the label are the same"
        extend = ["EVAL", EXTEND, 2, name, fence_key(name), value[:32], 2 * LONG_TTL_MS, fence, FENCE_TTL_MS]
        assert server.command(*extend) not in (0, 1, 2), "it has extended the lock of another"
        assert server.left_ms(name) <= LONG_TTL_MS
    attached.release()


@every_face
def test_failed_attachment_can_be_repeated(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    """Without a quorum, the nodes that have re-keyed get the text's token again."""
    client = drivers.start(face).client(own_nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=SLACK_MS)
    connect_to_all(client, own_nodes, name)
    lock = client.lock(name)
    fence = lock.acquire()["fence"]
    until(lambda: all(server.get(name) for server in own_nodes), "every node has granted it")
    before = token(own_nodes, name)
    text = lock.detach()
    hung = list(own_nodes)[:3]
    for server in hung:
        server.freeze()
    failed = refusal(client.start_attach(text, timeout_ms=0))
    assert (failed.code, len(failed.nodes)) == ("unavailable", len(own_nodes))
    for server in hung:
        server.thaw()
    until(lambda: token(own_nodes, name) == before, "every node has the text's token again")
    attached = client.attach(text, lock, timeout_ms=PATIENT_MS)
    assert attached.fence == fence
    attached.release()


@every_face
def test_reader_is_detached_when_every_node_has_answered(
    drivers: Drivers, own_nodes: Cluster, face: str, name: str
) -> None:
    """An acquire that arrives later would make the former token a reader again, for a second attachment."""
    client = drivers.start(face).client(own_nodes.urls, ttl_ms=LONG_TTL_MS)
    connect_to_all(client, own_nodes, name)
    lock = client.lock(name, shared=True)
    own_nodes[0].freeze()
    fence = lock.acquire()["fence"]
    with pytest.raises(
        LockError, match="has not answered an acquire of this shared lock, which is held as before"
    ) as not_yet:
        lock.detach()
    assert not_yet.value.code == "unavailable"
    lock.check()
    own_nodes[0].thaw()
    until(lambda: own_nodes[0].has(name), "the late acquire has arrived")
    assert client.attach(lock.detach(), lock).state()["fence"] == fence


@every_face
def test_a_term_is_not_handed_over(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """Its election would not know of the new leader. It is refused before the extension is sent, and goes on."""
    election = drivers.start(face).client(node.urls, ttl_ms=HALF_TTL_MS).election(name)
    run = election.start_run(detaches=True)
    until(lambda: election.leads and "detach" in election.terms()[0], "it has tried")
    assert election.terms()[0]["detach"] == "invalid_argument"
    assert 0 < node[0].left_ms(name) <= HALF_TTL_MS
    election.end_term()
    assert run.result()["result"] == election.terms()[0]["fence"]
    until(lambda: not node.has(name), "it resigns")


@every_face
def test_wrong_texts_are_refused(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    driver = drivers.start(face)
    client, prefixed = (driver.client(node.urls, **options) for options in ({}, {"key_prefix": "app:"}))
    lock = client.lock(name)
    lock.acquire()
    text = lock.detach()
    for wrong in ("", name, text[:-1], text + "A", text.replace(".", ".A"), text.replace("1", "9", 1)):
        refused = refusal(client.start_attach(wrong))
        assert (refused.code, refused.option) == ("invalid_argument", "text"), wrong
        assert text[20:] not in str(refused)
    assert refusal(prefixed.start_attach(text)).option == "text", "its names begin otherwise"
    assert refusal(client.start_attach(text, ttl_ms=1)).option == "ttl"
    client.attach(text, lock).release()
    ended = refusal(client.start_attach(text))
    assert (ended.code, ended.reason) == ("lost", "deleted")
    assert node.has(fence_key(name))


@every_face
def test_an_attached_lock_goes_by_its_text(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """Whatever the client that attaches it gives to its own locks."""
    driver = drivers.start(face)
    lock = driver.client(node.urls, ttl_ms=3 * SHORT_TTL_MS).lock(name)
    times = {"ttl_ms": SHORT_TTL_MS, "max_hold_ms": SHORT_TTL_MS, "fence_ttl_ms": 2 * SHORT_TTL_MS}
    other = driver.client(node.urls, **times, auto_renew=False)
    lock.acquire()
    attached = other.attach(lock.detach(), lock)
    node[0].command("PEXPIRE", name, 2 * SHORT_TTL_MS)
    until(lambda: node[0].left_ms(name) > 2 * SHORT_TTL_MS, "it is renewed")
    patient = driver.client(node.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=3 * SHORT_TTL_MS)
    again = patient.attach(attached.detach(), attached)
    again.release()


@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.lock_objects])
def test_a_detached_lock_has_nothing_to_do_with_its_client(
    drivers: Drivers, node: Cluster, face: str, name: str
) -> None:
    """To release it again is no error after the client is closed either."""
    client = drivers.start(face).client(node.urls, ttl_ms=LONG_TTL_MS)
    lock = client.lock(name)
    lock.acquire()
    lock.detach()
    client.close()
    lock.release()


@every_face
def test_its_times_travel_with_a_lock(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    server = next(iter(node))
    client = drivers.start(face).client(node.urls, ttl_ms=LONG_TTL_MS)
    lock = client.semaphore(name, 1, at_least_ms=WEEK_MS, max_hold_ms=2 * LONG_TTL_MS, margin_ms=SHORT_TTL_MS)
    lock.acquire()
    attached = client.attach(lock.detach(), lock)
    assert attached.state()["remaining_ms"] <= LONG_TTL_MS, "its ttl is not the least time, which may be longer"
    lock = attached
    attached = client.attach(lock.detach(ttl_ms=4 * LONG_TTL_MS), lock, ttl_ms=3 * HALF_TTL_MS)
    assert attached.state()["remaining_ms"] > 3 * HALF_TTL_MS, "the time that is left is not shortened"
    lock = attached
    attached = client.attach(lock.detach(), lock, ttl_ms=3 * HALF_TTL_MS)
    assert attached.state()["remaining_ms"] > 3 * HALF_TTL_MS, "and not if it is handed on once more"
    assert attached.extend(ttl_ms=4 * LONG_TTL_MS)["remaining_ms"] <= 2 * LONG_TTL_MS, "max_hold has not begun anew"
    attached.release()
    left = server.left_ms(slot_key(name, 0))
    assert WEEK_MS - HALF_TTL_MS < left <= WEEK_MS, "at_least has not begun anew, and is kept"
    lock = client.lock(name, ttl_ms=SHORT_TTL_MS)
    lock.acquire()
    text = lock.detach()
    until(lambda: not node.has(name), "nobody renews it")
    ended = refusal(client.start_attach(text))
    assert (ended.code, ended.reason) == ("lost", "expired")
