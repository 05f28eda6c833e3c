"""The spans of calls and of holds are the same in every language."""

from __future__ import annotations

import json

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, Driver, Json, LockError, MemoryServer
from conformance.story import several
from conformance.test_waiting import wait
from support.clock import until
from support.servers import Cluster

AT_ONCE = {"contended": "false", "waits": "0"}
"""What a call tells that did not wait."""


class Spans:
    """The spans of a process that end from now on."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._ended: list[Json] = driver.call("spans")["spans"]

    def next(self, name: str, parent: str | None = "caller") -> dict[str, str]:
        """Waits until the next span of this kind ends. Returns its attributes as text, and that it failed if it has."""
        until(lambda: self.ended(name), f"the span {name} ends")
        span = self.ended(name)[0]
        self._ended.remove(span)
        assert span["parent"] == parent
        told = span["attributes"] | ({"status": "failed"} if span.get("failed") else {})
        return {
            key.removeprefix("redlock."): value if isinstance(value, str) else json.dumps(value)
            for key, value in told.items()
        }

    def ended(self, name: str) -> list[Json]:
        """The spans of this kind that have ended, without those that `next` has returned."""
        self._ended += self._driver.call("spans")["spans"]
        return [span for span in self._ended if span["name"] == f"redlock.{name}"]


def failed(driver: Driver) -> dict[str, str]:
    """What tells of a failure, which spans of Rust do not."""
    return {} if driver.face.language == "rust" else {"status": "failed"}


@every_face
def test_a_call_and_a_hold_are_spans_of_the_caller(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    driver = drivers.fresh(face)
    client, spans = driver.client(node.urls), Spans(driver)
    lock, other, third = [client.lock(name) for _ in range(3)]
    is_rust = driver.face.language == "rust"
    hold = {"name": name, "fence": str(lock.acquire()["fence"])}
    # Only Rust tells what each node has answered.
    assert spans.next("acquire") == {**hold, **AT_ONCE, "outcome": "acquired"} | (
        {"answer": "granted"} if is_rust else {}
    )
    assert not other.try_acquire()
    denied = spans.next("acquire")
    assert denied.pop("answer", "").startswith("held by " if is_rust else "")
    assert denied == {"name": name, "outcome": "timeout", "contended": "true", "waits": "0"}
    waiting = wait(node, other)
    if FACES[face].cancels:
        call = wait(node, third)
        third.cancel(call)
        assert call.result()["cancelled"]
        cancelled = spans.next("acquire")
        assert (cancelled["outcome"], "contended" in cancelled) == ("cancelled", False)
    assert not spans.ended("hold")
    lock.release()
    assert spans.next("hold") == {**hold, "end": "released"}
    waiting.result()
    waited = spans.next("acquire")
    assert (waited["outcome"], waited["contended"]) == ("acquired", "true")
    assert int(waited["waits"]) > 0
    other.leave()
    assert spans.next("hold")["end"] == "released"


@every_face
def test_each_shape_of_a_lock_is_traced(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    driver = drivers.fresh(face)
    client, spans = driver.client(node.urls), Spans(driver)
    names = several(name)
    for lock, shown in ((client.lock_all(names), ", ".join(names)), (client.semaphore(name, 2), name)):
        lock.acquire()
        lock.release()
        assert [spans.next(each)["name"] for each in ("acquire", "hold")] == [shown] * 2
    election = client.election(name)
    running = election.start_run()
    until(lambda: election.leads, "it leads")
    election.end_term()
    running.result()
    # The driver leaves the tasks of its runtime for an election, and so their spans.
    parent = None if face == "rust" else "caller"
    assert [spans.next(each, parent)["name"] for each in ("acquire", "hold")] == [name] * 2


@every_face
def test_each_end_of_a_hold_is_told(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    driver = drivers.fresh(face)
    client, spans = driver.client(node.urls), Spans(driver)
    lost = failed(driver) | {"end": "lost"}
    lock = client.lock(name)
    lock.acquire()
    lock.lose("taken")
    assert lost.items() <= spans.next("hold").items()
    # The release finds that it was lost. The older protocol does not have fences.
    older = client.lock(f"{name}, older", protocol="setnx")
    older.acquire()
    node[0].command("DEL", older.name)
    with pytest.raises(LockError):
        older.release()
    assert spans.next("hold") == {"name": f"{name}, older", **lost}
    detached = client.lock(f"{name}, detached")
    detached.acquire()
    detached.detach()
    assert spans.next("hold")["end"] == "detached"
    closed = driver.client(node.urls)
    held, other = closed.lock(f"{name}, held"), client.lock(f"{name}, other")
    held.acquire()
    other.acquire()
    closed.close()
    assert spans.next("hold").items() >= {"name": f"{name}, held", "end": "released"}.items()
    assert not spans.ended("hold")


@every_face
def test_a_call_that_fails_says_why(drivers: Drivers, face: str, name: str) -> None:
    driver = drivers.fresh(face)
    server, spans = MemoryServer(driver), Spans(driver)
    server.set_available(False)
    with pytest.raises(LockError):
        driver.client([server.url]).lock(name).try_acquire()
    told = spans.next("acquire")
    told.pop("answer", None)
    assert told == {"name": name, **AT_ONCE, "outcome": "unavailable", **failed(driver)}
