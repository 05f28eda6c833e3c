"""One run of the benchmark: its servers, subjects, measurements and failures."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

from bench.nodes import OTHER, Nodes
from bench.process import Failed, Json, Process
from bench.subjects import LIMIT, Subject

FIVE = 5

STARTS_S = 20.0
"""How long it may take to start a process."""

LIMIT_S = 5.0
"""How much longer than planned a turn may take."""


@dataclass(frozen=True)
class Form:
    """How much is measured."""

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
    locks: int
    """How many are held and renewed."""
    hold_ttl_ms: int
    waiters: int
    window_s: float
    """How long waiters are watched."""


SMOKE = Form("smoke", 1, 2, 0.02, 0.02, 2, 0.1, 20, 1_000, 20, 0.2)
SHORT = Form("short", 1, 7, 0.1, 1, 6, 0.8, 1_000, 2_000, 1_000, 0.7)
LONG = replace(SHORT, name="long", runs=5, rounds=15, warm_up_s=3, locks=10_000, hold_ttl_ms=10_000, window_s=3)

FORMS = {form.name: form for form in (SMOKE, SHORT, LONG)}


class Session:
    """A run: servers, subjects, and the results of all turns. A context manager that stops the servers."""

    def __init__(self, form: Form, subjects: Sequence[Subject], run: int = 0) -> None:
        self.run = run
        self.form = form
        self.subjects = subjects
        self.random = random.Random(run)
        self.turns: list[Json] = []
        self.failures: list[Json] = []
        self.versions: dict[str, str | None] = {}
        with ExitStack() as stack:
            self.one = stack.enter_context(Nodes(1))
            self.five = stack.enter_context(Nodes(FIVE))
            self.other = stack.enter_context(Nodes(1, OTHER)) if OTHER else None
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def able(self, *, many_nodes: bool = False, waits: bool = False) -> list[Subject]:
        """The subjects that can use several nodes, or wait for others, in another order each time."""
        able = [s for s in self.subjects if (s.many_nodes or not many_nodes) and (s.kind != LIMIT or not waits)]
        return self.random.sample(able, len(able))

    def record(self, workload: str, subject: Subject, turn: int, **numbers: Any) -> None:
        """Keeps the result of a turn."""
        self.turns.append({"workload": workload, "subject": subject.name, "run": self.run, "round": turn, **numbers})

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
                        self.versions[subject.name] = process.answer(STARTS_S)["ready"]["version"]
            yield crew

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Puts servers, and clients that are started inside, on cores of their own, as if on two machines."""
        mine = os.sched_getaffinity(0)
        last = {max(mine)}
        try:
            # Workers inherit the placement.
            self._place(mine - last or mine, last)
            yield
        finally:
            self._place(mine, mine)

    def _place(self, clients: set[int], servers: set[int]) -> None:
        os.sched_setaffinity(0, clients)
        for nodes in (self.one, self.five, self.other):
            for server in nodes.servers if nodes else ():
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
        try:
            yield self._started[subject]
        except Failed as failed:
            seen = {"workload": self._workload, "subject": subject.name, "run": self._session.run, "seen": str(failed)}
            self._session.failures.append(seen)
            for process in self._started.pop(subject):
                process.kill()

    def shuffled(self) -> list[Subject]:
        """The remaining subjects, in another order for each round."""
        order = list(self._started)
        self._session.random.shuffle(order)
        return order
