"""The soak finds leaks: a judge that never complains proves nothing."""

from __future__ import annotations

import pytest

from conformance.driver import FACES
from soak.soak import LIVE_ALLOWED, Growth, Programs, empties, lock_keys

TURNS = 2_400

LIMIT_S = 1.0
"""A key that is not released within this time is leaked."""

GROWTH_LIMIT_S = 4.0
"""The same where other things are counted too, so that a release that is late is not told beside the leak."""

REPEATED = pytest.mark.test_all("a leak of this kind is found on another face")


@pytest.mark.parametrize(
    ("face", "leak", "found"),
    [
        ("rust", "keys", "too many lock keys"),
        ("rust", "descriptors", "too many descriptors, connections"),
        # Each language has its own count.
        ("rust", "memory", "too many live"),
        pytest.param("python", "memory", "too many live", marks=REPEATED),
        pytest.param("node", "memory", "too many live", marks=REPEATED),
    ],
)
def test_leak_is_found(programs: Programs, face: str, leak: str, found: str) -> None:
    """A worker that leaks does not pass."""
    with programs.nodes(1) as nodes, programs.worker(face, "cycle", nodes) as worker:
        worker.turns.leak = leak
        growth = Growth(worker, nodes, LIVE_ALLOWED[FACES[face].language], limit_s=GROWTH_LIMIT_S)
        with pytest.raises(AssertionError, match=found):
            growth.judge(TURNS)


@pytest.mark.parametrize("shape", ["one", pytest.param("shared", marks=REPEATED)])
@pytest.mark.parametrize("face", ["rust", *(pytest.param(face, marks=REPEATED) for face in ("asyncio", "node"))])
def test_forgotten_release_is_found(programs: Programs, face: str, shape: str) -> None:
    """A worker that does not release what it won leaves keys."""
    with programs.nodes(1) as nodes, programs.worker(face, "cancel", nodes, shape=shape) as worker:
        worker.turns.leak = "keys"
        worker.perform(20)
        with pytest.raises(AssertionError, match="too many lock keys"):
            empties(nodes, LIMIT_S)


def test_forgotten_reader_is_found_among_others(programs: Programs) -> None:
    """The key of a shared lock is there in any case, so everybody counts who shares it."""
    with programs.nodes(1) as nodes:
        nodes[0].command("ZADD", "name", "inf", "redlock:shared:7", 1, "one")
        assert lock_keys(nodes) == 1
        nodes[0].command("ZADD", "name", 2, "two")
        assert lock_keys(nodes) == 2
