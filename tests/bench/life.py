"""The beginning and the long run of a process: its first lock, and its memory after very many."""

from __future__ import annotations

from process import Process
from session import LIMIT_S, STARTS_S, Session, end
from subjects import LIMIT

CHUNKS = 20
"""How often memory is looked at."""


def cold(session: Session, workload: str) -> None:
    """A new process, from its start to its first lock."""
    session.one.empty()
    failed = set()
    for turn in range(session.form.cold_starts):
        subjects = [subject for subject in session.subjects if subject.name not in failed]
        session.random.shuffle(subjects)
        for subject in subjects:
            failed.add(subject.name)
            with session.trying(workload, subject), Process(subject.cold_start(session.one.urls)) as process:
                said = process.answer(STARTS_S)
                process.end(STARTS_S)
                session.record(
                    workload,
                    subject,
                    turn,
                    wall_ns=said["acquired_ns"] - process.started_ns,
                    started_ns=said["begun_ns"] - process.started_ns,
                    import_ns=said["imported_ns"] - said["begun_ns"],
                    acquire_ns=said["acquired_ns"] - said["imported_ns"],
                    cpu_ns=said["cpu_ns"],
                )
                failed.discard(subject.name)


def growth(session: Session, workload: str) -> None:
    """One process that acquires and releases very often, by many tasks."""
    each = session.form.pairs // CHUNKS
    for subject in session.subjects:
        if subject.kind == LIMIT:
            continue
        session.one.empty()
        with session.trying(workload, subject):
            process = session.start(subject, session.one.urls)
            try:
                names = [f"{workload}:{subject.name}:{i}" for i in range(subject.tasks)]
                process.ask({"op": "pairs", "names": names, "count": each // 10}, session.form.growth_limit_s)
                memory, count, spent_ns = [process.memory()], 0, 0
                while count < session.form.pairs and spent_ns < session.form.growth_limit_s * 1e9:
                    answer = process.ask({"op": "pairs", "names": names, "count": each}, session.form.growth_limit_s)
                    count, spent_ns = count + answer["count"], spent_ns + answer["wall_ns"]
                    memory.append(process.memory())
                session.record(workload, subject, 0, count=count, memory=memory)
                process.ask({"op": "usage"}, LIMIT_S)
            finally:
                end(process)
