"""Cancelled calls leave no key: acquires and releases of all shapes, at random moments, while nodes freeze."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Self

import pytest

from soak.soak import cases, empties, lock_keys, started_worker
from support.servers import Cluster

pytestmark = pytest.mark.test_all("a leak takes hundreds of turns to show", gate=True)

SHORT = 0.1

CANCELS = {"rust": 10_000, "asyncio": 10_000, "node": 10_000}
"""The number of cancels at full scale. `python/tests/test_signals.py` ends calls of the face `python` by Ctrl-C."""

BATCHES = {"rust": 1_000, "asyncio": 1_000, "node": 1_000}
"""The number of cancels until the servers are replaced and must be empty. It is reached before the ttl of the first
lock ends, so that no key can hide by expiring, and before a node has more pending releases than the limit."""

# A node is frozen for up to twice the node_timeout of the workers, and then left alone for a while.
FROZEN_S = 0.4
THAWED_S = 0.6


WANTED = ("won", "releases_cancelled")
"""What has to happen at least once."""

MORE = 20
"""How many times as many calls are cancelled at most until all of that has happened."""


class Freezing:
    """Freezes and thaws nodes at random until it is left."""

    def __init__(self, nodes: Cluster, seed: int) -> None:
        self._nodes, self._random = nodes, random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(THAWED_S * self._random.random()):
            node = self._random.choice(list(self._nodes))
            node.freeze()
            self._over.wait(FROZEN_S * self._random.random())
            node.thaw()


@pytest.mark.parametrize(
    "n",
    [
        pytest.param(1, id="one node", marks=pytest.mark.test_all("five nodes need more of the same")),
        pytest.param(5, id="five nodes"),
    ],
)
@pytest.mark.parametrize(("work", "shape", "face"), cases("cancel", faces=list(CANCELS)))
def test_cancelled_calls_leave_no_key(pytestconfig: pytest.Config, work: str, shape: str, face: str, n: int) -> None:
    """Once the servers answer, they have no keys of locks: cancelled locks are released, and not left to expire."""
    count = int(CANCELS[face] * (pytestconfig.getoption("--scale") or SHORT))
    happened: Counter[str] = Counter()

    def is_enough() -> bool:
        # On a fast machine, few releases take long enough to be cancelled.
        is_all = all(happened[what] for what in WANTED)
        return happened["cancelled"] >= (count if is_all else MORE * count)

    while not is_enough():
        seed = happened["cancelled"]
        with Cluster(n) as nodes, started_worker(face, work, nodes, shape=shape) as worker:
            worker.turns.dice.seed(seed)
            with Freezing(nodes, seed):
                left = count - happened["cancelled"]
                happened.update(worker.perform(min(BATCHES[face], left if left > 0 else count)))
            empties(nodes)
            worker.end()
            assert lock_keys(nodes) == 0
        print(f"{worker.label}, of {count}: {dict(happened)}", flush=True)
    for what in WANTED:
        assert happened[what], f"it never happened: {what}"
