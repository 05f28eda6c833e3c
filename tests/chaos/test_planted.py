"""Planted faults are found: a judge that never complains proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.planted import PLANTED
from chaos.played import broken, played


@pytest.mark.test_all("each planted fault takes a run of up to three minutes")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("arena", "fault"), [(arena, fault) for fault in PLANTED for arena in PLANTED[fault].arenas])
def test_planted_fault_is_found(tmp_path: Path, arena: str, fault: str) -> None:
    given = ["--arena", arena, "--seed", "1", "--seconds", "180", "--fail-fast", "--fault", fault]
    done = played(tmp_path, *given)
    assert done.returncode == 1, done.stdout + done.stderr
    assert broken(done.stdout) & set(PLANTED[fault].found), done.stdout
