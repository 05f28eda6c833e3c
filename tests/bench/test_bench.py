"""The benchmark itself works: every workload gives figures, and hangs and failures are reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench import page
from bench.process import Failed, Process
from bench.results import Results
from bench.session import SMOKE, Session
from bench.subjects import TARGET
from bench.targets import TARGETS
from bench.workload import READERS, SEMAPHORE, WORKLOADS
from support.process import python


@pytest.mark.test_all("it runs each workload, which no promise is about", gate=True)
@pytest.mark.timeout(180)
def test_every_workload_gives_figures(tmp_path: Path) -> None:
    only = {"python-sync", "node"}
    command = [*python("bench.bench"), "--smoke", "--only", ",".join(sorted(only)), "--out", str(tmp_path)]
    # The figures do not matter here.
    command += ["--programs", str(TARGET / "debug")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = Results.read(tmp_path / page.NUMBERS)
    assert results.failures == []
    left_out = {"calls"} if results.data["notes"] else set()
    for workload in (w for w in WORKLOADS if not w.long_only and w.name not in left_out):
        expected = {"bare-scripts"} if workload.name == "script" else only
        assert expected <= set(results.ranking(workload)), f"{workload.name}\n{ran.stdout}"
        assert (tmp_path / f"{workload.name}.svg").exists() == workload.drawn
    shared = [turn for turn in results.data["turns"] if turn["workload"].startswith(SEMAPHORE)]
    assert all(0 < turn["holders"] <= turn["permits"] for turn in shared)
    read = [turn for turn in results.data["turns"] if turn["workload"] == f"{READERS}-writers"]
    assert all(turn["reads"] and turn["writes"] and not turn["intruded"] for turn in read)
    for target in (t for t in TARGETS if t.ours.subject in only and not t.ours.place[0].long_only):
        beside_itself = target.by is None or target.by.subject == target.ours.subject
        assert (target.value(results) is not None) == beside_itself, target
    assert "## Where a peer is ahead\n\n" in (tmp_path / "RESULTS.md").read_text()


def test_clients_are_kept_apart_from_servers_where_a_workload_asks_for_it() -> None:
    # On a machine with one core, they share it.
    mine = os.sched_getaffinity(0)

    def places(session: Session) -> tuple[set[int], set[int]]:
        (server,) = session.one
        return os.sched_getaffinity(0), os.sched_getaffinity(server.pid)

    with Session(SMOKE, [], 1, "each") as session:
        with session.placed("apart"):
            assert places(session) == (mine - {max(mine)} or mine, {max(mine)})
        assert places(session) == (mine, mine)
        with session.placed("free"):
            assert places(session) == (mine, mine)
    with Session(SMOKE, [], 1, "one") as session, session.placed("apart"):
        assert places(session) == ({max(mine)}, {max(mine)})
    assert os.sched_getaffinity(0) == mine


def worker(program: str) -> Process:
    return Process([sys.executable, "-c", program])


def test_who_hangs_is_given_up() -> None:
    with worker("input(); input()") as process, pytest.raises(Failed, match=r"^no answer for \d s$"):
        process.ask({"op": "pairs"}, 0.1)


def test_who_ends_says_why() -> None:
    with worker("input(); raise SystemExit('no memory')") as process, pytest.raises(Failed, match=r": no memory$"):
        process.ask({"op": "pairs"}, 20)


def test_an_error_is_no_answer() -> None:
    with worker("""print('{"error": "denied"}')""") as process, pytest.raises(Failed, match=r"^denied$"):
        process.answer(20)
