"""Planted faults are found: a judge that never complains proves nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from chaos.planted import PLANTED
from support.process import python


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("arena", "fault"), [(arena, fault) for fault in PLANTED for arena in PLANTED[fault].arenas])
def test_planted_fault_is_found(tmp_path: Path, arena: str, fault: str) -> None:
    given = ["--arena", arena, "--seed", "1", "--seconds", "180", "--fail-fast", "--fault", fault]
    command = [*python("chaos.chaos"), "--out", str(tmp_path), *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = re.findall(r"^ (\w[\w ]*\w) +BAD ", done.stdout, re.M)
    assert set(broken) & set(PLANTED[fault].found), done.stdout
