"""The workloads of the benchmark: how each is measured, and which columns it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from bench import counting, keeping, life, pairs, passing, scripts, sharing
from bench.figures import percentile, unevenness
from bench.process import Json
from bench.session import Session

Value = Callable[[Json], float | None]

Measure = Callable[[Session, str], None]

median = partial(percentile, percent=50)


@dataclass(frozen=True)
class Column:
    """A figure of each turn, and of all turns of a subject together."""

    title: str
    of: Value
    form: str = "{:,.1f}"
    over: Callable[[Sequence[float]], float] = median
    """Computes the figure from the turns."""
    worst: bool = False
    """Whether the most of all runs counts, and not the median of the runs."""
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
    measure: Measure
    columns: Sequence[Column]
    """The columns; the first one is drawn, if `pictured` names no others."""
    drawn: bool = True
    pictured: Sequence[str] = ()
    limits: Sequence[str] = ("bare",)
    """The subjects whose figures are lines in the picture."""
    long_only: bool = False
    """Whether only the long form has it, once."""
    family: str = ""
    """What `--only` calls it together with others."""
    one_language: bool = False
    """Whether figures of different languages are not comparable."""
    cores: str = "free"
    """Where clients and servers run: `free` or `apart`, as in `session.CORES`. Of one task at a time, the scheduler
    decides more than any library does: on one core with its server, a socket is two or three times as fast."""

    @property
    def shown(self) -> Sequence[Column]:
        """The columns that are drawn."""
        return [column for column in self.columns if column.title in self.pictured] or self.columns[:1]

    @property
    def turns(self) -> set[str]:
        """The names under which its turns are kept."""
        return {self.name} | {self.name + column.source for column in self.columns}


def per(field: str, by: str = "count", scale: float = 1) -> Value:
    """One field divided by another."""

    def value(turn: Json) -> float | None:
        return turn[field] / turn[by] / scale if turn[by] and turn[field] is not None else None

    return value


def _in_kernel(turn: Json) -> float | None:
    # Older numbers lack it, and times in hundredths of a second may be zero.
    spent_s = turn.get("user_s", 0) + turn.get("kernel_s", 0)
    return 100 * float(turn["kernel_s"]) / float(spent_s) if spent_s else None


CPU = (
    Column("CPU µs, client", per("cpu_ns", scale=1e3)),
    Column("of it kernel, %", _in_kernel, "{:,.0f}", fmean, judged=False),
)

SERVERS = (
    Column("CPU µs, servers", per("server_cpu_us")),
    Column("requests", per("requests"), "{:,.1f}"),
    Column("commands", per("commands"), "{:,.1f}", judged=False),
)


def _pairs(first: Sequence[Column]) -> list[Column]:
    return [
        *first,
        *CPU,
        *SERVERS,
        Column("µs per script", lambda turn: turn["script_us"], judged=False),
    ]


RATIO = Column("times a bare socket", per("wall_ns"), "{:,.2f}", by="bare", judged=False)
WALL = Column("µs", per("wall_ns", scale=1e3))
P99 = Column("p99 µs", lambda turn: turn["p99_ns"] / 1e3, "{:,.0f}", judged=False)

TOGETHER = "the limit sends the commands of all at once"
EXPLAINED = (
    "Requests are what arrives at a server in one piece; commands are what it runs for them, those inside scripts "
    "included. Of the client's processor time, the kernel's share is that of all rounds together."
)


def _between_ms(turn: Json) -> float | None:
    return max(turn["wall_ns"] - turn["held_ns"], 0) / turn["count"] / 1e6 if turn["count"] else None


def _contention(measure: Measure, processes: int, seconds: str, *, long_only: bool = False) -> Workload:
    return Workload(
        f"contention{processes}",
        f"{processes} processes that want one lock",
        f"{processes} processes acquire one name, hold it for 1 ms, release it and want it again at once, for "
        f"{seconds} s. Drawn is the time from one hold to the next: what is left of the run without the holds, "
        "for each acquisition. CPU of clients is that of all processes.",
        measure,
        [
            Column("ms between holds", _between_ms, "{:,.2f}"),
            Column("acquisitions per s", per("count", "wall_ns", 1e-9), "{:,.0f}", more_is_better=True, judged=False),
            Column("p50 wait ms", lambda turn: turn["p50_ns"] / 1e6, judged=False),
            Column("p99 wait ms", lambda turn: turn["p99_ns"] / 1e6),
            Column("busiest : least busy", lambda turn: unevenness(turn["most"], turn["least"])),
            Column("requests", per("requests")),
            Column("commands", per("commands"), judged=False),
            Column("CPU µs, clients", per("cpu_ns", scale=1e3), "{:,.0f}"),
            Column("CPU µs, server", per("server_cpu_us"), "{:,.0f}"),
        ],
        limits=(),
        pictured=("ms between holds", "busiest : least busy"),
        long_only=long_only,
    )


def _share(field: str, scale: float) -> Value:
    def value(turn: Json) -> float | None:
        return 100 * scale * float(turn[field]) / float(turn["wall_ns"])

    return value


def _rate(field: str, by: str, scale: float = 1) -> Value:
    def value(turn: Json) -> float | None:
        return float(turn[field]) * scale / float(turn[by]) / (float(turn["wall_ns"]) / 1e9)

    return value


SEMAPHORE = "semaphore"
"""The family of its workloads."""

READERS = "readers"
"""The family of those of a lock that readers share."""


def _idle(turn: Json) -> float:
    return 100 - 100 * float(turn["busy_ns"]) / float(turn.get("permits", 1) * turn["wall_ns"])


def _waits(role: str, field: str) -> list[Column]:
    def ms(which: str) -> Value:
        return lambda turn: turn[f"{field}_{which}_ns"] / 1e6

    return [
        Column(f"p50 wait ms, {role}", ms("p50"), "{:,.0f}", judged=False),
        Column(f"p99 wait ms, {role}", ms("p99"), "{:,.0f}"),
        Column(f"most wait ms, {role}", ms("most"), "{:,.0f}", max, judged=False),
    ]


def _of_mutex(column: Column) -> Column:
    return replace(column, title=f"{column.title}, mutex", source="-mutex", judged=False)


def _sharing(name: str, title: str, text: str, measure: Measure, *, long_only: bool = False) -> Workload:
    return Workload(
        f"{SEMAPHORE}-{name}",
        title,
        text,
        measure,
        [
            Column("commands", per("commands")),
            Column("requests", per("requests")),
            Column("p50 wait ms", lambda turn: turn["p50_ns"] / 1e6, "{:,.0f}", judged=False),
            Column("p99 wait ms", lambda turn: turn["p99_ns"] / 1e6, "{:,.0f}"),
            Column("slots idle, %", _idle),
            Column("most holders", lambda turn: turn["holders"], "{:,.0f}", max, judged=False),
            Column("acquisitions per s", per("count", "wall_ns", 1e-9), more_is_better=True, judged=False),
            Column("busiest : least busy", lambda turn: unevenness(turn["most"], turn["least"])),
            Column("CPU µs, clients", per("cpu_ns", scale=1e3), "{:,.0f}"),
            Column("CPU µs, servers", per("server_cpu_us"), "{:,.0f}"),
        ],
        limits=(),
        long_only=long_only,
        family=SEMAPHORE,
        pictured=("acquisitions per s", "p99 wait ms"),
    )


_HAND_OVER = [
    Column("median ms", lambda turn: turn["took_ns"] / 1e6, "{:,.2f}"),
    Column("p90 ms", lambda turn: turn["took_ns"] / 1e6, "{:,.2f}", partial(percentile, percent=90), judged=False),
    Column("most ms", lambda turn: turn["took_ns"] / 1e6, "{:,.2f}", max, judged=False),
]

_HOLDING = [
    Column("CPU µs per lock and s, client", _rate("cpu_ns", "locks", 1e-3)),
    Column("CPU µs per lock and s, server", _rate("server_cpu_us", "locks")),
    Column("commands per lock and s", _rate("commands", "locks"), "{:,.2f}", judged=False),
    Column("requests per lock and s", _rate("requests", "locks"), "{:,.2f}", judged=False),
    Column("KiB per lock", per("grown", "locks", 1024), "{:,.2f}"),
    Column("kept", lambda turn: turn["kept"], "{:,.0f}", judged=False),
    Column("of", lambda turn: turn["locks"], "{:,.0f}", judged=False),
]


def _alone(name: str, title: str, text: str, measure: Measure, *, free: bool = False) -> Workload:
    """One task at a time, placed by the scheduler if `free`."""
    return Workload(
        name,
        title,
        text,
        measure,
        _pairs([RATIO, WALL, P99]),
        drawn=not free,
        limits=("bare", "bare-scripts"),
        cores="free" if free else "apart",
    )


WORKLOADS = [
    _alone(
        "one",
        "One lock without contention, one node",
        f"One task acquires and releases a name, again and again. {EXPLAINED}",
        pairs.one,
    ),
    _alone(
        "unix",
        "The same over a unix socket",
        "As above; the network is not TCP.",
        pairs.unix,
    ),
    _alone(
        "five",
        "Five nodes",
        "One task acquires and releases a name on five independent nodes.",
        pairs.five,
    ),
    _alone(
        "one-free",
        "One node, placed by the scheduler",
        "One task acquires and releases a name on one node. The scheduler may put a client on the core of its server, "
        "or move one of them in the middle of a round.",
        pairs.one,
        free=True,
    ),
    _alone(
        "five-free",
        "Five nodes, placed by the scheduler",
        "The same on five independent nodes.",
        pairs.five,
        free=True,
    ),
    Workload(
        "cluster",
        "A cluster beside one node",
        "One task acquires and releases a name on one node, and right after it on a Redis Cluster with three shards, "
        "which is one node too: the shard that has the slot of the name answers. All servers share a core.",
        pairs.cluster,
        [
            WALL,
            Column(f"{WALL.title}, one node", WALL.of, source="-plain", judged=False),
            P99,
            CPU[0],
            Column(f"{CPU[0].title}, one node", CPU[0].of, source="-plain", judged=False),
            Column("requests", per("requests")),
            Column("requests, one node", per("requests"), source="-plain", judged=False),
        ],
        limits=(),
        cores="apart",
    ),
    Workload(
        "frozen",
        "Five nodes, one of which hangs",
        "One of the five is stopped (SIGSTOP) while everybody is connected to it: it takes connections and answers "
        "nothing. The limit uses the other four, always. The first acquire and release after that is told apart. "
        "In each round everybody has a turn with all nodes well, and right after it one with the frozen node.",
        pairs.frozen,
        [
            Column("µs", per("wall_ns", scale=1e3), "{:,.0f}"),
            Column("µs, all well", per("wall_ns", scale=1e3), "{:,.0f}", source="-well", judged=False),
            Column("first, ms", lambda turn: turn["wall_ns"] / 1e6, source="-first"),
            P99,
            Column("p99 µs, all well", P99.of, P99.form, source="-well", judged=False),
            Column("most ms", lambda turn: turn["most_ns"] / 1e6, over=max, judged=False),
            Column("CPU µs, client", per("cpu_ns", scale=1e3)),
            Column("CPU µs, living servers", per("server_cpu_us")),
            Column("requests", per("requests")),
        ],
        limits=("bare", "bare-scripts"),
        pictured=("µs", "most ms"),
        cores="apart",
    ),
    Workload(
        "tasks",
        "64 tasks, each with a lock of its own",
        "64 tasks of one process (32 threads where Python blocks, 64 where Rust or Java does) acquire and release a "
        f"name of their own each, on one node; {TOGETHER}.",
        pairs.tasks,
        [
            Column("pairs per s", per("count", "wall_ns", 1e-9), "{:,.0f}", more_is_better=True),
            Column(
                "pairs per CPU s",
                lambda turn: turn["count"] / (turn["cpu_ns"] + 1e3 * turn["server_cpu_us"]) * 1e9,
                "{:,.0f}",
                more_is_better=True,
            ),
            Column("p99 µs", lambda turn: turn["p99_ns"] / 1e3, "{:,.0f}"),
            *CPU,
            Column("CPU µs, server", per("server_cpu_us")),
            Column("requests", per("requests"), "{:,.2f}", judged=False),
        ],
    ),
    Workload(
        "script",
        "Server time of an acquire",
        f"{scripts.AT_ONCE} acquires of free locks are sent at once, by each of three scripts in turn: ours, one that "
        "gives a fence too and is plainly written (`src/fenced.lua`), and SET NX PX alone. Every name was acquired "
        "and released before, and the proposed fences are accepted as they are. The time is that of one script, as "
        "the server counts it (`cmdstat_evalsha`).",
        scripts.script,
        [
            Column("times the plain one", per("ours_us", "fenced_us"), "{:,.2f}", judged=False),
            Column("µs", lambda turn: turn["ours_us"], judged=False),
            Column("µs, the plain one", lambda turn: turn["fenced_us"], judged=False),
            Column("µs, SET NX PX", lambda turn: turn["set_us"], judged=False),
        ],
        drawn=False,
        limits=(),
    ),
    Workload(
        "handover",
        "Hand-over from one process to another",
        "One process holds the lock, another waits for it and has done so for 20 to 120 ms. Measured from the "
        "holder's call of release to the moment at which the other has the lock.",
        passing.hand_over,
        _HAND_OVER,
        limits=(),
    ),
    Workload(
        "handover5",
        "Hand-over on five nodes",
        "As above, over five independent nodes.",
        passing.hand_over_five,
        _HAND_OVER,
        limits=(),
    ),
    _contention(passing.contention8, 8, "{contention_s:g}"),
    _contention(passing.contention64, 64, f"{passing.CROWD_S:g}", long_only=True),
    _sharing(
        "one",
        f"A semaphore: {sharing.FEW.waiters} waiters share {sharing.FEW.permits} slots",
        f"{sharing.FEW.processes} processes have {sharing.FEW.tasks} tasks each (threads where calls block). Each task "
        f"acquires a slot of one semaphore, holds it for {sharing.FEW.hold_ms} ms, releases it and wants one again at "
        "once, for {sharing_s:g} s. Drawn are the commands that the server executed for each acquisition, those inside "
        f"scripts included. Without lost time there would be {sharing.FEW.rate:,.0f} acquisitions per s, and in a fair "
        f"queue every wait would be {sharing.FEW.wait_ms:,.0f} ms. A slot is idle while no task holds it. The most "
        f"holders are those at one instant: with more than {sharing.FEW.permits}, the semaphore has failed. CPU of "
        "clients is that of all processes.",
        sharing.one,
    ),
    _sharing(
        "five",
        "A semaphore on five nodes",
        "As above, over five independent nodes. Commands are those of all five.",
        sharing.five,
    ),
    _sharing(
        "crowd",
        f"A semaphore: {sharing.MANY.waiters:,} waiters share {sharing.MANY.permits} slots, and renew them",
        f"{sharing.MANY.processes} processes have {sharing.MANY.tasks} tasks each, as above, on one node for "
        f"{sharing.CROWD_S:g} s. Each hold lasts for {sharing.MANY.hold_ms:,} ms, which is the ttl, so that it has to "
        "be renewed. The commands for this are counted too. Without lost time there would be "
        f"{sharing.MANY.rate:,.0f} acquisitions per s, and in a fair queue all would have had a slot after "
        f"{sharing.MANY.turn_s:,.1f} s. Tasks that wait at the end are waited for.",
        sharing.crowd,
        long_only=True,
    ),
    Workload(
        f"{READERS}-writers",
        f"Readers and writers: {sharing.READERSHIP.processes * sharing.READERSHIP.tasks} tasks that want one lock",
        f"{sharing.READERSHIP.processes} processes have {sharing.READERSHIP.tasks} tasks each (threads where calls "
        f"block): {sharing.READERSHIP.readers} readers and {sharing.READERSHIP.writers} writer. Readers may hold the "
        f"lock together, and a writer holds it alone. Each task acquires it, holds it for {sharing.READERSHIP.hold_ms} "
        "ms, releases it and wants it again at once, for {sharing_s:g} s, on one node. Drawn are the commands that the "
        "server executed for each acquisition, those inside scripts included. If all readers and one writer took turns "
        f"and no time was lost, there would be {sharing.READERSHIP.reads:,.0f} reads and "
        f"{sharing.READERSHIP.writes:,.0f} writes per s. A library that lets one side wait has more of the other. "
        "Tasks that wait at the end are waited for, and their waits count. The lock is idle while no task holds it. A "
        "write is not alone if its hold overlaps another hold: with one such write in any run, the lock has failed. "
        "CPU of clients is that of all processes.",
        sharing.readers,
        [
            Column("commands", per("commands")),
            Column("requests", per("requests")),
            Column("reads per s", per("reads", "wall_ns", 1e-9), "{:,.0f}", more_is_better=True),
            Column("writes per s", per("writes", "wall_ns", 1e-9), more_is_better=True),
            *_waits("writers", "writes"),
            *_waits("readers", "reads"),
            Column("idle, %", _idle),
            Column("writes not alone", lambda turn: turn["intruded"], "{:,.0f}", sum, worst=True, judged=False),
            Column("CPU µs, clients", per("cpu_ns", scale=1e3), "{:,.0f}"),
            Column("CPU µs, server", per("server_cpu_us"), "{:,.0f}"),
        ],
        limits=(),
        family=READERS,
        pictured=("reads per s", "writes per s", "p99 wait ms, writers"),
    ),
    Workload(
        f"{READERS}-alone",
        "A single reader, beside the mutex",
        "One task acquires and releases a name as the mutex, and right after it the same name as a reader. Nobody else "
        "wants it, on one node.",
        pairs.reader,
        [shown for column in (WALL, P99, CPU[0], *SERVERS) for shown in (column, _of_mutex(column))],
        limits=(),
        family=READERS,
        cores="apart",
    ),
    Workload(
        "holding",
        "Many locks that are held and renewed",
        "One process holds {locks:,} locks with a ttl of {hold_ttl_ms:,} ms, each renewed in the background; watched "
        "for as long. Only libraries that renew a lock by themselves take part. Kept are the locks whose keys are "
        "still there then.",
        keeping.holding,
        _HOLDING,
        limits=(),
    ),
    Workload(
        "holding10000",
        f"{keeping.MORE:,} locks that are held and renewed",
        f"As above, with {keeping.MORE:,} locks and a ttl of {keeping.MORE_TTL_MS:,} ms.",
        keeping.holding_more,
        _HOLDING,
        limits=(),
        long_only=True,
    ),
    Workload(
        "waiting",
        "Many waiters, and nothing happens",
        "{waiters:,} waiters in one process (tasks, or threads where calls block) want one lock that another process "
        "holds; watched for {window_s:g} s.",
        keeping.waiting,
        [
            Column("% of a core, client", _share("cpu_ns", 1), "{:,.2f}"),
            Column("% of a core, server", _share("server_cpu_us", 1e3), "{:,.2f}"),
            Column("requests per s", per("requests", "wall_ns", 1e-9), "{:,.1f}"),
            Column("KiB per waiter", per("grown", "waiters", 1024), "{:,.1f}"),
        ],
        limits=(),
    ),
    Workload(
        "cold",
        "Cold start",
        "A new process that loads its library, connects, and acquires its first lock: from the start of the process "
        "to the lock. What the language needs before it runs the first line is part of it.",
        life.cold,
        [
            Column("ms", lambda turn: turn["wall_ns"] / 1e6),
            Column("start of the language", lambda turn: turn["started_ns"] / 1e6, judged=False),
            Column("import", lambda turn: turn["import_ns"] / 1e6),
            Column("first acquire", lambda turn: turn["acquire_ns"] / 1e6),
            Column("CPU ms", lambda turn: turn["cpu_ns"] / 1e6),
        ],
    ),
    Workload(
        "growth",
        "Memory after very many acquisitions",
        f"One process acquires and releases {life.ACQUISITIONS:,} times, by as many tasks as above, each with a lock "
        f"of its own; a peer that is too slow for that, as often as it can in about {life.PEER_S:g} s. Memory is what "
        "is resident; the growth is from the middle to the end.",
        life.growth,
        [
            Column("MiB at the end", lambda turn: turn["memory"][-1] / 2**20),
            Column("MiB at the start", lambda turn: turn["memory"][0] / 2**20, judged=False),
            Column(
                "KiB growth",
                lambda turn: (turn["memory"][-1] - turn["memory"][len(turn["memory"]) // 2]) / 2**10,
                judged=False,
            ),
            Column("acquisitions", lambda turn: turn["count"], "{:,.0f}", judged=False),
        ],
        limits=(),
        long_only=True,
    ),
    Workload(
        "calls",
        "System calls of one acquire and release",
        "Counted on one node by strace, or else by perf, over all threads of the client: what 200 pairs more cost.",
        counting.system_calls,
        [Column("system calls", lambda turn: turn["calls"])],
    ),
    Workload(
        "allocations",
        "Allocations of one acquire and release",
        "Compare within a language only. Rust: calls of the allocator and the bytes asked for. Python: the most bytes "
        "of Python objects at one time within a pair (tracemalloc). Node: bytes on V8's heap. Go: "
        "objects on its heap and their bytes. Java: the bytes that threads asked its heap for.",
        counting.allocations,
        [
            Column("bytes", lambda turn: turn["bytes"], "{:,.0f}"),
            Column("allocations", lambda turn: turn["allocations"]),
        ],
        one_language=True,
        drawn=False,
        limits=(),
    ),
]
"""In the order of the page."""


def chosen(only: Sequence[str], form: str, run: int) -> list[Workload]:
    """The workloads in `only`; if there are none, all of this run of the form. Of a family, those of this run."""
    everything = form == "long" and run == 0
    of_form = [workload for workload in WORKLOADS if everything or not workload.long_only]
    named = [
        workload for workload in WORKLOADS if workload.name in only or (workload in of_form and workload.family in only)
    ]
    return named or of_form
