"""Planted faults are found: a judge that never complains proves nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from chaos.chaos import ARENAS
from chaos.planted import PLANTED
from support.process import python


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.parametrize("arena", ARENAS)
def test_planted_fault_is_found(tmp_path: Path, arena: str, fault: str) -> None:
    if not (PLANTED[fault].language or ARENAS[arena].has_ways):
        pytest.skip("it cannot be planted there")
    given = ["--arena", arena, "--seed", "1", "--seconds", "180", "--fail-fast", "--fault", fault]
    command = [*python("chaos.chaos"), "--out", str(tmp_path), *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = re.findall(r"^ (\w[\w ]*\w) +BAD ", done.stdout, re.M)
    assert set(broken) & set(PLANTED[fault].found), done.stdout
