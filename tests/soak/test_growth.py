"""Nothing grows: not the process, its descriptors and threads, nor the servers' memory, connections and keys."""

from __future__ import annotations

import pytest

from conformance.driver import FACES
from soak.soak import LIVE_ALLOWED, NAMED, Growth, cases, started_worker
from support.servers import Cluster

pytestmark = pytest.mark.test_all("a leak takes hundreds of turns to show", gate=True)

SHORT = 0.001

TURNS = {"cycle": 1_000_000, "wait": 100_000, "names": 100_000, "clients": 10_000, "drop": 100_000, "cancel": 100_000}
"""At full scale. A lock of another shape than one name takes a tenth of them."""

LEAST = {"cycle": 2_400, "wait": 1_200, "names": 600, "clients": 240, "drop": 600, "cancel": 1_200}
"""At any scale with `--all`. `make gate` takes a quarter of them."""

NODES = {"cycle": 1, "wait": 1, "names": 5, "clients": 1, "drop": 5, "cancel": 5}

CANCELLED_NAMES = {"one": 11, "set": 11, "slot": 4, "term": 3, "shared": 3}
"""How many keys may stay of what the workers use that cancel."""

WAITERS = 4
"""How many threads or tasks want the same lock."""

BLOCKING = {"rust-blocking", "python"}
"""The faces whose calls run where their caller is."""

CASES = [
    *cases("cycle"),
    *cases("wait"),
    *cases("names", ["one", "set", "shared"]),
    *cases("clients", ["one"]),
    # Elsewhere a lock stays held if its object is dropped.
    *cases("drop", shapes=["set", "slot", "shared"], faces=["rust", "rust-blocking"]),
    *cases("cancel", faces=["rust", "asyncio", "node"]),
]


@pytest.mark.parametrize(("work", "shape", "face"), CASES)
def test_nothing_grows(pytestconfig: pytest.Config, work: str, shape: str, face: str) -> None:
    """Repeated actions leave nothing behind."""
    scale = pytestconfig.getoption("--scale") or SHORT
    least = LEAST[work] // (1 if pytestconfig.getoption("--all") else 4)
    count = max(least, int(TURNS[work] * scale / (1 if shape == "one" else 10)))
    with Cluster(NODES[work]) as nodes, started_worker(face, work, nodes, shape=shape) as worker:
        growth = Growth(worker, nodes, LIVE_ALLOWED[FACES[face].language], names=lambda _: NAMED[shape])
        if work in ("names", "drop"):
            growth.names = lambda turns: turns * NAMED[shape]
        elif work == "wait" and face in BLOCKING:
            growth.late_runtimes = WAITERS - 1
        elif work == "cancel":
            growth.names = lambda _: CANCELLED_NAMES[shape]
        growth.judge(count)
        worker.end()
