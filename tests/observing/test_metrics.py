"""The page, the dashboard and the alerts name the metrics that a real snapshot has, with its labels and values."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import redlock

from observing.expressions import FROM_SCRAPES, exported, expressions, uses
from observing.told import scripts, told_metrics, told_scripts
from support.clock import until
from support.servers import Server

TTL_S = 3
"""Long enough for a late renewal to keep the lock. A renewal comes after a third of it."""

FRESH = """
import json, redlock
stats = redlock.stats()
print(json.dumps({name: [[point.labels, point.value] for point in stats[name].points] for name in stats
                  if stats[name].kind != "histogram"}))
"""


@pytest.fixture(scope="module")
def stats() -> redlock.Stats:
    """What a process counts whose locks were acquired, waited for, renewed, released and lost."""
    with Server() as server, redlock.Redlock(server.url, ttl=TTL_S) as client:
        lock, other = client.lock("a"), client.lock("a")
        with lock:
            assert not other.acquire(timeout=1)
            until(lambda: count("redlock_renewals_total", outcome="renewed"), "it is renewed")
        lock.acquire()
        server.command("DEL", "a")
        until(lambda: not lock.held, "it is lost")
        with client.lock("b"):
            return redlock.stats()


def count(name: str, **labels: str) -> float:
    """The number at a point of a metric; 0 if there is none."""
    points = redlock.stats()[name].points
    found = [point.value for point in points if point.labels.items() >= labels.items()]
    return sum(value for value in found if isinstance(value, float | int))


def values(metric: redlock.Metric, label: str) -> set[str]:
    """The values that a label of a metric has."""
    if label == "le":
        histograms = [point.value for point in metric.points if isinstance(point.value, redlock.Histogram)]
        return {repr(end) for histogram in histograms for end, _ in histogram.buckets}
    return {point.labels[label] for point in metric.points}


def test_the_page_has_every_metric_in_the_order_of_the_snapshot(stats: Mapping[str, redlock.Metric]) -> None:
    assert list(told_metrics()) == list(stats)


@pytest.mark.parametrize("name", told_metrics())
def test_the_page_has_the_metric_as_it_is(stats: Mapping[str, redlock.Metric], name: str) -> None:
    told, metric = told_metrics()[name], stats[name]
    assert (metric.name, metric.kind) == (name, told.kind)
    assert metric.about
    assert metric.points, "the fixture did what it counts"
    assert {frozenset(point.labels) for point in metric.points} == {told.labels}
    for point in metric.points:
        if isinstance(point.value, redlock.Histogram):
            ends, counts = zip(*point.value.buckets, strict=True)
            assert (list(ends), ends[-1]) == (sorted(ends), float("inf"))
            assert (list(counts), counts[-1]) == (sorted(counts), point.value.count)


def test_the_page_has_every_script_once() -> None:
    assert sorted(told_scripts()) == sorted(scripts())


def test_what_is_told_of_a_hold(stats: Mapping[str, redlock.Metric]) -> None:
    numbers = {name: [point.value for point in stats[name].points] for name in ("redlock_held", "redlock_waiting")}
    assert numbers == {"redlock_held": [1], "redlock_waiting": [0]}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="conformance/test_observing.py asks another parser")
def test_prometheus_reads_the_text(stats: redlock.Stats, tmp_path: Path) -> None:
    """Its tool wants to know when each sample was taken."""
    text = re.sub(r"^([^#].*)$", r"\1 1700000000", stats.to_openmetrics(), flags=re.M)
    (tmp_path / "metrics").write_text(text)
    program = ("promtool", "tsdb", "create-blocks-from", "openmetrics")
    done = subprocess.run(
        [*program, tmp_path / "metrics", tmp_path / "blocks"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [*(tmp_path / "blocks").iterdir()], done.stdout


@pytest.mark.parametrize("expression", expressions())
def test_every_name_in_an_expression_exists(stats: Mapping[str, redlock.Metric], expression: str) -> None:
    known, found = exported(told_metrics()), uses(expression)
    assert found
    for use in found:
        assert use.name in known
        metric = stats[next(name for name in stats if use.name in exported({name: told_metrics()[name]}))]
        labels = {label for label, _ in use.matched}
        assert labels | use.grouped <= known[use.name] | FROM_SCRAPES
        assert [(label, value) for label, value in use.matched if value not in values(metric, label)] == []


def test_the_dashboard_shows_every_metric() -> None:
    shown = {use.name for expression in expressions() for use in uses(expression)}
    for name, metric in told_metrics().items():
        assert shown & exported({name: metric}).keys(), f"nothing shows {name}"


def test_counters_that_alerts_look_at_begin_at_zero() -> None:
    """Else Prometheus would not see the first loss grow from anything."""
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, timeout=30, check=True)
    told = json.loads(done.stdout)
    reasons = {point[0]["reason"]: point[1] for point in told["redlock_lost_total"]}
    assert reasons == dict.fromkeys(("expired", "taken", "unreachable", "max_hold", "deleted"), 0)
    assert told["redlock_held"] == told["redlock_waiting"] == [[{}, 0]]
