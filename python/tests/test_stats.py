"""`stats` counts what happened, under the names that all languages share."""

import asyncio
import dataclasses
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Run
from server import LIMIT, Server
from support.clock import until
from test_asyncio import eventually

import redlock
from redlock import asyncio as aio
from redlock.testing import lose

KINDS = {
    "redlock_acquire_duration_seconds": "histogram",
    "redlock_waiting": "gauge",
    "redlock_held": "gauge",
    "redlock_hold_duration_seconds": "histogram",
    "redlock_lost_total": "counter",
    "redlock_renewal_margin_ratio": "histogram",
    "redlock_renewals_total": "counter",
    "redlock_releases_total": "counter",
    "redlock_node_up": "gauge",
    "redlock_node_evicts": "gauge",
    "redlock_node_duration_seconds": "histogram",
    "redlock_node_connections_total": "counter",
    "redlock_releases_pending": "gauge",
    "redlock_events_dropped_total": "counter",
}


def total(metric: str, **labels: str) -> float:
    """The sum of all values with these labels; for histograms the number of observations."""
    values = [point.value for point in redlock.stats()[metric].points if labels.items() <= point.labels.items()]
    return sum(value.count if isinstance(value, redlock.Histogram) else value for value in values)


@pytest.fixture(autouse=True, scope="module")
def _by_name() -> Iterator[None]:
    """Count each test's lock by itself: locks of other tests may still be released or lost."""
    redlock.count_by_name(1_000)
    yield
    redlock.count_by_name(0)


def test_every_metric_is_there_and_says_what_it_is() -> None:
    stats = redlock.stats()
    assert {name: metric.kind for name, metric in stats.items()} == KINDS
    for name, metric in stats.items():
        assert metric.name == name
        assert metric.about.endswith(".")
        assert isinstance(metric.points, tuple)


def test_values_are_what_their_kind_says(client: redlock.Redlock, name: str) -> None:
    with client.lock(name):
        stats = redlock.stats()
    for metric in stats.values():
        labels = [tuple(sorted(point.labels.items())) for point in metric.points]
        assert len(set(labels)) == len(labels)
        for point in metric.points:
            if metric.kind != "histogram":
                assert isinstance(point.value, float)
                continue
            assert isinstance(point.value, redlock.Histogram)
            ends, counts = zip(*point.value.buckets, strict=True)
            assert list(ends) == sorted(ends)
            assert math.isinf(ends[-1])
            assert list(counts) == sorted(counts)
            assert counts[-1] == point.value.count > 0
            assert point.value.sum >= 0


def test_they_are_values() -> None:
    metric = redlock.stats()["redlock_held"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        metric.kind = "counter"  # type: ignore[misc]
    assert aio.stats is redlock.stats
    assert aio.count_by_name is redlock.count_by_name


def test_calls_and_holds_are_counted(client: redlock.Redlock, name: str) -> None:
    acquires = "redlock_acquire_duration_seconds"
    releases = total("redlock_releases_total", outcome="released")
    with client.lock(name):
        assert total(acquires, name=name, outcome="acquired", contended="false") == 1
        assert total("redlock_held", name=name) == 1
        assert not client.lock(name).acquire(blocking=False)
        assert total(acquires, name=name, outcome="timeout") == 1
    assert total("redlock_held", name=name) == 0
    assert total("redlock_hold_duration_seconds", name=name, end="released") == 1
    assert total("redlock_releases_total", outcome="released") > releases
    assert total(acquires, name=name) == 2


def test_a_loss_is_counted_by_its_reason(client: redlock.Redlock, name: str) -> None:
    lock = client.lock(name)
    lock.acquire()
    lose(lock, "deleted")
    until(lambda: total("redlock_lost_total", name=name, reason="deleted") == 1)
    assert total("redlock_lost_total", name=name) == 1
    assert total("redlock_hold_duration_seconds", name=name, end="lost") == 1
    assert total("redlock_held", name=name) == 0


def test_renewals_and_their_margins(client: redlock.Redlock, name: str) -> None:
    renewals = total("redlock_renewals_total", outcome="renewed")
    with client.lock(name, ttl=1):
        until(lambda: total("redlock_renewal_margin_ratio", name=name) >= 2)
    assert total("redlock_renewals_total", outcome="renewed") >= renewals + 2
    points = redlock.stats()["redlock_renewal_margin_ratio"].points
    (value,) = [point.value for point in points if point.labels == {"name": name}]
    assert isinstance(value, redlock.Histogram)
    assert 0 < value.sum / value.count < 1


async def test_calls_that_wait(aclient: aio.Redlock, name: str) -> None:
    async with aclient.lock(name):
        waiters = [asyncio.create_task(aclient.lock(name).acquire(timeout=LIMIT)) for _ in range(3)]
        await eventually(lambda: total("redlock_waiting", name=name) == 3)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.wait(waiters)
    await eventually(lambda: total("redlock_waiting", name=name) == 0)
    await eventually(lambda: total("redlock_acquire_duration_seconds", name=name, outcome="cancelled") == 3)


def test_a_call_that_waited_was_contended(client: redlock.Redlock, name: str) -> None:
    lock, other = client.lock(name), client.lock(name)
    lock.acquire()
    assert lock._waited == (False, 0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.acquire)
        until(lambda: total("redlock_waiting", name=name) == 1)
        lock.release()
        assert waiting.result(LIMIT)
    waited = other._waited
    assert waited is not None
    assert waited[1] > 0
    other.release()
    assert other._waited is None
    acquires = "redlock_acquire_duration_seconds"
    assert total(acquires, name=name, outcome="acquired", contended="true") == 1
    assert total(acquires, name=name, outcome="acquired", contended="false") == 1


def test_nodes_are_labels(client: redlock.Redlock, server: Server, name: str) -> None:
    with client.lock(name):
        pass
    node = {"node": server.url}
    assert total("redlock_node_up", **node) == 1
    assert total("redlock_node_evicts", **node) == 0
    assert total("redlock_node_connections_total", **node) >= 1
    assert total("redlock_node_duration_seconds", **node, script="acquire") >= 1
    assert total("redlock_node_duration_seconds", **node, script="release") >= 1
    assert total("redlock_releases_pending", **node) == 0


def test_names_are_labels_only_if_wanted(run: Run) -> None:
    program = """
def acquire(*names):
    for each in names:
        with client.lock(f"{name}-{each}"):
            pass

def counts():
    points = redlock.stats()["redlock_acquire_duration_seconds"].points
    return {point.labels.get("name", "-").rpartition("-")[2]: point.value.count for point in points}

acquire("before")
print(counts())
redlock.count_by_name(2)
acquire("a", "b", "c", "a")
print(counts())
redlock.count_by_name(0)
acquire("a", "after")
print(counts().get(""))
"""
    done = run(program)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == ["{'': 1}", "{'': 2, 'a': 2, 'b': 1}", "4"]


@pytest.mark.parametrize(
    ("most", "message"), [(-1, "-1"), (True, "bool"), (1.5, "float"), ("2", "str"), (2**80, "most")]
)
def test_wrong_numbers_of_names(most: Any, message: str) -> None:
    with pytest.raises(redlock.LockInvalidArgument, match=message) as raised:
        redlock.count_by_name(most)
    assert raised.value.option == "most"


def test_a_forked_child_begins_with_zeros(run: Run) -> None:
    program = """
import os

def acquired():
    points = redlock.stats()["redlock_acquire_duration_seconds"].points
    return sum(point.value.count for point in points)

lock = client.lock(name)
lock.acquire()
assert acquired() == 1
pid = os.fork()
if pid == 0:
    assert acquired() == 0
    assert redlock.stats()["redlock_held"].points[0].value == 0
    with client.lock(name + "-child"):
        assert acquired() == 1
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert acquired() == 1
lock.release()
"""
    done = run(program)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
