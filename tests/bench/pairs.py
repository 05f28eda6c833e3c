"""Acquires and releases, repeatedly: alone, on several nodes, with one frozen, by many tasks at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures import percentile, still_faster
from bench.nodes import Nodes
from bench.process import Json, Process
from bench.session import LIMIT_S, Crew, Session, able
from bench.subjects import LIMIT, OURS, Subject


def one(session: Session, workload: str) -> None:
    """One task, one name, one node."""
    Turns(session, workload, session.one).take(session.one.urls, session.subjects, session.form.rounds)


def unix(session: Session, workload: str) -> None:
    """The same over a unix socket."""
    Turns(session, workload, session.one).take(session.one.unix_urls, session.subjects, session.form.rounds // 2)


def five(session: Session, workload: str) -> None:
    """One task, one name, five nodes."""
    subjects = able(session.subjects, many_nodes=True)
    Turns(session, workload, session.five).take(session.five.urls, subjects, session.form.rounds)


def tasks(session: Session, workload: str) -> None:
    """Many tasks in one process, each with its own name, one node."""
    Turns(session, workload, session.one, many=True).take(session.one.urls, session.subjects, session.form.rounds)


def frozen(session: Session, workload: str) -> None:
    """Five nodes, of which one stops answering while all subjects are connected, compared with five good ones. The
    limit always leaves the frozen one out."""
    turns, living = Turns(session, workload, session.five), session.five.urls[1:]

    def urls(subject: Subject) -> Sequence[Sequence[str]]:
        return [living if subject.kind == LIMIT else session.five.urls]

    session.five.empty()
    with session.crew(workload, urls, able(session.subjects, many_nodes=True)) as crew:
        turns.warm_up(crew)
        for turn in range(session.form.rounds):
            for subject in crew.shuffled():
                with crew.trying(subject) as (process,):
                    turns.with_and_without(process, subject, turn)


def cluster(session: Session, workload: str) -> None:
    """One task of ours, on one node and right after it on a cluster, by a worker for each."""
    subjects = [subject for subject in session.subjects if subject.kind == OURS]
    session.one.empty()
    with session.cluster() as nodes, session.crew(workload, lambda _: [session.one.urls, nodes.urls], subjects) as crew:
        plain, routed = Turns(session, workload, session.one), Turns(session, workload, nodes)
        routed.warm_up(crew)
        for turn in range(session.form.rounds):
            for subject in crew.shuffled():
                with crew.trying(subject) as (on_one, on_cluster):
                    plain.turn(on_one, subject, turn, "-plain")
                    routed.turn(on_cluster, subject, turn)


def reader(session: Session, workload: str) -> None:
    """One task and one name, which it acquires as a mutex and right after it as a reader."""
    subjects = [subject for subject in session.subjects if subject.shared]
    session.one.empty()
    with session.crew(workload, lambda _: [session.one.urls], subjects) as crew:
        mutex, shared = Turns(session, workload, session.one), Turns(session, workload, session.one, shared=True)
        mutex.warm_up(crew)
        shared.warm_up(crew)
        for turn in range(session.form.rounds):
            for subject in crew.shuffled():
                with crew.trying(subject) as (process,):
                    mutex.turn(process, subject, turn, "-mutex")
                    shared.turn(process, subject, turn)


WARM_UP_TURNS = 30
"""The most turns of a warm-up."""


@dataclass(frozen=True)
class Turns:
    """Turns of acquiring and releasing, of all subjects on the same nodes."""

    session: Session
    workload: str
    nodes: Nodes
    many: bool = False
    """Whether there are many tasks, each with its own name."""
    shared: bool = False
    """Whether they are readers."""

    def take(self, urls: Sequence[str], subjects: Sequence[Subject], rounds: int) -> None:
        """Lets new workers take all turns."""
        self.nodes.empty()
        with self.session.crew(self.workload, lambda _: [urls], subjects) as crew:
            self.warm_up(crew)
            for turn in range(rounds):
                self.round(crew, turn)

    def warm_up(self, crew: Crew) -> None:
        """Turns that connect, load scripts, and let compilers see what is used, while a subject still gets faster."""
        request = {"seconds": self.session.form.warm_up_s}
        for subject in crew.shuffled():
            with crew.trying(subject) as processes:
                for process in processes:
                    costs: list[float] = []
                    while still_faster(costs) and len(costs) < WARM_UP_TURNS:
                        answer = process.ask(self._request(subject, **request), LIMIT_S)
                        costs.append(answer["cpu_ns"] / answer["count"])

    def round(self, crew: Crew, turn: int) -> None:
        """A turn of each subject."""
        for subject in crew.shuffled():
            with crew.trying(subject) as (process,):
                self.turn(process, subject, turn)

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
        before = process.times()
        with self.session.counted(self.nodes) as count:
            answer = process.ask(self._request(subject, seconds=seconds), seconds + LIMIT_S)
        user_s, kernel_s = (after - since for after, since in zip(process.times(), before, strict=True))
        samples = answer.pop("samples_ns")
        self.session.record(
            self.workload + kind,
            subject,
            turn,
            **answer,
            p99_ns=percentile(samples, 99),
            most_ns=max(samples),
            user_s=user_s,
            kernel_s=kernel_s,
            server_cpu_us=count.done.cpu_us,
            requests=count.done.reads,
            commands=count.done.commands,
            script_us=count.done.script_us,
        )

    def _request(self, subject: Subject, **until: float) -> Json:
        # A subject must not meet the unfinished work of another one on the servers.
        names = [f"{self.workload}:{subject.name}:{i}" for i in range(subject.tasks if self.many else 1)]
        request = {"op": "pairs", "names": names, **until}
        return request | {"shared": True} if self.shared else request
