"""What is made of the numbers is right."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

import page
from counting import total
from figures import Spread, ahead, over_runs, percentile, ratios, unevenness
from nodes import Counters, parse
from subjects import SUBJECTS
from targets import TARGETS, Figure, Target


def test_a_spread_is_made_of_values_that_were_measured() -> None:
    assert Spread.of([3]) == Spread(3, 3, 3)
    assert Spread.of([9, 7, 5, 3, 1, 2, 4, 6, 8, 10]) == Spread(1, 5, 9)
    assert percentile(range(1, 101), 99) == 99
    with pytest.raises(ValueError, match="nothing was measured"):
        Spread.of([])


def test_ratios_are_taken_within_a_round() -> None:
    # The machine is ten times as slow in the second round, and the third was not finished.
    assert ratios({(0, 0): 20, (0, 1): 200, (1, 0): 22}, {(0, 0): 10, (0, 1): 100}) == {(0, 0): 2, (0, 1): 2}


def test_the_median_of_runs_is_that_of_what_each_run_came_to() -> None:
    # The second run was on a slow machine, and had more rounds.
    values = {(0, 0): 1, (0, 1): 2, (0, 2): 3, (1, 0): 50, (1, 1): 60, (1, 2): 70, (1, 3): 80, (1, 4): 90, (2, 0): 4}
    assert over_runs(values, lambda run: percentile(run, 50)) == 4
    assert over_runs(values, max) == 4


def test_who_got_nothing_makes_it_infinitely_unfair() -> None:
    assert unevenness(20, 10) == 2
    assert unevenness(10, 0) == math.inf


@pytest.mark.parametrize(
    ("peer", "ours", "factor"),
    [
        ([10, 100, 10], [20, 200, 20], 2),
        ([10, 10, 10], [10, 10, 10], None),
        ([98, 98, 98], [100, 100, 100], None),
        # Better in the median, and worse in a round.
        ([10, 30, 10], [20, 20, 20], None),
        ([], [20], None),
    ],
)
def test_a_peer_is_ahead_by_more_than_noise(peer: list[float], ours: list[float], factor: float | None) -> None:
    by_round = [{(0, turn): value for turn, value in enumerate(of)} for of in (peer, ours)]
    assert ahead(*by_round) == factor
    assert ahead(*reversed(by_round), more_is_better=True) == factor


INFO = """# CPU
used_cpu_sys:1.5
used_cpu_user:{user}
total_reads_processed:{reads}
cmdstat_set:calls={calls},usec={usec},usec_per_call=1.00,rejected_calls=0,failed_calls=0
cmdstat_evalsha:calls={calls},usec=100,usec_per_call=50.00,rejected_calls=0,failed_calls=0
cmdstat_client|id:calls=1,usec=7,usec_per_call=7.00,rejected_calls=0,failed_calls=0
cmdstat_info:calls=9,usec=900,usec_per_call=100.00,rejected_calls=0,failed_calls=0
"""


def test_a_server_is_asked_what_it_did_in_between() -> None:
    before = parse(INFO.format(user=0.5, reads=10, calls=2, usec=8))
    after = parse(INFO.format(user=0.75, reads=15, calls=5, usec=20))
    assert before.commands == 5
    assert before.script_us == 50
    done = after.since(before)
    assert (done.cpu_us, done.reads, done.calls) == (250_000, 5, {"set": 3, "evalsha": 3})
    assert done.usec["set"] == 12
    assert Counters(calls={"set": 1}, usec={"set": 2}).script_us is None


STRACE = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.002000           4       500           epoll_wait
 40.00    0.001000           2       500        20 read
------ ----------- ----------- --------- --------- ----------------
100.00    0.003000           3      1000        20 total
"""


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (STRACE, 1000),
        (STRACE.replace("        20 total", "           total"), 1000),
        ("# started on Sat\n\n1000,,raw_syscalls:sys_enter,1053704,100.00,,\n", 1000),
        ("<not supported>,,raw_syscalls:sys_enter,0,100.00,,\n", None),
    ],
)
def test_system_calls_are_those_that_a_tracer_counted(text: str, calls: int | None) -> None:
    assert total(text) == calls


def test_the_kept_page_is_what_the_kept_numbers_say() -> None:
    results = page.load()
    assert page.text(results) == page.PAGE.read_text()


def test_every_target_is_a_figure_of_the_tables() -> None:
    for target in TARGETS:
        for figure in filter(None, [target.ours, target.by]):
            workload, column = figure.place
            assert (workload.name, column.title) == (figure.workload, figure.column)
            assert figure.subject in {subject.name for subject in SUBJECTS}


def test_a_target_that_is_missed_is_told() -> None:
    target = Target(
        Figure("tasks", "pairs per s", "node"), 2, Figure("tasks", "pairs per s", "node-redlock"), least=True
    )
    assert target.reached(2)
    assert not target.reached(1.9)
    assert Target(Figure("one", "µs", "node"), 2).reached(1.9)


def test_the_page_has_a_section_for_each_workload() -> None:
    sections = [line for line in page.PAGE.read_text().splitlines() if line.startswith("## ")]
    assert all(a != b for a, b in pairwise(sections))
    assert Path(page.RESULTS).name == "results"
