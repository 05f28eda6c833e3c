"""The metrics of this process, as one snapshot."""

from dataclasses import dataclass
from typing import Literal

from redlock import _native

__all__ = ["Histogram", "Metric", "Point", "Stats", "count_by_name", "stats"]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations, counted by their size."""

    count: int
    """How many observations there were."""

    sum: float
    """Their sum."""

    buckets: tuple[tuple[float, int], ...]
    """The upper end of each bucket, and how many observations were at most that. The last end is infinite."""


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric, with its labels."""

    labels: dict[str, str]
    """What tells this value from the others of the metric."""

    value: float | Histogram
    """The number of a counter or a gauge, or a histogram."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    >>> import redlock
    >>> redlock.stats()["redlock_lost_total"].kind
    'counter'
    """

    name: str
    """The name, with the unit at its end: the same in every language and in every exporter."""

    kind: Literal["counter", "gauge", "histogram"]
    """`counter`: a number that only grows while the process lives. `gauge`: a number that goes up and down.
    `histogram`: counts of observations by size."""

    about: str
    """What it measures, in one sentence."""

    points: tuple[Point, ...]
    """The values, each with other labels. A histogram without an observation has none."""


class Stats(dict[str, Metric]):
    """All metrics of this process at one moment, by name."""

    _text: str

    def to_openmetrics(self) -> str:
        """Return them in the text format of OpenMetrics 1.0, which Prometheus and most agents scrape.

        A web server sends it as `application/openmetrics-text; version=1.0.0; charset=utf-8`. Histograms have the
        series `<name>_bucket` with the label `le`, `<name>_sum` and `<name>_count`.

        >>> import redlock
        >>> "# TYPE redlock_held gauge" in redlock.stats().to_openmetrics()
        True
        """
        return self._text


def stats() -> Stats:
    """Return all metrics of this process by name: what happened since its start, and what is there now.

    Sends nothing, takes some microseconds, and may be called at any time. A forked child begins with zeros.
    `redlock.otel` exports the same metrics.

    >>> import redlock
    >>> with redlock.Redlock("memory://stats").lock("job"):
    ...     redlock.stats()["redlock_held"].points[0].value >= 1
    True
    """
    metrics, text = _native.stats()
    snapshot = Stats()
    for name, kind, about, points in metrics:
        snapshot[name] = Metric(name, kind, about, tuple(Point(labels, _value(value)) for labels, value in points))
    snapshot._text = text  # noqa: SLF001 - it is made here
    return snapshot


def _value(value: float | tuple[int, float, tuple[tuple[float, int], ...]]) -> float | Histogram:
    return Histogram(*value) if isinstance(value, tuple) else value


def count_by_name(most: int) -> None:
    """Have acquisitions, holds, losses and margins counted by the lock's name from now on.

    The first `most` names are counted each under a label `name`, and all others together. 0 counts all names together,
    which is the default. A name for each user or order would make as many series as there are users or orders, so this
    is for programs with few names. Locks that are held already, and calls that wait, are counted as they began. A
    forked child goes on with it.

    Raises `LockInvalidArgument` for a wrong number.

    >>> import redlock
    >>> redlock.count_by_name(20)
    >>> redlock.count_by_name(0)
    """
    _native.count_by_name(most)
