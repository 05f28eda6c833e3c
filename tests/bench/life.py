"""The beginning and the long run of a process: its first lock, and its memory after very many."""

from __future__ import annotations

from bench.process import Process
from bench.session import LIMIT_S, STARTS_S, Session, end
from bench.subjects import LIMIT, PEER

ACQUISITIONS = 1_000_000
"""The number of acquisitions over which memory is watched."""

PEER_S = 30.0
"""About how long a peer is watched that is too slow for this number."""

CHUNKS = 20
"""How often memory is looked at."""

CHUNK_LIMIT_S = 120.0
"""How long it may take from one look to the next."""


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
    for subject in session.subjects:
        if subject.kind == LIMIT:
            continue
        session.one.empty()
        with session.trying(workload, subject):
            process = session.start(subject, session.one.urls)
            try:
                names = [f"{workload}:{subject.name}:{i}" for i in range(subject.tasks)]
                request = {"op": "pairs", "names": names}
                warm = process.ask({**request, "count": ACQUISITIONS // 200}, CHUNK_LIMIT_S)
                chunk = ACQUISITIONS // CHUNKS
                if subject.kind == PEER:
                    chunk = min(chunk, int(PEER_S / CHUNKS * warm["count"] / warm["wall_ns"] * 1e9))
                memory, count = [process.memory()], 0
                for _ in range(CHUNKS):
                    count += process.ask({**request, "count": chunk}, CHUNK_LIMIT_S)["count"]
                    memory.append(process.memory())
                session.record(workload, subject, 0, count=count, memory=memory)
                process.ask({"op": "usage"}, LIMIT_S)
            finally:
                end(process)
