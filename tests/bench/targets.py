"""What this library means to reach, and whether it did."""

from __future__ import annotations

from dataclasses import dataclass

from results import Results
from workload import WORKLOADS, Column, Workload

FACES = ("rust-async", "rust-blocking", "python-sync", "python-asyncio", "node")


@dataclass(frozen=True)
class Figure:
    """One column of one workload, for one subject."""

    workload: str
    column: str
    subject: str

    @property
    def place(self) -> tuple[Workload, Column]:
        """Where the tables have it."""
        workload = next(workload for workload in WORKLOADS if workload.name == self.workload)
        return workload, next(column for column in workload.columns if column.title == self.column)


@dataclass(frozen=True)
class Target:
    """A bound for a figure of ours, or for its ratio to another figure."""

    ours: Figure
    bound: float
    by: Figure | None = None
    least: bool = False
    """Whether more is better."""
    form: str | None = None
    """The form of the benchmark in which it can be measured; any if there is none."""
    why: str = ""
    """Where the time goes, by profile, and what it would take; said where the target is missed."""

    def value(self, results: Results) -> float | None:
        """The figure of a run, if it was measured."""
        if self.form not in {None, results.data["form"]["name"]}:
            return None
        by = (*self.by.place, self.by.subject) if self.by else None
        return results.compared(*self.ours.place, self.ours.subject, by)

    def reached(self, value: float) -> bool:
        """Whether that is good enough."""
        return value >= self.bound if self.least else value <= self.bound


def _beside(workload: str, column: str, ours: str, other: str, bound: float, why: str = "") -> Target:
    return Target(Figure(workload, column, ours), bound, Figure(workload, column, other), why=why)


def _throughput(ours: str, other: str, bound: float, why: str = "") -> Target:
    by = Figure("tasks", "pairs per s", other)
    return Target(Figure("tasks", "pairs per s", ours), bound, by, least=True, why=why)


def _frozen(face: str) -> list[Target]:
    return [
        Target(Figure("frozen", "µs", face), 1.05, Figure("five", "µs", face)),
        Target(Figure("frozen", "p99 µs", face), 1.5, Figure("five", "p99 µs", face)),
        Target(Figure("frozen", "most ms", face), 250),
    ]


def _contended(face: str) -> list[Target]:
    return [
        Target(Figure("contention8", "requests", face), 5),
        Target(Figure("contention8", "busiest : least busy", face), 1.5),
    ]


TARGETS = [
    _beside("one", "µs", "rust-async", "rslock", 1.0),
    _beside("one", "µs", "rust-blocking", "bare", 1.25),
    _beside("one", "µs", "python-sync", "redis-py", 0.6),
    _beside("one", "µs", "python-asyncio", "redis-py-asyncio", 0.9),
    _beside("one", "µs", "node", "node-redlock", 1.0),
    _beside("five", "µs", "rust-async", "rslock", 0.75),
    _beside("five", "µs", "rust-async", "bare", 1.25),
    _beside("five", "µs", "python-sync", "pottery", 0.2),
    _beside("five", "µs", "node", "node-redlock", 0.8),
    _throughput("rust-async", "rslock", 1),
    _throughput("python-sync", "redis-py", 3),
    _throughput("python-asyncio", "redis-py-asyncio", 6),
    _throughput("node", "node-redlock", 1.5),
    *(target for face in FACES for target in _frozen(face)),
    *(_beside("handover", "median ms", face, "redis-semaphore", 0.2) for face in FACES),
    *(Target(Figure("handover5", "median ms", f), 3, Figure("handover", "median ms", f)) for f in FACES),
    *(target for face in FACES for target in _contended(face)),
    *(Target(Figure("contention64", "requests", face), 24) for face in FACES),
    # 10,000 locks with a ttl of 10 s, and a tenth of a core.
    *(Target(Figure("holding", "CPU µs per lock and s, client", face), 10, form="long") for face in FACES),
    *(Target(Figure("holding", "KiB per lock", face), 2, form="long") for face in FACES),
    *(Target(Figure("waiting", "% of a core, client", face), 0.1) for face in FACES),
]
"""In the order of the page."""
