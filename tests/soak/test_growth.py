"""Nothing grows: not the process, its descriptors and threads, nor the servers' memory, connections and keys."""

from __future__ import annotations

import pytest

from soak.soak import LANGUAGES, LIVE_ALLOWED, Growth, Programs

SHORT = 0.001

TURNS = {"cycle": 1_000_000, "wait": 100_000, "names": 100_000, "clients": 10_000, "cancel": 100_000}
"""At full scale."""

LEAST = {"cycle": 2_400, "wait": 1_200, "names": 600, "clients": 240, "cancel": 1_200}
"""At any scale."""

NODES = {"cycle": 1, "wait": 1, "names": 5, "clients": 1, "cancel": 5}

CANCELLED_NAMES = 11
"""How many names the workers use that cancel."""

WAITERS = 4
"""How many threads or tasks want the same lock."""

BLOCKING = {"rust-blocking", "python"}
"""The faces whose calls run where their caller is."""

CASES = [
    (work, face) for work in TURNS for face in LANGUAGES if work != "cancel" or face in {"rust", "asyncio", "node"}
]


@pytest.mark.parametrize(("work", "face"), CASES)
def test_nothing_grows(programs: Programs, pytestconfig: pytest.Config, work: str, face: str) -> None:
    """Repeated actions leave nothing behind."""
    count = max(LEAST[work], int(TURNS[work] * (pytestconfig.getoption("--scale") or SHORT)))
    with programs.nodes(NODES[work]) as nodes, programs.worker(face, work, nodes) as worker:
        growth = Growth(worker, nodes, LIVE_ALLOWED[LANGUAGES[face]])
        if work == "names":
            growth.names = lambda turns: turns
        elif work == "wait" and face in BLOCKING:
            growth.late_runtimes = WAITERS - 1
        elif work == "cancel":
            growth.names = lambda _: CANCELLED_NAMES
        growth.judge(count)
        worker.end()
