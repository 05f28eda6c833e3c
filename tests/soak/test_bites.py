"""The soak finds leaks: a judge that never complains proves nothing."""

from __future__ import annotations

import pytest

from conformance.driver import FACES
from soak.soak import LIVE_ALLOWED, Growth, empties, lock_keys, started_worker
from support.servers import Cluster

TURNS = 2_400

LIMIT_S = 1.0
"""A key that is not released within this time is leaked."""

REPEATED = pytest.mark.test_all("a leak of this kind is found on another face")


@pytest.mark.parametrize(
    "face", ["rust", *(pytest.param(face, marks=REPEATED) for face in ("python", "node"))], ids=lambda face: face
)
def test_leak_is_found(face: str) -> None:
    """A worker that leaks does not pass. Each language has its own count."""
    with Cluster(1) as nodes, started_worker(face, "cycle", nodes) as worker:
        worker.turns.leak = "memory"
        with pytest.raises(AssertionError, match="too many live"):
            Growth(worker, nodes, LIVE_ALLOWED[FACES[face].language], limit_s=LIMIT_S).judge(TURNS)


@pytest.mark.parametrize("shape", ["one", pytest.param("shared", marks=REPEATED)])
def test_forgotten_release_is_found(shape: str) -> None:
    """A worker that does not release what it won leaves keys."""
    with Cluster(1) as nodes, started_worker("rust", "cancel", nodes, shape=shape) as worker:
        worker.turns.leak = "keys"
        worker.perform(20)
        with pytest.raises(AssertionError, match="too many lock keys"):
            empties(nodes, LIMIT_S)


def test_forgotten_reader_is_found_among_others() -> None:
    """The key of a shared lock is there in any case, so everybody counts who shares it."""
    with Cluster(1) as nodes:
        nodes[0].command("ZADD", "name", "inf", "redlock:shared:7", 1, "one")
        assert lock_keys(nodes) == 1
        nodes[0].command("ZADD", "name", 2, "two")
        assert lock_keys(nodes) == 2
