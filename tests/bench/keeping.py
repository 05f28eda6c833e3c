"""While nothing happens: many held and renewed locks, and many waiters."""

from __future__ import annotations

import time

from bench.nodes import Nodes
from bench.process import Failed, Json, Process
from bench.session import LIMIT_S, Session
from bench.subjects import Subject

FILLS_S = 60.0
"""How long it may take to acquire all of them."""

FOR_EVER_MS = 600_000
"""Longer than any worker is watched."""


def holding(session: Session, workload: str) -> None:
    """One process that holds many locks, each renewed in the background."""
    ttl_ms = session.form.hold_ttl_ms
    for subject in (subject for subject in session.able(waits=True) if subject.renews):
        session.one.empty()
        with session.crew(workload, lambda _: [session.one.urls], [subject], ttl_ms=ttl_ms) as crew:
            for there in crew.shuffled():
                with crew.trying(there) as (process,):
                    _hold(session, workload, there, process)


def _hold(session: Session, workload: str, subject: Subject, process: Process) -> None:
    locks, prefix = session.form.locks, f"{workload}:{subject.name}:"
    process.ask({"op": "pairs", "names": ["warm"], "count": 10}, LIMIT_S)
    memory = process.memory()
    process.ask({"op": "hold", "prefix": prefix, "count": locks}, FILLS_S)
    # After a whole ttl, every subject has had to renew every lock, and locks that are not renewed have expired.
    seen = _watch(process, session.one, session.form.hold_ttl_ms / 1000)
    kept = session.one.locks(prefix)
    session.record(
        workload,
        subject,
        0,
        locks=locks,
        kept=kept,
        grown=seen["memory"] - memory,
        **seen,
    )


def waiting(session: Session, workload: str) -> None:
    """One process with many waiters for one lock, which another process holds."""
    for subject in session.able(waits=True):
        session.one.empty()
        with session.crew(workload, lambda _: [session.one.urls] * 2, [subject], ttl_ms=FOR_EVER_MS) as crew:
            for there in crew.shuffled():
                with crew.trying(there) as (holder, process):
                    _wait(session, workload, there, holder, process)


def _wait(session: Session, workload: str, subject: Subject, holder: Process, process: Process) -> None:
    form, name = session.form, f"{workload}:{subject.name}"
    holder.ask({"op": "acquire", "name": name}, LIMIT_S)
    process.ask({"op": "pairs", "names": ["warm"], "count": 10}, LIMIT_S)
    memory = process.memory()
    process.ask({"op": "wait", "names": [name] * form.waiters}, FILLS_S)
    _settle(process)
    seen = _watch(process, session.one, form.window_s)
    session.record(workload, subject, 0, waiters=form.waiters, grown=seen["memory"] - memory, **seen)


def _settle(process: Process) -> None:
    """Waits until the waiters have begun: their first burst has ended when the memory does not grow any more."""
    memory, deadline = -1, time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        process.ask({"op": "usage"}, FILLS_S)
        time.sleep(0.25)
        now = process.memory()
        if now - memory < 1 << 16:
            return
        memory = now


def _watch(process: Process, nodes: Nodes, seconds: float) -> Json:
    counted, before, begun_ns = nodes.count(), process.ask({"op": "usage"}, LIMIT_S), time.monotonic_ns()
    time.sleep(seconds)
    after, ended_ns = process.ask({"op": "usage"}, LIMIT_S), time.monotonic_ns()
    done = nodes.count().since(counted)
    if not process.alive:
        raise Failed("ended while it was watched")
    return {
        "wall_ns": ended_ns - begun_ns,
        "cpu_ns": after["cpu_ns"] - before["cpu_ns"],
        "memory": process.memory(),
        **done.shown,
    }
