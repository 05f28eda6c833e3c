"""Whole runs end as they should: bad with a planted fault, because a judge that never complains proves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from chaos import demo
from chaos.arena import PASSWORD
from chaos.chaos import ARENAS
from chaos.demo import CREW, EPOCH
from chaos.nodes import NODES
from chaos.planted import PLANTED
from chaos.schedule import TTL_S
from support.process import python
from support.servers import LIMIT_S

FIRST = ("nodes", "old fence")
REST = [(arena, fault) for fault in PLANTED for arena in ARENAS if (arena, fault) != FIRST]
REPEATED = pytest.mark.test_all("each planted fault takes a run of up to three minutes")

TOKEN = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("arena", "fault"), [FIRST, *(pytest.param(*each, marks=REPEATED) for each in REST)])
def test_planted_fault_is_found(tmp_path: Path, arena: str, fault: str) -> None:
    """And no secret is in the report or in the histories."""
    given = [f"--{arena}", "--seed", "1", "--seconds", "180", "--fault", fault, "--out", str(tmp_path)]
    done = subprocess.run([*python("chaos.chaos"), *given], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert set(re.findall(r"^ (\w[\w ]*\w) +BAD ", done.stdout, re.M)) & set(PLANTED[fault].found), said
    for text in (said, *(file.read_text(encoding="utf-8") for file in tmp_path.iterdir())):
        assert PASSWORD not in text
        assert not TOKEN.search(text)


def played(out: Path, *given: str, seen: Callable[[int], None] = lambda _: None) -> tuple[int, str]:
    """Plays a run; calls `seen` when it is under way. Returns its exit status and output, with nothing left running."""
    command = [*python("chaos.chaos"), "--out", str(out), *given]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout
            said = ""
            while "acquisitions: " not in said:
                said += (line := process.stdout.readline())
                assert line, said
            children = psutil.Process(process.pid).children(recursive=True)
            seen(process.pid)
            said += process.stdout.read()
            process.wait(LIMIT_S)
        finally:
            process.kill()
    assert len(children) > NODES + len(CREW)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    return process.returncode, said


@pytest.mark.test_all("it begins a whole run", gate=True)
@pytest.mark.timeout(120)
def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    # A terminal does the same.
    status, said = played(tmp_path, "--seed", "1", seen=lambda pid: os.killpg(pid, signal.SIGINT))
    assert status == 130, said
    assert said.endswith("stopped; nothing is left running\n")


@pytest.mark.test_all("make demo plays it", gate=True)
@pytest.mark.timeout(180)
def test_the_demo_goes_through_all_troubles(tmp_path: Path) -> None:
    status, said = played(tmp_path, "--demo")
    assert status == 0, said
    assert said.rstrip().endswith("OK: every promise was kept.")
    words = " ".join(said.split())
    for trouble in EPOCH.troubles:
        assert all(word in words for word in demo.WORDS[trouble.kind]), said
    assert f"worker 1 (Rust) holds the lock for longer than its ttl of {TTL_S:g} s" in words, said
    for worker in ("worker 2 (Rust)", "worker 3 (Python)", "worker 5 (Node)"):
        assert f"{worker} is told that its lock is lost" in words, said
        assert f"the store refuses the late write of {worker}" in words, said
