"""The metrics of a process that do not agree with its history are told."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.counts import Counts, Metrics, differences

HISTORY = Counts(acquired=5, told=1, lost=2, logged=1)

METRICS: Metrics = {
    "redlock_acquire_duration_seconds": [
        ({"outcome": "acquired", "contended": "false"}, 3),
        ({"outcome": "acquired", "contended": "true"}, 2),
        ({"outcome": "timeout", "contended": "true"}, 9),
    ],
    "redlock_hold_duration_seconds": [({"end": "released"}, 3), ({"end": "lost"}, 2)],
    "redlock_lost_total": [({"reason": "deleted"}, 2), ({"reason": "taken"}, 0)],
    "redlock_held": [({}, 0)],
    "redlock_waiting": [({}, 0)],
    "redlock_events_dropped_total": [({}, 0)],
}
"""Those of a process with this history."""


def found(metrics: Metrics = METRICS, counts: Counts = HISTORY) -> list[str]:
    """What the differences are about."""
    return [text.split(": ")[1] for text in differences("python-3.1", counts, metrics)]


def test_a_process_that_counts_right() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("name", "point", "number", "about"),
    [
        ("redlock_acquire_duration_seconds", 0, 4, ["acquisitions", "holds that ended"]),
        ("redlock_held", 0, 1, ["locks held at the end"]),
        ("redlock_waiting", 0, 1, ["calls waiting at the end"]),
        ("redlock_hold_duration_seconds", 1, 3, ["holds that ended", "holds that ended by a loss"]),
        ("redlock_lost_total", 0, 1, ["losses", "holds that ended by a loss"]),
    ],
)
def test_each_wrong_number_is_told(name: str, point: int, number: float, about: list[str]) -> None:
    points = list(METRICS[name])
    points[point] = (points[point][0], number)
    assert found(METRICS | {name: points}) == about


def test_losses_are_in_the_log_unless_events_were_dropped() -> None:
    silent = dataclasses.replace(HISTORY, logged=0)
    assert found(counts=silent) == ["losses in the log"]
    assert found(counts=dataclasses.replace(HISTORY, logged=2)) == [], "the release may not have been what found it"
    assert found(counts=dataclasses.replace(HISTORY, logged=3)) == ["losses in the log"]
    assert found(METRICS | {"redlock_events_dropped_total": [({}, 7)]}, silent) == []
