"""The benchmark itself works: every workload gives figures, and they are compared as the page says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import page
from bench.figures import ahead, over_runs, percentile
from bench.results import Results
from bench.subjects import TARGET
from bench.workload import WORKLOADS
from support.process import python


@pytest.mark.test_all("it runs each workload, which no promise is about", gate=True)
@pytest.mark.timeout(180)
def test_every_workload_gives_figures(tmp_path: Path) -> None:
    only = {"python-sync", "node", "rust-async"}
    command = [*python("bench.bench"), "--smoke", "--only", ",".join(sorted(only)), "--out", str(tmp_path)]
    # The figures do not matter here.
    command += ["--programs", str(TARGET / "debug")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = Results.read(tmp_path / page.NUMBERS.name)
    assert results.failures == []
    for workload in (workload for workload in WORKLOADS if not workload.long_only):
        assert only <= set(results.ranking(workload)), f"{workload.name}\n{ran.stdout}"
    assert "## Where a peer is ahead\n\n" in (tmp_path / page.PAGE.name).read_text()


def test_the_kept_page_is_what_the_kept_numbers_say() -> None:
    assert page.text(Results.read(page.NUMBERS)) == page.PAGE.read_text()


def test_the_median_of_runs_is_that_of_what_each_run_came_to() -> None:
    # The second run was on a slow machine, and had more rounds.
    values = {(0, 0): 1, (0, 1): 2, (0, 2): 3, (1, 0): 50, (1, 1): 60, (1, 2): 70, (1, 3): 80, (1, 4): 90, (2, 0): 4}
    assert over_runs(values, lambda run: percentile(run, 50)) == 4


def test_a_peer_is_ahead_if_it_is_better_in_nearly_every_round() -> None:
    ours = {(0, i): 106 for i in range(10)}
    assert ahead(dict.fromkeys(ours, 100), ours)
    assert not ahead(dict.fromkeys(ours, 102), ours)
    assert not ahead(ours, dict.fromkeys(ours, 100))
    assert ahead(ours, dict.fromkeys(ours, 100), more_is_better=True)
    assert not ahead(dict.fromkeys(ours, 100) | {(0, 0): 110, (0, 1): 110}, ours)
