"""Semaphores and shared locks: many tasks of several processes that share some slots, or read and write."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.figures import intruded, occupied, percentile
from bench.nodes import Counters, Nodes
from bench.process import Failed, Json, Process
from bench.session import Session, sleep_until
from bench.subjects import LIMIT, Subject

CROWD_S = 60.0
"""How long the crowd shares its slots."""

WARM_UP_NS = 100_000_000
"""How long each process has a semaphore or a lock of its own before."""

SOON_NS = 500_000_000
"""The time by which every process has read its request to begin."""

PATIENCE_S = 10.0
"""How much longer the last waiter may take than it would if everybody took turns."""


@dataclass(frozen=True)
class Crowd:
    """The waiters, and what they share."""

    processes: int
    tasks: int
    """The waiters of each process."""
    permits: int
    hold_ms: int
    ttl_ms: int

    @property
    def waiters(self) -> int:
        """All of them."""
        return self.processes * self.tasks

    @property
    def rate(self) -> float:
        """How many acquisitions there are in a second if no time is lost."""
        return 1000 * self.permits / self.hold_ms

    @property
    def turn_s(self) -> float:
        """How long it takes until each has had a slot if no time is lost, in a fair queue."""
        return self.waiters / self.rate

    @property
    def wait_ms(self) -> float:
        """How long each waits that comes back to this queue."""
        return self.turn_s * 1000 - self.hold_ms


FEW = Crowd(processes=10, tasks=10, permits=10, hold_ms=50, ttl_ms=10_000)

MANY = Crowd(processes=100, tasks=10, permits=32, hold_ms=2_000, ttl_ms=2_000)
"""Every hold lasts for a whole ttl, so that it has to be renewed."""


@dataclass(frozen=True)
class Readership:
    """The readers and writers of one lock."""

    processes: int
    readers: int
    """The readers of each process."""
    writers: int
    """The writers of each process."""
    hold_ms: int
    ttl_ms: int

    @property
    def tasks(self) -> int:
        """The tasks of each process."""
        return self.readers + self.writers

    @property
    def reads(self) -> float:
        """How many reads there are in a second if all readers and one writer take turns and no time is lost."""
        return self.processes * self.readers * self.writes

    @property
    def writes(self) -> float:
        """How many writes there are in a second then."""
        return 1000 / (2 * self.hold_ms)

    @property
    def slowest_s(self) -> float:
        """How long it may take until each has had the lock: a writer that misses a release may wait for a ttl."""
        return self.processes * (self.tasks * self.hold_ms + self.writers * self.ttl_ms) / 1000


READERSHIP = Readership(processes=5, readers=9, writers=1, hold_ms=20, ttl_ms=10_000)


def one(session: Session, workload: str) -> None:
    """Some waiters, one node."""
    _share(session, workload, session.one, FEW, session.form.sharing_s)


def five(session: Session, workload: str) -> None:
    """The same on five nodes."""
    _share(session, workload, session.five, FEW, session.form.sharing_s)


def crowd(session: Session, workload: str) -> None:
    """Very many waiters, whose holds are renewed, on one node."""
    _share(session, workload, session.one, MANY, CROWD_S)


def readers(session: Session, workload: str) -> None:
    """Many readers and a few writers of one lock, on one node."""
    there = []
    for subject in session.subjects:
        if subject.shared:
            there.append(subject)
        elif subject.kind != LIMIT:
            session.leave_out(workload, subject, "no shared lock")
    session.random.shuffle(there)
    urls = [session.one.urls] * READERSHIP.processes
    for subject in there:
        session.one.empty()
        with session.crew(workload, lambda _: urls, [subject], ttl_ms=READERSHIP.ttl_ms) as crew:
            for remaining in crew.shuffled():
                with crew.trying(remaining) as processes:
                    _read_and_write(session, workload, remaining, READERSHIP, processes)


def obstacle(subject: Subject, processes: int, nodes: int) -> str | None:
    """Returns the reason why a subject has no part, if there is one."""
    if not subject.semaphore:
        return "no semaphore"
    if nodes > 1 and not subject.many_nodes:
        return "a semaphore on one node only"
    return f"at most {subject.processes} processes at once" if processes > subject.processes else None


def _share(session: Session, workload: str, nodes: Nodes, crowd: Crowd, seconds: float) -> None:
    subjects = []
    for subject in session.sharers:
        why = obstacle(subject, crowd.processes, len(nodes.servers))
        if why is None:
            subjects.append(subject)
        elif subject.kind != LIMIT:
            session.leave_out(workload, subject, why)
    session.random.shuffle(subjects)
    for subject in subjects:
        nodes.empty()
        with session.crew(workload, lambda _: [nodes.urls] * crowd.processes, [subject], ttl_ms=crowd.ttl_ms) as crew:
            for there in crew.shuffled():
                with crew.trying(there) as processes:
                    _turn(session, workload, there, nodes, crowd, seconds, processes)


def _turn(
    session: Session,
    workload: str,
    subject: Subject,
    nodes: Nodes,
    crowd: Crowd,
    seconds: float,
    processes: list[Process],
) -> None:
    name = f"{workload}:{subject.name}"
    # With one slot, the tasks of the process also wait for each other.
    _warm_up(processes, name, permits=1, tasks=crowd.tasks)
    what = {"name": name, "permits": crowd.permits, "tasks": crowd.tasks, "hold_ms": crowd.hold_ms}
    contest = _contest(session, nodes, processes, seconds, 2 * crowd.turn_s, what)
    counts = [answer["count"] for answer in contest.answers]
    if not any(counts):
        raise Failed(f"nobody got a slot within {seconds:g} s")
    waits = [wait for answer in contest.answers for wait in answer["samples_ns"]]
    holds = [hold for answer in contest.answers for hold in answer["holds_ns"]]
    busy_ns, holders = occupied(holds, contest.start_ns, contest.end_ns, crowd.permits)
    session.record(
        workload,
        subject,
        0,
        processes=crowd.processes,
        waiters=crowd.waiters,
        permits=crowd.permits,
        count=sum(counts),
        most=max(counts),
        least=min(counts),
        busy_ns=busy_ns,
        holders=holders,
        p50_ns=percentile(waits, 50),
        p99_ns=percentile(waits, 99),
        **contest.cost,
    )


def _read_and_write(
    session: Session, workload: str, subject: Subject, readership: Readership, processes: list[Process]
) -> None:
    name = f"{workload}:{subject.name}"
    roles = {"tasks": readership.tasks, "writers": readership.writers}
    _warm_up(processes, name, **roles)
    seconds = session.form.sharing_s
    what = {"name": name, "hold_ms": readership.hold_ms, **roles}
    contest = _contest(session, session.one, processes, seconds, readership.slowest_s, what)
    reads = [turn for answer in contest.answers for turn in answer["reads_ns"]]
    writes = [turn for answer in contest.answers for turn in answer["writes_ns"]]
    if not reads or not writes:
        raise Failed(f"nobody {'wrote' if reads else 'read'} within {seconds:g} s")
    read, written = ([hold for _, *hold in turns] for turns in (reads, writes))
    busy_ns, _ = occupied(read + written, contest.start_ns, contest.end_ns, 1)
    numbers: Json = {}
    for role, turns in (("reads", reads), ("writes", writes)):
        waits = [since_ns - asked_ns for asked_ns, since_ns, _ in turns]
        numbers |= {
            role: sum(since_ns < contest.end_ns for _, since_ns, _ in turns),
            f"{role}_p50_ns": percentile(waits, 50),
            f"{role}_p99_ns": percentile(waits, 99),
            f"{role}_most_ns": max(waits),
        }
    session.record(
        workload,
        subject,
        0,
        processes=readership.processes,
        count=numbers["reads"] + numbers["writes"],
        busy_ns=busy_ns,
        intruded=intruded(read, written),
        **numbers,
        **contest.cost,
    )


@dataclass(frozen=True)
class _Contest:
    """What workers that want the same have done from one instant to another, and the cost of it."""

    start_ns: int
    end_ns: int
    answers: list[Json]
    cpu_s: float
    """The processor time of all workers."""
    done: Counters
    """The counts of the servers."""

    @property
    def cost(self) -> Json:
        """The time and what was spent in it, as they are kept."""
        return {
            "wall_ns": self.end_ns - self.start_ns,
            "cpu_ns": int(self.cpu_s * 1e9),
            "server_cpu_us": self.done.cpu_us,
            "requests": self.done.reads,
            "commands": self.done.commands,
        }


def _warm_up(processes: list[Process], name: str, **what: int) -> None:
    start_ns = time.monotonic_ns() + SOON_NS
    period = {"start_ns": start_ns, "end_ns": start_ns + WARM_UP_NS, "hold_ms": 1}
    for i, process in enumerate(processes):
        process.send({"op": "contend", "name": f"{name}:{i}", **what, **period})
    for process in processes:
        process.answer(PATIENCE_S)


def _contest(
    session: Session, nodes: Nodes, processes: list[Process], seconds: float, last_s: float, what: Json
) -> _Contest:
    """Lets all processes contend for so long; those that wait at the end may take `last_s` and a little more."""
    start_ns = time.monotonic_ns() + SOON_NS
    end_ns = start_ns + int(seconds * 1e9)
    for process in processes:
        process.send({"op": "contend", "start_ns": start_ns, "end_ns": end_ns, **what})
    sleep_until(start_ns)
    cpu_s = _cpu_s(processes)
    with session.counted(nodes) as count:
        sleep_until(end_ns)
    # The workers' own counts include the time until the last waiter has had its turn.
    cpu_s = _cpu_s(processes) - cpu_s
    answers = [process.answer(last_s + PATIENCE_S) for process in processes]
    return _Contest(start_ns, end_ns, answers, cpu_s, count.done)


def _cpu_s(processes: list[Process]) -> float:
    return sum(sum(process.times()) for process in processes)
