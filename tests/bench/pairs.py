"""Acquires and releases, repeatedly: alone, on several nodes, with one frozen, by many tasks at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures import percentile
from bench.nodes import Nodes
from bench.process import Json, Process
from bench.session import LIMIT_S, Crew, Session
from bench.subjects import LIMIT, Subject


def one(session: Session, workload: str) -> None:
    """One task, one name, one node."""
    Turns(session, workload, session.one).take(session.subjects)


def one_other(session: Session, workload: str) -> None:
    """One task, one name, one node of the other program."""
    if session.other:
        Turns(session, workload, session.other).take(session.subjects)


def five(session: Session, workload: str) -> None:
    """One task, one name, five nodes."""
    Turns(session, workload, session.five).take(session.able(many_nodes=True))


def tasks(session: Session, workload: str) -> None:
    """Many tasks in one process, each with its own name, one node."""
    Turns(session, workload, session.one, many=True).take(session.subjects)


def tasks_other(session: Session, workload: str) -> None:
    """Many tasks, one node of the other program."""
    if session.other:
        Turns(session, workload, session.other, many=True).take(session.subjects)


def frozen(session: Session, workload: str) -> None:
    """Five nodes, of which one stops answering while all subjects are connected, compared with five good ones. The
    limit always leaves the frozen one out."""
    turns, living = Turns(session, workload, session.five), session.five.urls[1:]

    def urls(subject: Subject) -> Sequence[Sequence[str]]:
        return [living if subject.kind == LIMIT else session.five.urls]

    session.five.empty()
    with session.crew(workload, urls, session.able(many_nodes=True)) as crew:
        turns.warm_up(crew)
        for turn in range(session.form.rounds):
            for subject in crew.shuffled():
                with crew.trying(subject) as (process,):
                    turns.with_and_without(process, subject, turn)


@dataclass(frozen=True)
class Turns:
    """Turns of acquiring and releasing, of all subjects on the same nodes."""

    session: Session
    workload: str
    nodes: Nodes
    many: bool = False
    """Whether a subject has many tasks, each with its own name."""

    def take(self, subjects: Sequence[Subject]) -> None:
        """Each subject has a worker, which has a turn in each round."""
        self.nodes.empty()
        with self.session.crew(self.workload, lambda _: [self.nodes.urls], subjects) as crew:
            self.warm_up(crew)
            for turn in range(self.session.form.rounds):
                for subject in crew.shuffled():
                    with crew.trying(subject) as (process,):
                        self.turn(process, subject, turn)

    def warm_up(self, crew: Crew) -> None:
        """Lets each work for as long as its compiler may still make it faster."""
        seconds = self.session.form.warm_up_s
        for subject in crew.shuffled():
            with crew.trying(subject) as (process,):
                process.ask(self._request(subject, seconds=seconds), seconds + LIMIT_S)

    def with_and_without(self, process: Process, subject: Subject, turn: int) -> None:
        """A turn with all nodes well, and right after it one with the first of them frozen, because a machine may
        change within seconds by more than the difference. Each comes after a single pair."""
        process.ask(self._request(subject, count=1), LIMIT_S)
        self.turn(process, subject, turn, "-well")
        self.nodes.freeze(0)
        try:
            answer = process.ask(self._request(subject, count=1), LIMIT_S)
            self.session.record(f"{self.workload}-first", subject, turn, wall_ns=answer["wall_ns"])
            self.turn(process, subject, turn)
        finally:
            self.nodes.thaw(0)

    def turn(self, process: Process, subject: Subject, turn: int, kind: str = "") -> None:
        """A turn of a subject, kept with this suffix of the workload's name."""
        seconds = self.session.form.turn_s
        before = self.nodes.count()
        answer = process.ask(self._request(subject, seconds=seconds), seconds + LIMIT_S)
        done = self.nodes.count().since(before)
        samples = answer.pop("samples_ns")
        self.session.record(
            self.workload + kind,
            subject,
            turn,
            **answer,
            **done.shown,
            p99_ns=percentile(samples, 99),
            most_ns=max(samples),
        )

    def _request(self, subject: Subject, **until: float) -> Json:
        # A subject must not meet the unfinished work of another one on the servers.
        names = [f"{self.workload}:{subject.name}:{i}" for i in range(subject.tasks if self.many else 1)]
        return {"op": "pairs", "names": names, **until}
