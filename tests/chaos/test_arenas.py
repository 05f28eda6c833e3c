"""A run is good in each arena whose node is a group of servers, and finds a planted fault there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chaos.planted import PLANTED
from chaos.played import broken, played


@pytest.mark.test_all("a run of an arena takes half a minute")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("arena", "what", "kind"),
    [
        ("cluster", "a cluster of 3 shards with a replica each", "freeze primary"),
        ("sentinel", "a primary with a replica and 3 sentinels", "planned failover"),
    ],
)
def test_a_real_run_is_good(tmp_path: Path, arena: str, what: str, kind: str) -> None:
    done = played(tmp_path, "--arena", arena, "--seed", "1", "--seconds", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    assert what in done.stdout
    assert re.search(rf"{kind} +[1-9]", done.stdout), done.stdout


@pytest.mark.test_all("a run of an arena takes half a minute")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("arena", "fault", "seed"), [("cluster", "no quarantine", 7), ("sentinel", "validity", 1)])
def test_a_planted_fault_is_found(tmp_path: Path, arena: str, fault: str, seed: int) -> None:
    done = played(tmp_path, f"--{arena}", "--fault", fault, "--seed", str(seed), "--seconds", "20", "--fail-fast")
    assert done.returncode == 1, done.stdout + done.stderr
    assert broken(done.stdout) & set(PLANTED[fault].found), done.stdout
