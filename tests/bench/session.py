"""One run of the benchmark: its servers, subjects, measurements and failures."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

from bench.nodes import Counters, Nodes
from bench.process import Failed, Json, Process
from bench.subjects import LIMIT, Subject

FIVE = 5
SHARDS = 3

STARTS_S = 20.0
"""How long it may take to start a process and to end it."""

LIMIT_S = 5.0
"""How much longer than planned a turn may take."""

CORES = ("each", "free", "apart", "one")
"""Where clients and servers run: as each workload says; where the scheduler puts them; on cores of their own, as if on
two machines; all of them on one core, where every instruction counts and ratios repeat best."""


@dataclass(frozen=True)
class Form:
    """How much is measured. Workloads of the long form alone have their own sizes."""

    name: str
    runs: int
    """How often everything is measured, unless a workload says otherwise."""
    rounds: int
    """The rounds of a run; in each of them, every subject has a turn."""
    turn_s: float
    warm_up_s: float
    hand_overs: int
    """The hand-overs in each of two rounds."""
    contention_s: float
    sharing_s: float
    """How long many share the slots of a semaphore, or a lock."""
    locks: int
    """How many are held and renewed."""
    hold_ttl_ms: int
    waiters: int
    window_s: float
    """How long waiters are watched."""
    cold_starts: int


SMOKE = Form("smoke", 1, 2, 0.02, 0.02, 2, 0.1, 0.2, 20, 1_000, 20, 0.2, 1)
SHORT = Form("short", 1, 7, 0.1, 0.12, 6, 0.8, 2, 1_000, 2_000, 1_000, 0.7, 3)
LONG = replace(SHORT, name="long", runs=5, rounds=15, sharing_s=5, window_s=3)

FORMS = {form.name: form for form in (SMOKE, SHORT, LONG)}


@dataclass
class Count:
    """The servers' counts within a block."""

    done: Counters = field(default_factory=Counters)


class Session:
    """A run: servers, subjects, and the results of all turns. A context manager that stops the servers."""

    def __init__(self, form: Form, subjects: Sequence[Subject], seed: int, cores: str, run: int = 0) -> None:
        self.run = run
        self.form = form
        self._cores = cores
        self._server_cores: set[int] = set()
        """Empty while the scheduler has always placed them."""
        self.subjects = [subject for subject in subjects if subject.locks]
        self.sharers = list(subjects)
        """All of them; some have a semaphore, and some have nothing else."""
        self.random = random.Random(seed + run)
        self.turns: list[Json] = []
        self.failures: list[Json] = []
        self.left_out: list[Json] = []
        self.notes: list[str] = []
        self.versions: dict[str, str | None] = {}
        with ExitStack() as stack:
            self.one = stack.enter_context(Nodes.plain(1))
            self.five = stack.enter_context(Nodes.plain(FIVE))
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def record(self, workload: str, subject: Subject, turn: int, **numbers: Any) -> None:
        """Keeps the result of a turn."""
        self.turns.append({"workload": workload, "subject": subject.name, "run": self.run, "round": turn, **numbers})

    @contextmanager
    def trying(self, workload: str, subject: Subject) -> Iterator[None]:
        """Keeps a failure inside as that of this subject, and ends the block."""
        try:
            yield
        except Failed as failed:
            self.failures.append({"workload": workload, "subject": subject.name, "run": self.run, "seen": str(failed)})

    def leave_out(self, workload: str, subject: Subject, why: str) -> None:
        """Keeps the reason why a subject has no part in a workload."""
        self.left_out.append({"workload": workload, "subject": subject.name, "why": why})

    @contextmanager
    def counted(self, nodes: Nodes) -> Iterator[Count]:
        """Counts the servers' work inside."""
        count, before = Count(), nodes.count()
        yield count
        count.done = nodes.count().since(before)

    def start(self, subject: Subject, urls: Sequence[str], *, ttl_ms: int = 10_000) -> Process:
        """Starts a worker and waits until it is ready; raises `Failed`."""
        process = Process(subject.worker(urls, ttl_ms))
        try:
            self.ready(subject, process)
        except BaseException:
            process.kill()
            raise
        return process

    def ready(self, subject: Subject, process: Process) -> None:
        """Waits until a worker is ready; raises `Failed`."""
        self.versions[subject.name] = process.answer(subject.starts_s)["ready"]["version"]

    @contextmanager
    def crew(
        self,
        workload: str,
        urls: Callable[[Subject], Sequence[Sequence[str]]],
        subjects: Sequence[Subject],
        *,
        ttl_ms: int = 10_000,
    ) -> Iterator[Crew]:
        """Workers of each subject, one for each list of addresses, all started at once and ready."""
        with ExitStack() as stack:
            started = {
                subject: [stack.enter_context(Process(subject.worker(of, ttl_ms))) for of in urls(subject)]
                for subject in subjects
            }
            crew = Crew(self, workload, started)
            for subject in subjects:
                with crew.trying(subject) as processes:
                    for process in processes:
                        self.ready(subject, process)
            yield crew

    @contextmanager
    def placed(self, cores: str) -> Iterator[None]:
        """Puts the servers, and clients that are started inside, on these cores, unless the run has its own choice."""
        cores = cores if self._cores == "each" else self._cores
        if cores == "free":
            yield
            return
        mine = os.sched_getaffinity(0)
        last = {max(mine)}
        try:
            # Workers inherit the placement.
            self._place(last if cores == "one" or mine == last else mine - last, last)
            yield
        finally:
            self._place(mine, mine)

    @contextmanager
    def cluster(self) -> Iterator[Nodes]:
        """A cluster, on the cores of the other servers. Its servers talk to each other, so no other workload has it."""
        with Nodes.cluster(SHARDS) as nodes:
            for server in nodes if self._server_cores else ():
                os.sched_setaffinity(server.pid, self._server_cores)
            yield nodes

    def _place(self, clients: set[int], servers: set[int]) -> None:
        self._server_cores = servers
        os.sched_setaffinity(0, clients)
        for server in (*self.one, *self.five):
            os.sched_setaffinity(server.pid, servers)


class Crew:
    """The workers of a workload; a failed one is dropped."""

    def __init__(self, session: Session, workload: str, started: dict[Subject, list[Process]]) -> None:
        self._session = session
        self._workload = workload
        self._started = started

    @contextmanager
    def trying(self, subject: Subject) -> Iterator[list[Process]]:
        """The workers of a subject; if something fails inside, they are killed."""
        done = False
        with self._session.trying(self._workload, subject):
            yield self._started[subject]
            done = True
        if not done:
            for process in self._started.pop(subject):
                process.kill()

    def shuffled(self) -> list[Subject]:
        """The remaining subjects, in another order for each round."""
        order = list(self._started)
        self._session.random.shuffle(order)
        return order


def able(subjects: Sequence[Subject], *, many_nodes: bool = False, waits: bool = False) -> list[Subject]:
    """The subjects that can use several nodes, or wait for others."""
    return [s for s in subjects if (s.many_nodes or not many_nodes) and (s.kind != LIMIT or not waits)]


def sleep_until(at_ns: int) -> None:
    """Lets time pass until this instant of the clock that all processes share."""
    left_ns = at_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


def end(process: Process) -> None:
    """Ends a worker that is not needed any more."""
    with suppress(Failed):
        process.end(LIMIT_S)
    process.kill()
