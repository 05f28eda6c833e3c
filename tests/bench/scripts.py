"""The server's own cost of an acquire: by our script, by a plainly written one, and by SET NX PX alone."""

from __future__ import annotations

from bench.process import Process
from bench.session import LIMIT_S, Session

SCRIPTS = ("ours", "fenced", "set")

AT_ONCE = 200
"""How many acquires are sent together: the server does nothing but run them."""

ROUNDS = 40
"""A round takes some milliseconds."""


def script(session: Session, workload: str) -> None:
    """Acquires of free locks whose fences are known, all of them sent at once."""
    subjects = [subject for subject in session.subjects if subject.name == "bare-scripts"]
    session.one.empty()
    with session.crew(workload, lambda _: [session.one.urls], subjects) as crew:
        for subject in crew.shuffled():
            with crew.trying(subject) as (process,):
                # These locks create the fence keys.
                _round(session, workload, process)
                for turn in range(ROUNDS):
                    session.record(workload, subject, turn, **_round(session, workload, process))


def _round(session: Session, workload: str, process: Process) -> dict[str, float | None]:
    """How long each script took, by the server's own count."""
    took = {}
    for name in session.random.sample(SCRIPTS, len(SCRIPTS)):
        names = [f"{workload}:{name}:{i}" for i in range(AT_ONCE)]
        with session.counted(session.one) as count:
            process.ask({"op": "script", "script": name, "names": names}, LIMIT_S)
        took[f"{name}_us"] = count.done.script_us
    return took
