"""`stats` counts what happened, under the names that all languages share."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Output

import redlock
from redlock import asyncio as aio


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


def test_they_are_values() -> None:
    metric = redlock.stats()["redlock_held"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        metric.kind = "counter"  # type: ignore[misc]
    assert aio.stats is redlock.stats
    assert aio.count_by_name is redlock.count_by_name


@pytest.mark.parametrize(
    ("most", "message"), [(-1, "-1"), (True, "bool"), (1.5, "float"), ("2", "str"), (2**80, "most")]
)
def test_wrong_numbers_of_names(most: Any, message: str) -> None:
    with pytest.raises(redlock.LockInvalidArgument, match=message) as raised:
        redlock.count_by_name(most)
    assert raised.value.option == "most"


def test_a_forked_child_begins_with_zeros(output: Output) -> None:
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
    assert output(program) == ""
