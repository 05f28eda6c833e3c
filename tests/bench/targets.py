"""The targets of this library, and whether it reaches them."""

from __future__ import annotations

from dataclasses import dataclass

from bench.results import Results
from bench.workload import WORKLOADS, Column, Workload

FASTEST = {
    "rust-async": "rslock",
    "rust-blocking": "rslock",
    "python-sync": "redis-py",
    "python-asyncio": "redis-py-asyncio",
    "node": "node-redlock",
}
"""Our faces, and the fastest peer in the same language where many clients compete for one lock."""

FACES = tuple(FASTEST)


@dataclass(frozen=True)
class Figure:
    """One column of one workload, for one subject."""

    workload: str
    column: str
    subject: str

    @property
    def place(self) -> tuple[Workload, Column]:
        """Its place in the tables."""
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
    why: str = ""
    """Where the time goes, and what the target would take; shown if it is missed. It names columns, not figures."""

    def value(self, results: Results) -> float | None:
        """The figure of a run, if it was measured."""
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
        Target(Figure("frozen", "µs", face), 1.05, Figure("frozen", "µs, all well", face), why=FROZEN),
        Target(Figure("frozen", "p99 µs", face), 1.5, Figure("frozen", "p99 µs, all well", face), why=FROZEN),
        Target(Figure("frozen", "most ms", face), 250),
    ]


def _contended(face: str, fastest: str) -> list[Target]:
    ours, theirs = (Figure("contention8", "acquisitions per s", who) for who in (face, fastest))
    return [
        Target(ours, 1 / 1.2, theirs, least=True, why=FAIR),
        Target(Figure("contention8", "requests", face), 5),
        Target(Figure("contention8", "busiest : least busy", face), 1.5),
    ]


RUST = """\
**Rust.** rslock sends SET NX PX and one short script; we send two scripts, which count a fence and those who wait. \
Counted by callgrind, a pair takes Redis 7.0 93,000 instructions by ours and 33,000 by rslock's, the network \
included: to call an empty script with the arguments of our acquire is 12,600, a SET with a time 12,400, TIME 6,500. \
Most of it lies between a bare socket and one that sends our scripts, and the server's one thread is the limit for 64 \
tasks, where even that socket has fewer pairs than rslock. On five nodes what is meant beside rslock is no more than \
what a bare socket takes. With one task, most of the client's processor time is the kernel's, whichever the library: \
of it kernel, %. It would take a server that does this without Lua, as a module could; a lock without a fence is not \
to be had here. A blocking call is that of async Rust on a runtime of its own, which costs an epoll_wait for each \
answer where a bare socket only reads."""

LOOPS = """\
**asyncio and Node.** A loop that makes one call after the other reads its sockets itself, as those of redis-py and \
node-redlock do, and the engine's own thread sleeps. What is left beside them is what the servers take for our scripts \
(CPU µs, servers), and what a call costs between two languages. Of many tasks the engine's own thread reads the \
sockets, and its wake-ups are shared. All subjects are warm: node-redlock is more than twice as fast as at its start, \
because V8 has compiled it; ours is native and does not change."""

THREADS = """\
**Python.** A blocking call waits for two round trips, and the fence makes those longer. What the library itself adds \
is less than what redis-py adds: CPU µs, client. By perf, of that time 61 % is the kernel's, 19 % the engine's and 13 \
% the Python interpreter's. Redis takes 16 µs longer for our scripts than for redis-py's (CPU µs, servers), more than \
half of what is missing: it would take shorter scripts, and the rest a client that does not sleep for each answer."""

MEMORY = """\
**Memory in Python and Node.** A held lock needs up to two thirds more than in Rust: its object in that language, and \
in Node V8's young generation, which grows when so many locks are made at once, and is less with \
`--max-semi-space-size=1`."""

SCRIPT = """\
**The script.** Ours asks for a free lock without a look at it, prints no number and reads as few as it can. Counted \
by callgrind, of 46,000 instructions that it adds to an empty script the two SETs with a time are 54 %, TIME 14 %, \
GET 6 %, the numbers that are read from text 9 %. It would take a fence key whose time is not written anew with \
every acquisition (KEEPTTL); then a client with a short `fence_ttl` would make the node forget what one with a long \
`fence_ttl` relies on."""

FROZEN = """\
**A node that hangs.** Nobody waits for it: most ms is far below a node_timeout. A turn of 0.1 s ends before a \
node_timeout has passed, from when on a silent node is asked once and is then left out until it answers; within a \
turn it is written to, after the others as soon as it has owed an answer for 10 ms. Watched in Python, a pair took \
234 µs of the client's processor, 233 with all well, and 351 µs of the servers', 377 with all well, but with 5.4 \
context switches of the client, not 3.8: four servers have less to do than five, so that both cores run dry more \
often between a request and its answer, and have to be woken. It would take a machine on which that is cheap, or a \
core for each server."""

FAIR = """\
**Fair turns.** Who is fastest here lets the one that has just released win again, for as long as it likes: busiest \
: least busy tells. A lock that takes turns pays for a hand-over to another process each time, woken by the server."""

TARGETS = [
    _beside("one", "µs", "rust-async", "rslock", 1.05, RUST),
    _beside("one", "µs", "rust-blocking", "bare", 1.25, RUST),
    _beside("one", "µs", "python-sync", "redis-py", 0.6, THREADS),
    _beside("one", "µs", "python-asyncio", "redis-py-asyncio", 0.9, LOOPS),
    _beside("one", "µs", "node", "node-redlock", 1.05, LOOPS),
    _beside("five", "µs", "rust-async", "rslock", 0.8, RUST),
    _beside("five", "µs", "rust-async", "bare", 1.25, RUST),
    _beside("five", "µs", "python-sync", "pottery", 0.2, THREADS),
    _beside("five", "µs", "node", "node-redlock", 1.25, LOOPS),
    _beside("one-free", "µs", "rust-async", "rslock", 1.05, RUST),
    _beside("one-free", "µs", "python-sync", "redis-py", 0.6, THREADS),
    _beside("one-free", "µs", "node", "node-redlock", 1.05, LOOPS),
    _beside("five-free", "µs", "rust-async", "rslock", 0.8, RUST),
    _beside("five-free", "µs", "node", "node-redlock", 1.0, LOOPS),
    _throughput("rust-async", "rslock", 0.85, RUST),
    _throughput("python-sync", "redis-py", 3, THREADS),
    _throughput("python-asyncio", "redis-py-asyncio", 6, LOOPS),
    _throughput("node", "node-redlock", 1.2, LOOPS),
    *(Target(Figure("cluster", "µs", f), 1.05, Figure("cluster", "µs, one node", f)) for f in FACES),
    *(Target(Figure("cluster", "requests", f), 1.05, Figure("cluster", "requests, one node", f)) for f in FACES),
    *(target for face in FACES for target in _frozen(face)),
    Target(Figure("script", "times the plain one", "bare-scripts"), 0.8, why=SCRIPT),
    *(_beside("handover", "median ms", face, "redis-semaphore", 0.2) for face in FACES),
    *(Target(Figure("handover5", "median ms", f), 3, Figure("handover", "median ms", f)) for f in FACES),
    *(target for face in FACES for target in _contended(face, FASTEST[face])),
    *(Target(Figure("contention64", "requests", face), 24) for face in FACES),
    # A tenth of a core.
    *(Target(Figure("holding10000", "CPU µs per lock and s, client", face), 10) for face in FACES),
    *(Target(Figure("holding10000", "KiB per lock", face), 2, why=MEMORY) for face in FACES),
    *(Target(Figure("waiting", "% of a core, client", face), 0.1) for face in FACES),
]
"""In the order of the page."""
