"""From one process to another: one hand-over at a time, and many processes that want one lock."""

from __future__ import annotations

import time

from bench.figures import percentile
from bench.nodes import Nodes
from bench.process import Failed, Process
from bench.session import LIMIT_S, Session
from bench.subjects import Subject

HOLD_MS = 1
"""How long each of many holds the lock."""

CROWD_S = 10.0
"""How long the 64 processes compete."""

WAITS_S = 0.02, 0.12
"""How long a process has waited when the lock is released. It is random, so that no polling falls in step with it."""

SLOWEST_S = 10.0
"""How long a process may wait for a lock."""

SOON_NS = 100_000_000
"""The time by which every process has read its request to begin."""


def hand_over(session: Session, workload: str) -> None:
    """Two processes, one of which waits when the other releases."""
    _pass(session, workload, session.one, session.able(waits=True))


def hand_over_five(session: Session, workload: str) -> None:
    """The same on five nodes."""
    _pass(session, workload, session.five, session.able(waits=True, many_nodes=True))


def _pass(session: Session, workload: str, nodes: Nodes, subjects: list[Subject]) -> None:
    nodes.empty()
    with session.crew(workload, lambda _: [nodes.urls] * 2, subjects) as crew:
        for turn in range(2):
            for subject in crew.shuffled():
                with crew.trying(subject) as (holder, waiter):
                    _hand_overs(session, workload, subject, turn, holder, waiter)


def _hand_overs(session: Session, workload: str, subject: Subject, turn: int, holder: Process, waiter: Process) -> None:
    acquire, release = {"op": "acquire", "name": f"{workload}:{subject.name}"}, {"op": "release"}
    holder.ask(acquire, SLOWEST_S)
    for i in range(session.form.hand_overs):
        waiter.send(acquire)
        time.sleep(session.random.uniform(*WAITS_S))
        released = holder.ask(release, LIMIT_S)
        took_ns = waiter.answer(SLOWEST_S)["held_ns"] - released["asked_ns"]
        session.record(workload, subject, turn * session.form.hand_overs + i, took_ns=took_ns)
        holder, waiter = waiter, holder
    holder.ask(release, LIMIT_S)


def contention8(session: Session, workload: str) -> None:
    """Eight processes that compete for one lock, hold it for a moment and want it again."""
    _contention(session, workload, 8, session.form.contention_s)


def contention64(session: Session, workload: str) -> None:
    """The same with 64 processes, each of which seldom has its turn."""
    _contention(session, workload, 64, CROWD_S)


def _contention(session: Session, workload: str, processes: int, seconds: float) -> None:
    for subject in session.able(waits=True):
        session.one.empty()
        with session.crew(workload, lambda _: [session.one.urls] * processes, [subject]) as crew:
            for there in crew.shuffled():
                with crew.trying(there) as crowd:
                    _contend(session, workload, there, crowd, seconds)


def _contend(session: Session, workload: str, subject: Subject, crowd: list[Process], seconds: float) -> None:
    for i, process in enumerate(crowd):
        process.send({"op": "pairs", "names": [f"{workload}:{subject.name}:{i}"], "count": 3})
    for process in crowd:
        process.answer(SLOWEST_S)
    start_ns = time.monotonic_ns() + SOON_NS
    end_ns = start_ns + int(seconds * 1e9)
    name = f"{workload}:{subject.name}"
    for process in crowd:
        process.send({"op": "contend", "name": name, "start_ns": start_ns, "end_ns": end_ns, "hold_ms": HOLD_MS})
    time.sleep(max(start_ns - time.monotonic_ns(), 0) / 1e9)
    before = session.one.count()
    time.sleep(max(end_ns - time.monotonic_ns(), 0) / 1e9)
    done = session.one.count().since(before)
    answers = [process.answer(SLOWEST_S) for process in crowd]
    counts = [answer["count"] for answer in answers]
    if not any(counts):
        raise Failed(f"nobody got the lock within {seconds:g} s")
    waits = [wait for answer in answers for wait in answer["samples_ns"]]
    held_ns = sum(answer["held_ns"] for answer in answers)
    session.record(
        workload,
        subject,
        0,
        count=sum(counts),
        most=max(counts),
        least=min(counts),
        wall_ns=end_ns - start_ns,
        free_ns=max(end_ns - start_ns - held_ns, 0),
        cpu_ns=sum(answer["cpu_ns"] for answer in answers),
        p50_ns=percentile(waits, 50),
        p99_ns=percentile(waits, 99),
        **done.shown,
    )
