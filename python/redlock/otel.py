"""Metrics and traces for OpenTelemetry. It needs the extra `otel`: `pip install "redlock-rs[otel]"`.

    from redlock import otel

    otel.instrument()

Each metric of `redlock.stats` becomes an observable instrument of the same name. OpenTelemetry cannot observe a
histogram that was counted elsewhere, so a histogram becomes three instruments: `<name>_bucket` with the label `le`,
`<name>_sum` and `<name>_count`. They only grow, but are up-down counters, because exporters add `_total` to the names
of counters.

Each acquire makes a span `redlock.acquire`, and each hold a span `redlock.hold`, which ends at the release or at the
loss. Both are children of the span that is current where the lock is acquired. Without `instrument` there is neither a
span nor code that looks for one.

>>> from redlock import otel
>>> otel.instrument()
>>> otel.uninstrument()
"""

import atexit
import contextlib
import functools
import inspect
import logging
import math
import os
import signal
import time
import traceback
import weakref
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, ParamSpec, TypeVar

from redlock import _cooperative, _losses, _native, asyncio, blocking
from redlock._native import __version__
from redlock.errors import LockLost, RedlockError
from redlock.metrics import Histogram, Metric, stats

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, Status, StatusCode, Tracer, TracerProvider
except ModuleNotFoundError:
    raise ImportError('redlock.otel needs opentelemetry-api: pip install "redlock-rs[otel]"') from None

__all__ = ["instrument", "uninstrument"]

P = ParamSpec("P")
R = TypeVar("R")

_SCOPE = "redlock-rs"
"""The name of the meter and of the tracer, in every language."""

_logger = logging.getLogger(__name__)


def instrument(*, meter_provider: MeterProvider | None = None, tracer_provider: TracerProvider | None = None) -> None:
    """Have metrics and spans made from now on, by these providers; by default, by the global ones.

    Call it once, before or after the global providers are set. Another call replaces the providers. Locks that are held
    already have no span.

    >>> from redlock import otel
    >>> otel.instrument()
    >>> otel.uninstrument()
    """
    uninstrument()
    _observe_with(meter_provider)
    tracer = trace.get_tracer(_SCOPE, __version__, tracer_provider)
    for kind, enter, leave, acquiring in _FACES:
        for method in ("acquire", enter):
            _replace(kind, method, acquiring, tracer)
        for method in ("release", leave):
            _replace(kind, method, _within(_Release), tracer)
        _replace(kind, "detach", _within(_detaching), tracer)
    for client, close in _CLOSES:
        _replace(client, close, _within(_Close), tracer)
    # The acquire of a candidate, which greenlets inherit.
    _replace(blocking.Lock, "_campaign", _acquiring, tracer)
    # Behind what the program has registered, so before the end of its providers.
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)


def uninstrument() -> None:
    """Make neither metrics nor spans from now on. Spans of holds end here.

    >>> from redlock import otel
    >>> otel.uninstrument()
    """
    global _observed  # noqa: PLW0603 - one for each process, on purpose
    _observed = None
    while _replaced:
        kind, method, former = _replaced.pop()
        if former is None:
            delattr(kind, method)
        else:
            setattr(kind, method, former)
    for _, hold in _open():
        hold.end(None)
    _holds.clear()


# --- metrics ---


class _Snapshot:
    """The metrics as they were read at one moment, and the instruments that have asked for them."""

    LASTS = 1.0
    """Seconds for which they are good. One collection asks for all instruments at once."""

    def __init__(self) -> None:
        self.metrics = stats()
        self.asked: set[str] = set()
        self.until = time.monotonic() + self.LASTS


_snapshot: _Snapshot | None = None

_observed: Callable[[], MeterProvider] | None = None
"""Returns the provider that gets the metrics now."""

_made_with: weakref.WeakSet[MeterProvider] = weakref.WeakSet()
"""The providers that have the instruments. These cannot be removed, so those that are not wanted observe nothing."""


def _provider(given: MeterProvider | None) -> Callable[[], MeterProvider]:
    """Find out how to find the provider. The global one may be set later, and gets the instruments made before that."""
    if given is None:
        return metrics.get_meter_provider
    provider = given
    return lambda: provider


def _observe_with(given: MeterProvider | None) -> None:
    global _observed  # noqa: PLW0603
    provider = _observed = _provider(given)
    if provider() in _made_with:
        return
    _made_with.add(provider())
    meter = metrics.get_meter(_SCOPE, __version__, meter_provider=given)
    make = {
        "gauge": meter.create_observable_gauge,
        "counter": meter.create_observable_counter,
        "histogram": meter.create_observable_up_down_counter,
    }
    for metric in stats().values():
        for instrument, read in _instruments(metric).items():
            make[metric.kind](
                instrument, [_observer(provider, instrument, metric.name, read)], description=metric.about
            )


Read = Callable[[Metric], Iterable[Observation]]


def _instruments(metric: Metric) -> dict[str, Read]:
    """Return the instruments that a metric becomes, by name."""
    if metric.kind != "histogram":
        return {metric.name: _values}
    return {f"{metric.name}_{part}": read for part, read in _PARTS.items()}


def _observer(
    provider: Callable[[], MeterProvider], instrument: str, metric: str, read: Read
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        if _observed is None or _observed() is not provider():
            return []
        return read(_read(instrument)[metric])

    return observe


def _read(instrument: str) -> dict[str, Metric]:
    """Read the metrics, once for all instruments of a collection: so the parts of a histogram fit together."""
    global _snapshot  # noqa: PLW0603
    snapshot = _snapshot
    if snapshot is None or instrument in snapshot.asked or time.monotonic() > snapshot.until:
        snapshot = _snapshot = _Snapshot()
    snapshot.asked.add(instrument)
    return snapshot.metrics


def _values(metric: Metric) -> Iterable[Observation]:
    return [Observation(point.value, point.labels) for point in metric.points if isinstance(point.value, float)]


def _histograms(metric: Metric) -> Iterable[tuple[Histogram, dict[str, str]]]:
    return [(point.value, point.labels) for point in metric.points if isinstance(point.value, Histogram)]


def _buckets(metric: Metric) -> Iterable[Observation]:
    return [
        Observation(count, {**labels, "le": "+Inf" if math.isinf(end) else str(end)})
        for histogram, labels in _histograms(metric)
        for end, count in histogram.buckets
    ]


def _sums(metric: Metric) -> Iterable[Observation]:
    return [Observation(histogram.sum, labels) for histogram, labels in _histograms(metric)]


def _counts(metric: Metric) -> Iterable[Observation]:
    return [Observation(histogram.count, labels) for histogram, labels in _histograms(metric)]


_PARTS: dict[str, Read] = {"bucket": _buckets, "sum": _sums, "count": _counts}


# --- traces ---


def _harmless(work: Callable[P, None]) -> Callable[P, None]:
    """Log what the program's provider raises in `work`. It must not end a call whose lock is held."""

    @functools.wraps(work)
    def harmless(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            work(*args, **kwargs)
        except Exception as error:
            if _is_of_a_signal_handler(error):
                raise
            _logger.exception("a span could not be made or ended")

    return harmless


def _is_of_a_signal_handler(error: Exception) -> bool:
    """Whether a signal handler has raised it, such as that of a time limit, and not the code that it interrupted."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__))


_ANSWERS = ("acquired", "timeout", "unavailable", "forbidden", "lost")
"""The outcomes of calls for which the engine says how they waited. It does not for calls that it refused, or that were
cancelled."""


class _Acquire:
    """One acquire, and its span."""

    def __init__(self, tracer: Tracer, lock: _native.Handle) -> None:
        self._tracer = tracer
        self._lock = lock
        self._name = lock.name if isinstance(lock.name, str) else lock.name.decode(errors="replace")
        self._span: Span = trace.INVALID_SPAN
        self._was_held = lock.held
        self.acquired = False
        """Whether the call has got the lock."""

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self._ended()
        else:
            self._failed(error)

    @_harmless
    def _begin(self) -> None:
        self._span = self._tracer.start_span("redlock.acquire", attributes={"redlock.name": self._name})

    @_harmless
    def _ended(self) -> None:
        """End the span. If the lock was acquired, its hold begins."""
        if not self.acquired:
            self._end("timeout")
            return
        if self._was_held:
            # The block of an attached lock goes on with its hold, and this span is dropped.
            return
        fence = _fence(self._lock)
        self._span.set_attributes(fence)
        self._end("acquired")
        attributes: dict[str, str | int] = {"redlock.name": self._name, **fence}
        _Hold(self._lock, self._tracer.start_span("redlock.hold", attributes=attributes))

    @_harmless
    def _failed(self, error: BaseException) -> None:
        """End the span with what the acquire has raised."""
        outcome = error.code if isinstance(error, RedlockError) else "cancelled"
        if isinstance(error, RedlockError) and outcome != "timeout":
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._end(outcome)

    def has_won(self, error: BaseException) -> bool:
        """Whether the acquire raises although it has the lock: a signal handler has raised after the lock was won."""
        # After an error of ours, it is another thread that has acquired the object.
        return self._lock.held and not self._was_held and not isinstance(error, RedlockError)

    def _end(self, outcome: str) -> None:
        self._span.set_attribute("redlock.outcome", outcome)
        waited = self._lock._waited if outcome in _ANSWERS else None  # noqa: SLF001 - it is for this
        if waited is not None:
            contended, waits = waited
            self._span.set_attributes({"redlock.contended": contended, "redlock.waits": waits})
        self._span.end()


def _fence(lock: _native.Handle) -> dict[str, int]:
    try:
        return {"redlock.fence": lock.fence}
    except RedlockError:
        # The older protocol has none, and a lock that was released meanwhile does not tell it.
        return {}


class _Hold:
    """One hold of a lock, and its span. The span also ends when the lock is garbage-collected, or the process ends.

    A collection releases the hold of a block. Any other hold goes on, but nothing is told of its end.
    """

    def __init__(self, lock: _native.Handle, span: Span) -> None:
        self._span = span
        collected = "released" if lock._in_block else "abandoned"  # noqa: SLF001 - it is for this
        self._finalizer = weakref.finalize(lock, _end, span, collected, None)
        self._finalizer.atexit = False
        if lock not in _watched:
            _watched.add(lock)
            _losses.watch(lock, _lost)
        former = _holds.pop(lock, None)
        if former is not None:
            former.end("lost")
        _holds[lock] = self
        if not lock.held:
            # The report of the loss may have come before there was a hold to end.
            _lost(lock)

    def end(self, how: str | None, at: int | None = None) -> None:
        """End the span, unless it has ended."""
        if self.forget():
            _end(self._span, how, at)

    def forget(self) -> bool:
        """Leave the span as it is. Return `False` if it has ended."""
        return self._finalizer.detach() is not None


@_harmless
def _end(span: Span, how: str | None, at: int | None) -> None:
    if how is not None:
        span.set_attribute("redlock.end", how)
    if how == "lost":
        span.set_status(Status(StatusCode.ERROR))
    span.end(at)


_holds: weakref.WeakKeyDictionary[_native.Handle, _Hold] = weakref.WeakKeyDictionary()


def _open() -> list[tuple[_native.Handle, _Hold]]:
    """List the holds and their locks. An iteration would fail if another thread begins or ends one meanwhile."""
    locks = [reference() for reference in _holds.keyrefs()]
    return [(lock, hold) for lock in locks if lock is not None and (hold := _holds.get(lock)) is not None]


_watched: weakref.WeakSet[_native.Handle] = weakref.WeakSet()
"""Locks whose losses are reported. That goes on for as long as they live."""


def _lost(lock: _native.Handle, _: LockLost | None = None) -> None:
    # If it is held, the loss is that of an earlier hold, which has ended.
    hold = None if lock.held else _holds.pop(lock, None)
    if hold is not None:
        hold.end("lost")


class _Release:
    """The release of a lock. Its hold ends where the release begins, and how it ends is known afterwards."""

    def __init__(self, lock: _native.Handle) -> None:
        self._was_held = lock.held
        self._at = time.time_ns()
        self._hold = _holds.pop(lock, None)

    def __enter__(self) -> None:
        """Run the release."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._hold is not None:
            lost = not self._was_held or isinstance(error, LockLost)
            self._hold.end("lost" if lost else "released", self._at)


class _Close:
    """The end of a client, which releases its locks: they are not held from the begin of the call on."""

    def __init__(self, _: _native.Client) -> None:
        self._at = time.time_ns()
        self._held = [(lock, hold) for lock, hold in _open() if lock.held]

    def __enter__(self) -> None:
        """Run the end."""

    def __exit__(self, *_: object) -> None:
        for lock, hold in self._held:
            if not lock.held:
                hold.end("released", self._at)


Wrap = Callable[[Callable[..., Any], Tracer], Callable[..., Any]]


def _acquiring(method: Callable[..., R], tracer: Tracer) -> Callable[..., R]:
    def acquire(self: blocking.Lock, *args: object, **kwargs: object) -> R:
        call = _Acquire(tracer, self)
        try:
            with call:
                acquired = method(self, *args, **kwargs)
                call.acquired = acquired is not False
        except BaseException as error:
            if call.has_won(error):
                self.__exit__(type(error), error, error.__traceback__)
            raise
        return acquired

    return acquire


def _acquiring_task(
    method: Callable[..., Coroutine[Any, Any, R]], tracer: Tracer
) -> Callable[..., Coroutine[Any, Any, R]]:
    async def acquire(self: asyncio.Lock, *args: object, **kwargs: object) -> R:
        call = _Acquire(tracer, self)
        try:
            with call:
                acquired = await method(self, *args, **kwargs)
                call.acquired = acquired is not False
        except BaseException as error:
            if call.has_won(error):
                await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return acquired

    return acquire


def _within(block: Callable[[Any], contextlib.AbstractContextManager[None]]) -> Wrap:
    """Have a method run within such a block."""

    def wrap(method: Callable[..., Any], _: Tracer) -> Callable[..., Any]:
        def call(self: object, *args: object, **kwargs: object) -> object:
            with block(self):
                return method(self, *args, **kwargs)

        async def task(self: object, *args: object, **kwargs: object) -> object:
            with block(self):
                return await method(self, *args, **kwargs)

        return task if inspect.iscoroutinefunction(method) else call

    return wrap


@contextlib.contextmanager
def _detaching(lock: _native.Handle) -> Generator[None]:
    """End the hold of a lock once it is detached."""
    yield
    hold = _holds.pop(lock, None)
    if hold is not None:
        hold.end("detached")


_FACES: tuple[tuple[type[_native.Handle], str, str, Wrap], ...] = (
    (blocking.Lock, "__enter__", "__exit__", _acquiring),
    (_cooperative.Lock, "__enter__", "__exit__", _acquiring),
    (asyncio.Lock, "__aenter__", "__aexit__", _acquiring_task),
)
"""The classes of locks: how a block is entered and left, and what replaces the methods that acquire."""

_CLOSES = ((blocking.Redlock, "close"), (asyncio.Redlock, "close"), (asyncio.Redlock, "aclose"))
"""The methods that end a client. Its block calls one of them."""

_replaced: list[tuple[type, str, object]] = []
"""The methods that were replaced, and what was there; `None` if the method is inherited."""


def _replace(kind: type, name: str, wrap: Wrap, tracer: Tracer) -> None:
    method = getattr(kind, name)
    _replaced.append((kind, name, vars(kind).get(name)))
    setattr(kind, name, functools.wraps(method)(wrap(method, tracer)))


def _at_exit() -> None:
    """End the spans of the locks that the end of the process releases."""
    for _, hold in _open():
        hold.end("released")


def _after_fork() -> None:
    """Forget the spans of the parent, which ends them."""
    global _holds, _snapshot  # noqa: PLW0603
    inherited = list(_holds.values())
    _holds = weakref.WeakKeyDictionary()
    _snapshot = None
    for hold in inherited:
        hold.forget()


os.register_at_fork(after_in_child=_after_fork)
