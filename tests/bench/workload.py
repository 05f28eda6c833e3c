"""The workloads of the benchmark: how each is measured, and which columns it has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench import keeping, pairs, passing
from bench.figures import percentile
from bench.process import Json
from bench.session import Session

Value = Callable[[Json], float | None]

median = partial(percentile, percent=50)


@dataclass(frozen=True)
class Column:
    """A figure of each turn, and of all turns of a subject together."""

    title: str
    of: Value
    form: str = "{:,.1f}"
    over: Callable[[Sequence[float]], float] = median
    """Computes the figure from the turns."""
    by: str | None = None
    """The subject whose figure of the same round divides each figure."""
    source: str = ""
    """The suffix of the workload's name under which other turns of it are kept."""
    judged: bool = True
    """Whether a peer that is better here is listed."""
    more_is_better: bool = False


@dataclass(frozen=True)
class Workload:
    """A question."""

    name: str
    title: str
    text: str
    """The action; fields of `Form` in braces."""
    measure: Callable[[Session, str], None]
    columns: Sequence[Column]
    apart: bool = False
    """Whether clients and servers have cores of their own; otherwise the scheduler places them."""
    long_only: bool = False
    """Whether only the long form has it, once."""


def per(field: str, by: str = "count", scale: float = 1) -> Value:
    """One field divided by another."""
    return lambda turn: turn[field] / turn[by] / scale if turn[by] else None


def _rate(field: str, scale: float = 1) -> Value:
    """A field for each lock and second."""
    return lambda turn: turn[field] * scale / turn["locks"] / (turn["wall_ns"] / 1e9)


CPU = Column("CPU µs, client", per("cpu_ns", scale=1e3))
WALL = Column("µs", per("wall_ns", scale=1e3))
P99 = Column("p99 µs", lambda turn: turn["p99_ns"] / 1e3, "{:,.0f}", judged=False)

_ALONE = [
    Column("times a bare socket", per("wall_ns"), "{:,.2f}", by="bare", judged=False),
    WALL,
    P99,
    CPU,
    Column("CPU µs, servers", per("server_cpu_us")),
    Column("requests", per("requests")),
    Column("commands", per("commands"), judged=False),
]

_MANY = [
    Column("pairs per s", per("count", "wall_ns", 1e-9), "{:,.0f}", more_is_better=True),
    Column(
        "pairs per CPU s",
        lambda turn: turn["count"] / (turn["cpu_ns"] + 1e3 * turn["server_cpu_us"]) * 1e9,
        "{:,.0f}",
        more_is_better=True,
    ),
    Column("p99 µs", lambda turn: turn["p99_ns"] / 1e3, "{:,.0f}"),
    CPU,
    Column("CPU µs, server", per("server_cpu_us")),
    Column("requests", per("requests"), "{:,.2f}", judged=False),
]

_HAND_OVER = [
    Column("median ms", lambda turn: turn["took_ns"] / 1e6, "{:,.2f}"),
    Column("p90 ms", lambda turn: turn["took_ns"] / 1e6, "{:,.2f}", partial(percentile, percent=90), judged=False),
    Column("most ms", lambda turn: turn["took_ns"] / 1e6, "{:,.2f}", max, judged=False),
]

_CONTENTION = [
    Column("ms between holds", per("free_ns", scale=1e6), "{:,.2f}"),
    Column("acquisitions per s", per("count", "wall_ns", 1e-9), "{:,.0f}", more_is_better=True, judged=False),
    Column("p50 wait ms", lambda turn: turn["p50_ns"] / 1e6, judged=False),
    Column("p99 wait ms", lambda turn: turn["p99_ns"] / 1e6),
    Column("busiest : least busy", lambda turn: turn["most"] / turn["least"] if turn["least"] else math.inf),
    Column("requests", per("requests")),
    Column("commands", per("commands"), judged=False),
    Column("CPU µs, clients", per("cpu_ns", scale=1e3), "{:,.0f}"),
    Column("CPU µs, server", per("server_cpu_us"), "{:,.0f}"),
]

_CONTENDING = (
    "processes acquire one name, hold it for 1 ms, release it and want it again at once, for {seconds} s. The time "
    "from one hold to the next is what is left of the run without the holds, for each acquisition. CPU of clients is "
    "that of all processes."
)

WORKLOADS = [
    Workload(
        "one",
        "One lock without contention, one node",
        "One task acquires and releases a name, again and again. Requests are what arrives at a server in one piece; "
        "commands are what it runs for them, those inside scripts included.",
        pairs.one,
        _ALONE,
        apart=True,
    ),
    Workload("five", "Five nodes", "The same on five independent nodes.", pairs.five, _ALONE, apart=True),
    Workload(
        "one-free",
        "One node, placed by the scheduler",
        "One task acquires and releases a name on one node. The scheduler may put a client on the core of its server, "
        "or move one of them in the middle of a round.",
        pairs.one,
        _ALONE,
    ),
    Workload(
        "five-free",
        "Five nodes, placed by the scheduler",
        "The same on five independent nodes.",
        pairs.five,
        _ALONE,
    ),
    Workload(
        "frozen",
        "Five nodes, one of which hangs",
        "One of the five is stopped (SIGSTOP) while everybody is connected to it: it takes connections and answers "
        "nothing. The bare socket uses the other four, always. The first acquire and release after that is told apart. "
        "In each round everybody has a turn with all nodes well, and right after it one with the frozen node.",
        pairs.frozen,
        [
            Column("µs", per("wall_ns", scale=1e3), "{:,.0f}"),
            Column("µs, all well", per("wall_ns", scale=1e3), "{:,.0f}", source="-well", judged=False),
            Column("first, ms", lambda turn: turn["wall_ns"] / 1e6, source="-first"),
            P99,
            Column("p99 µs, all well", P99.of, P99.form, source="-well", judged=False),
            Column("most ms", lambda turn: turn["most_ns"] / 1e6, over=max, judged=False),
            CPU,
            Column("CPU µs, living servers", per("server_cpu_us")),
            Column("requests", per("requests")),
        ],
        apart=True,
    ),
    Workload(
        "tasks",
        "64 tasks, each with a lock of its own",
        "64 tasks of one process (32 threads where Python blocks, 64 where Rust does) acquire and release a name of "
        "their own each, on one node; the bare socket sends the commands of all at once.",
        pairs.tasks,
        _MANY,
    ),
    Workload(
        "one-valkey",
        "One lock without contention, one node of Valkey",
        "The same on Valkey. Since 9.0, a command of it releases a lock, where Redis 7.0 runs a script.",
        pairs.one_other,
        _ALONE,
        apart=True,
        long_only=True,
    ),
    Workload(
        "tasks-valkey",
        "64 tasks on one node of Valkey",
        "The same on Valkey.",
        pairs.tasks_other,
        _MANY,
        long_only=True,
    ),
    Workload(
        "handover",
        "Hand-over from one process to another",
        "One process holds the lock, another waits for it and has done so for 20 to 120 ms. Measured from the "
        "holder's call of release to the moment at which the other has the lock.",
        passing.hand_over,
        _HAND_OVER,
    ),
    Workload(
        "handover5",
        "Hand-over on five nodes",
        "As above, over five independent nodes.",
        passing.hand_over_five,
        _HAND_OVER,
    ),
    Workload(
        "contention8",
        "8 processes that want one lock",
        f"8 {_CONTENDING.format(seconds='{contention_s:g}')}",
        passing.contention8,
        _CONTENTION,
    ),
    Workload(
        "contention64",
        "64 processes that want one lock",
        f"64 {_CONTENDING.format(seconds=f'{passing.CROWD_S:g}')}",
        passing.contention64,
        _CONTENTION,
        long_only=True,
    ),
    Workload(
        "holding",
        "Many locks that are held and renewed",
        "One process holds {locks:,} locks with a ttl of {hold_ttl_ms:,} ms, each renewed in the background; watched "
        "for as long. Only libraries that renew a lock by themselves take part. Kept are the locks whose keys are "
        "still there then.",
        keeping.holding,
        [
            Column("CPU µs per lock and s, client", _rate("cpu_ns", 1e-3)),
            Column("CPU µs per lock and s, server", _rate("server_cpu_us")),
            Column("commands per lock and s", _rate("commands"), "{:,.2f}", judged=False),
            Column("requests per lock and s", _rate("requests"), "{:,.2f}", judged=False),
            Column("KiB per lock", per("grown", "locks", 1024), "{:,.2f}"),
            Column("kept", lambda turn: turn["kept"], "{:,.0f}", judged=False),
            Column("of", lambda turn: turn["locks"], "{:,.0f}", judged=False),
        ],
    ),
    Workload(
        "waiting",
        "Many waiters, and nothing happens",
        "{waiters:,} waiters in one process (tasks, or threads where calls block) want one lock that another process "
        "holds; watched for {window_s:g} s.",
        keeping.waiting,
        [
            Column("% of a core, client", per("cpu_ns", "wall_ns", 0.01), "{:,.2f}"),
            Column("% of a core, server", per("server_cpu_us", "wall_ns", 0.00001), "{:,.2f}"),
            Column("requests per s", per("requests", "wall_ns", 1e-9)),
            Column("KiB per waiter", per("grown", "waiters", 1024)),
        ],
    ),
]
"""In the order of the page."""


def chosen(only: Sequence[str], form: str, run: int) -> list[Workload]:
    """The workloads of this run of the form, or those in `only` among them."""
    of_run = [workload for workload in WORKLOADS if not workload.long_only or (form == "long" and run == 0)]
    return [workload for workload in of_run if workload.name in only] or of_run
