"""Counts instead of times: system calls and allocations of one acquire and release."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.process import Failed, Process
from bench.session import LIMIT_S, STARTS_S, Session, end
from bench.subjects import LIMIT, OURS, Subject

FEW, MANY = 50, 250
"""The numbers of pairs of two processes: their difference excludes the cost of start and end."""

TRACED_S = 60.0
"""How long they may take: each system call stops the process."""

TRACERS = {
    "strace": ["strace", "-f", "-c", "-o"],
    "perf": ["perf", "stat", "-e", "raw_syscalls:sys_enter", "-x", ",", "-o"],
}

HEAP = ("--expose-gc", "--max-semi-space-size=256", "--min-semi-space-size=256")
"""For Node: nothing is collected while allocations are counted."""


def system_calls(session: Session, workload: str) -> None:
    """System calls of the client, all its threads together."""
    tracer = next(filter(_works, TRACERS), None)
    if tracer is None:
        session.notes.append("System calls were not counted: neither strace nor perf works here.")
        return
    session.one.empty()
    for subject in session.subjects:
        with session.trying(workload, subject), tempfile.TemporaryDirectory() as directory:
            few, many = (_traced(session, subject, tracer, Path(directory) / "calls", n) for n in (FEW, MANY))
            session.record(workload, subject, 0, tracer=tracer, calls=(many - few) / (MANY - FEW))


def _works(tracer: str) -> bool:
    with tempfile.NamedTemporaryFile("r") as file:
        command = [*TRACERS[tracer], file.name, "true"]
        # The tracer may exist but be forbidden.
        works = shutil.which(tracer) and subprocess.run(command, capture_output=True, check=False).returncode == 0
        return bool(works) and total(file.read()) is not None


def _traced(session: Session, subject: Subject, tracer: str, file: Path, pairs: int) -> int:
    with Process([*TRACERS[tracer], str(file), *subject.worker(session.one.urls)]) as process:
        process.answer(subject.starts_s)
        process.ask({"op": "pairs", "names": [f"calls:{subject.name}"], "count": pairs}, TRACED_S)
        process.end(TRACED_S)
        counted = total(file.read_text())
        if counted is None:
            raise Failed(f"{tracer} has counted nothing")
        return counted


def total(text: str) -> int | None:
    """How many system calls a tracer counted; `None` if it could not."""
    # The last line of strace is `100.00 0.01 1 1234 [errors] total`; perf writes `1234,,raw_syscalls:sys_enter,...`.
    found = re.search(r"^\s*100\.00\s+\S+\s+\S+\s+(\d+).*total$", text, re.MULTILINE) or re.search(
        r"^(\d+),.*sys_enter", text, re.MULTILINE
    )
    return int(found[1]) if found else None


def allocations(session: Session, workload: str) -> None:
    """Allocations of the client, as far as its language counts them."""
    session.one.empty()
    for subject in session.subjects:
        if subject.kind == LIMIT:
            continue
        with session.trying(workload, subject):
            process = Process(_with_heap(subject.worker(session.one.urls)))
            try:
                process.answer(subject.starts_s)
                request = {"op": "pairs", "names": [f"{workload}:{subject.name}"], "count": 200}
                process.ask(request, LIMIT_S)
                answer = process.ask({**request, "op": "allocations"}, STARTS_S)
                count = answer.pop("count")
                session.record(
                    workload,
                    subject,
                    0,
                    bytes=answer["bytes"] / count,
                    allocations=answer["allocations"] / count if "allocations" in answer else None,
                    counted=answer["counted"],
                    ours=subject.kind == OURS,
                )
            finally:
                end(process)


def _with_heap(command: Sequence[str]) -> list[str]:
    return [command[0], *HEAP, *command[1:]] if Path(command[0]).name == "node" else list(command)
