"""OpenTelemetry: the metrics as instruments, a real scrape of the Prometheus exporter, and the spans of locks."""

import logging
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from conftest import Run
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from server import Server
from support.clock import until
from test_cooperative import NAMES, PATCH

import redlock
from redlock import _cooperative, blocking, otel
from redlock import asyncio as aio


class Traced:
    """The spans that were made, while traces are on."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def ends(self) -> list[object]:
        """How the holds have ended whose spans have."""
        return [(span.attributes or {}).get("redlock.end") for span in self.spans("hold")]

    def spans(self, kind: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == f"redlock.{kind}"]


@pytest.fixture
def traced() -> Iterator[Traced]:
    traced = Traced()
    otel.instrument(tracer_provider=traced.provider, meter_provider=MeterProvider(shutdown_on_exit=False))
    yield traced
    otel.uninstrument()


# --- traces ---


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_lock_that_is_garbage_collected(traced: Traced, client: redlock.Redlock, name: str) -> None:
    client.lock(name).acquire()
    client.lock(f"{name}-block").__enter__()
    until(lambda: traced.ends() == ["abandoned", "released"])


async def test_a_client_that_is_closed_at_once(traced: Traced, server: Server, name: str) -> None:
    client = aio.Redlock(server.url)
    lock = client.lock(name)
    await lock.acquire()
    client.close()
    assert traced.ends() == ["released"]


async def test_a_block_goes_on_with_what_was_attached(
    traced: Traced, client: redlock.Redlock, aclient: aio.Redlock, name: str
) -> None:
    with client.lock(name) as lock:
        text = lock.detach()
    with client.attach(text) as lock:
        text = lock.detach()
    async with await aclient.attach(text):
        pass
    assert traced.ends() == ["detached", "detached", "released"]
    assert len(traced.spans("acquire")) == 3


def test_a_thread_acquires_while_a_client_is_closed(traced: Traced, client: redlock.Redlock, name: str) -> None:
    other = client.lock(f"{name}-other")

    def meanwhile(frame: FrameType, event: str, _: object) -> None:
        if (frame.f_globals["__name__"], event, other.held) == ("weakref", "return", False):
            other.acquire()

    with client.lock(name):
        sys.setprofile(meanwhile)
        try:
            redlock.Redlock("memory://closed").close()
        finally:
            sys.setprofile(None)
    other.release()
    assert traced.ends() == ["released"] * 2


class Fails(SpanProcessor):
    """A processor of a program that is broken."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        raise KeyError(span.name)

    def on_end(self, span: ReadableSpan) -> None:
        raise KeyError(span.name)


async def test_a_provider_that_fails_harms_no_lock(
    client: redlock.Redlock, aclient: aio.Redlock, server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Fails())
    otel.instrument(tracer_provider=provider)
    try:
        with client.lock(name) as lock:
            lock.check()
        async with aclient.lock(name) as alock:
            alock.check()
            assert not client.lock(name).acquire(blocking=False)
        assert not server.has(name)
    finally:
        otel.uninstrument()
    # A node may be silent for a moment, which is logged too.
    assert {record.name for record in caplog.records if record.name != "redlock.node"} == {"redlock.otel"}


SPANS = """
import sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from redlock import otel

class Prints(SpanExporter):
    def export(self, spans):
        for span in spans:
            print(span.name, span.attributes.get("redlock.outcome", span.attributes.get("redlock.end")), flush=True)
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Prints()))
otel.instrument(tracer_provider=provider)
"""


def test_greenlets(run: Run) -> None:
    program = """
def hold():
    with client.lock(name):
        sleep(0.1)

def wait():
    sleep(0.05)
    with client.lock(name):
        pass

for greenlet in [spawn(hold), spawn(wait)]:
    join(greenlet)
otel.uninstrument()
hold()
"""
    done = run(NAMES["gevent"] + SPANS + program, first=PATCH["gevent"])
    assert sorted(done.stdout.splitlines()) == [*["redlock.acquire acquired"] * 2, *["redlock.hold released"] * 2]
    assert done.returncode == 0


def test_a_lock_that_is_held_until_the_end(run: Run) -> None:
    done = run(SPANS + "lock = client.lock(name)\nlock.acquire()")
    assert done.stdout.splitlines() == ["redlock.acquire acquired", "redlock.hold released"]
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_forked_child_ends_no_span_of_its_parent(run: Run) -> None:
    program = """
import os
lock = client.lock(name)
lock.acquire()
pid = os.fork()
if pid == 0:
    with client.lock(name + "-child"):
        pass
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print("parent", flush=True)
lock.release()
"""
    done = run(SPANS + program)
    assert done.stdout.splitlines() == [
        "redlock.acquire acquired",
        "redlock.acquire acquired",
        "redlock.hold released",
        "parent",
        "redlock.hold released",
    ]
    assert (done.stderr, done.returncode) == ("", 0)


def test_nothing_is_left_when_it_is_off(client: redlock.Redlock, name: str) -> None:
    kinds = (blocking.Lock, _cooperative.Lock, aio.Lock)
    before = [dict(vars(kind)) for kind in kinds]
    traced = Traced()
    otel.instrument(tracer_provider=traced.provider)
    held = client.lock(f"{name}-held")
    held.acquire()
    assert [dict(vars(kind)) for kind in kinds] != before
    otel.uninstrument()
    assert [dict(vars(kind)) for kind in kinds] == before
    with client.lock(name):
        pass
    held.release()
    assert traced.ends() == [None]
    otel.uninstrument()


# --- metrics ---

KINDS = {name: metric.kind for name, metric in redlock.stats().items()}
NAMES_OF_INSTRUMENTS = {
    *(name for name, kind in KINDS.items() if kind != "histogram"),
    *(f"{name}_{part}" for name, kind in KINDS.items() if kind == "histogram" for part in ("bucket", "sum", "count")),
}


Observed = dict[str, dict[frozenset[tuple[str, Any]], float]]


def observed(reader: InMemoryMetricReader) -> Observed:
    """What a collection gets of ours: the values of each instrument by their labels."""
    data = reader.get_metrics_data()
    return {
        metric.name: {frozenset((point.attributes or {}).items()): point.value for point in metric.data.data_points}  # type: ignore[union-attr]
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if scope.scope.name == "redlock-rs" and metric.data.data_points
    }


def labels(**values: str) -> frozenset[tuple[str, Any]]:
    return frozenset(values.items())


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    otel.instrument(meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    yield reader
    otel.uninstrument()


def test_instruments_observe_what_stats_returns(
    reader: InMemoryMetricReader, client: redlock.Redlock, server: Server, name: str
) -> None:
    with client.lock(name):
        pass
    with client.lock(name, ttl=3):
        until(lambda: redlock.stats()["redlock_renewal_margin_ratio"].points)
        collected = observed(reader)
    assert set(collected) == NAMES_OF_INSTRUMENTS
    assert collected["redlock_node_up"][labels(node=server.url)] == 1
    acquires, acquired = "redlock_acquire_duration_seconds", {"outcome": "acquired", "contended": "false"}
    assert collected[f"{acquires}_sum"][labels(**acquired)] > 0
    count = collected[f"{acquires}_count"][labels(**acquired)]
    buckets = collected[f"{acquires}_bucket"]
    assert buckets[labels(**acquired, le="+Inf")] == count >= 2
    for end in ("0.0001", "0.0025", "1.0", "300.0"):
        assert 0 <= buckets[labels(**acquired, le=end)] <= count


def test_providers_can_be_replaced(caplog: pytest.LogCaptureFixture) -> None:
    readers = [InMemoryMetricReader(), InMemoryMetricReader()]
    first, second = [MeterProvider([reader], shutdown_on_exit=False) for reader in readers]
    try:
        for provider, expected in ((first, [True, False]), (second, [False, True]), (first, [True, False])):
            otel.instrument(meter_provider=provider)
            assert [bool(observed(reader)) for reader in readers] == expected
    finally:
        otel.uninstrument()
    assert [bool(observed(reader)) for reader in readers] == [False, False]
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    # A node of another test may be silent for a moment.
    assert [record for record in warnings if record.name != "redlock.node"] == []


def test_the_global_providers_may_be_set_later(run: Run) -> None:
    program = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redlock import otel

otel.instrument()
with client.lock(name):
    pass
reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
metrics.set_meter_provider(MeterProvider([reader]))
trace.set_tracer_provider(provider)
with client.lock(name):
    pass
print(reader.get_metrics_data() is not None, len(exporter.get_finished_spans()))
"""
    done = run(program)
    assert (done.stdout, done.stderr, done.returncode) == ("True 2\n", "", 0)


def test_without_opentelemetry(run: Run) -> None:
    program = """
try:
    from redlock import otel
except ImportError as error:
    print(error)
"""
    first = "import sys; sys.modules['opentelemetry'] = None"
    done = run(program, first=first)
    assert done.stdout == 'redlock.otel needs opentelemetry-api: pip install "redlock-rs[otel]"\n'
