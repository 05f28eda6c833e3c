"""A crowd of blocking threads gives back what it took: connections and descriptors."""

from __future__ import annotations

import pytest

from soak.soak import RUNTIME_DESCRIPTORS, falls, started_worker, told
from support.servers import Cluster

NODES = 5

CROWD = 64
"""How many threads acquire at once, as in the workers."""

TURNS = 10 * CROWD

MAX_CONNECTIONS = 8
"""By default, to each node, for threads that drive themselves."""

BACKGROUND = 2
"""The background's connections to each node."""

OWN = 1
"""The connection of this test to each node."""

IDLE_S = 20
"""Longer than runtimes may be idle, and until that is seen."""


REST = 5
"""The timer that runs while the machine sleeps, tokio's pair of sockets for signals, and Python's events for losses and
for what is logged."""


@pytest.mark.test_all("it waits for longer than connections may be idle")
@pytest.mark.parametrize("face", ["rust-blocking", "python"])
def test_a_crowd_gives_back_what_it_took(face: str) -> None:
    """During the rush no more than `max_connections` and the background's, afterwards one runtime is left."""
    with Cluster(NODES) as nodes, started_worker(face, "crowd", nodes) as worker:

        def counts() -> dict[str, int]:
            return {"connections": told(nodes, "connected_clients"), "descriptors": worker.descriptors()}

        worker.perform(0)
        left = NODES * (1 + BACKGROUND)
        most = {
            "connections": left + NODES * OWN,
            # The runtime of one blocking caller, and the background's.
            "descriptors": worker.descriptors() + left + 2 * RUNTIME_DESCRIPTORS + REST,
        }
        for _ in range(2):
            worker.perform(TURNS)
            assert counts()["connections"] <= NODES * (MAX_CONNECTIONS + BACKGROUND + OWN)
            falls(counts, most, IDLE_S)
        worker.end()
