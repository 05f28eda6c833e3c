"""The programs of `core/docs/observing.md` run. Those in Rust are compiled with the crate's documentation."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

from examples.program import NODE_PACKAGES, ROOT, Running, interpreted, link_packages
from observing.expressions import exported
from observing.told import PAGE, program, told_metrics
from support.clock import until
from support.ports import free_port
from support.servers import Server

OTHERS = {"@opentelemetry": ROOT / "node" / "node_modules" / "@opentelemetry"}
"""What a program in Node has beside the package."""

PORT = "9464"
"""The port of the programs that Prometheus scrapes."""

HEARD = {
    "python": ("logging.basicConfig", r"WARNING:redlock\.node:.* \(node=.*, policy=allkeys-lru\)"),
    "js": ("diagnostics_channel", r"warn node_evicts [^}]*\bpolicy: 'allkeys-lru'"),
}
"""What a program with this in it says of a node that may evict."""

COUNTED = {"python": "redlock.stats().values()", "js": "stats }"}
SCRAPED = [
    ("python", "start_http_server"),
    ("js", "PrometheusExporter"),
    ("python", "HTTPServer"),
    ("js", "openMetrics"),
]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that may evict locks."""
    with Server() as server:
        server.configure(maxmemory_policy="allkeys-lru")
        yield server


def running(server: Server, directory: Path, language: str, code: str) -> Running:
    """A program of the page beside this test."""
    link_packages(directory, NODE_PACKAGES | OTHERS)
    return Running([server.url], directory, *interpreted(directory, language, code))


def test_every_program_is_run() -> None:
    found = re.findall(r"^```(\w+)", PAGE, re.M)
    run = [*HEARD, *COUNTED, *(language for language, _ in SCRAPED)]
    assert all(found.count(language) == run.count(language) for language in ("python", "js"))


@pytest.mark.parametrize("language", HEARD)
def test_what_is_heard(server: Server, tmp_path: Path, language: str) -> None:
    word, said = HEARD[language]
    with running(server, tmp_path, language, program(language, word)) as node:
        node.wait_for_work()
        until(lambda: re.search(said, node.said), "the node's policy is told")
        if language == "js":
            until(lambda: "[REDLOCK_NODE_EVICTS] RedlockWarning: " in node.said, "it is a warning too")
        assert node.end(), node.said


@pytest.mark.parametrize("language", COUNTED)
def test_what_is_counted(server: Server, tmp_path: Path, language: str) -> None:
    with running(server, tmp_path, language, program(language, COUNTED[language])) as counts:
        counts.wait_for_work()
        assert counts.end(), counts.said
        for name in ("redlock_acquire_duration_seconds", "redlock_held", "redlock_node_up"):
            assert re.search(rf"^{name} ", counts.said, re.M), counts.said


def scraped(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What Prometheus would get, by its own parser: the labels and values of each name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text, kind = answer.read().decode(), answer.headers.get_content_type()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    parse = openmetrics.text_string_to_metric_families if kind == "application/openmetrics-text" else classic
    for family in parse(text):
        for sample in family.samples:
            assert not sample.name.startswith("redlock_") or sample.name.endswith("_total") == (
                family.type == "counter"
            )
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.parametrize(("language", "word"), SCRAPED)
def test_what_prometheus_scrapes(server: Server, tmp_path: Path, language: str, word: str) -> None:
    port = free_port()
    code = program(language, word)
    assert PORT in code
    with running(server, tmp_path, language, code.replace(PORT, str(port))) as page:
        page.wait_for_work()
        samples = scraped(port)
        assert page.end(), page.said
    known = exported(told_metrics())
    ours = {name for name in samples if name.startswith("redlock_")}
    assert ours <= known.keys()
    assert {name for name in known if not name.startswith(("redlock_renewal_margin", "redlock_hold"))} <= ours
    assert [value for _, value in samples["redlock_held"]] == [1]
    acquired = samples["redlock_acquire_duration_seconds_count"]
    assert [value for labels, value in acquired if labels["outcome"] == "acquired"] == [1]
    buckets = samples["redlock_acquire_duration_seconds_bucket"]
    assert [value for labels, value in buckets if labels["le"] == "+Inf"] == [1]
