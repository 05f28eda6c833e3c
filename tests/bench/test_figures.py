"""The figures from the numbers are right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from bench import bench, page
from bench.counting import total
from bench.figures import Spread, ahead, over_runs, percentile, ratios, still_faster, unevenness
from bench.nodes import Counters, parse
from bench.process import Json
from bench.results import Results
from bench.subjects import SUBJECTS
from bench.targets import RUST, TARGETS, THREADS, Figure, Target
from bench.workload import CPU, WORKLOADS, chosen


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


def test_a_subject_is_warm_once_its_last_turns_were_not_faster() -> None:
    assert still_faster([])
    assert still_faster([9, 5, 5])
    assert still_faster([9, 9, 9, 5])
    assert still_faster([9, 9, 5, 9, 9]), "one of the last three"
    assert not still_faster([9, 5, 5, 5, 5])
    assert not still_faster([100, 98, 99, 101]), "that is noise"


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


def turn(workload: str, subject: str, us: int, *, run: int = 0, **more: float) -> Json:
    """One pair that took so long."""
    spent = dict.fromkeys(("cpu_ns", "server_cpu_us", "requests", "commands", "script_us", "p99_ns", "most_ns"), 0)
    where = {"workload": workload, "subject": subject, "run": run, "round": 0}
    return {**spent, **where, "count": 1, "wall_ns": us * 1000, **more}


def results(*turns: Json, failures: Sequence[Json] = ()) -> Results:
    """Those of a run with nothing else in it."""
    return Results({**page.load().data, "turns": turns, "failures": failures})


def test_the_page_says_which_target_is_missed_and_why_once() -> None:
    text = page.text(
        results(
            # Two targets are missed for the same reason, and one is reached. The others were not measured.
            *(turn("one", "rust-async", 123), turn("one", "rslock", 100)),
            *(turn("one", "rust-blocking", 130), turn("one", "bare", 100)),
            *(turn("one", "python-sync", 50), turn("one", "redis-py", 100)),
        )
    )
    rows = [line for line in text.splitlines() if " | at most " in line or " | at least " in line]
    assert [row.split(", redlock · ")[1] for row in rows] == [
        "Rust, by rslock | at most 1.05 | 1.23 | **missed** |",
        "Rust, blocking, by bare socket | at most 1.25 | 1.30 | **missed** |",
        "Python, by redis-py | at most 0.6 | 0.50 |  |",
    ]
    assert text.count(RUST) == 1
    assert THREADS not in text


def test_the_share_of_the_kernel_is_that_of_all_rounds_and_is_left_out_where_it_was_not_counted() -> None:
    one = next(workload for workload in WORKLOADS if workload.name == "one")
    cpu, kernel = CPU
    counted = results(
        turn("one", "bare", 9) | {"round": 1},
        turn("one", "node", 9, user_s=0.02, kernel_s=0.06) | {"round": 1},
        turn("one", "node", 9, user_s=0.03, kernel_s=0.01) | {"round": 2},
        # Over before the clock has moved.
        turn("one", "node", 9, user_s=0.0, kernel_s=0.0) | {"round": 3},
    )
    assert counted.figure(one, kernel, "node") == 50
    assert f"| {cpu.title} | {kernel.title} |" in page.text(counted)
    assert kernel.title not in _table_heads(page.text(results(turn("one", "bare", 9), turn("one", "node", 9))))


def _table_heads(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.startswith("|  |"))


def test_what_takes_long_is_measured_once_and_in_the_long_form_alone() -> None:
    long = {workload.name for workload in WORKLOADS if workload.long_only}
    assert long == {"contention64", "holding10000", "growth"}
    names = [{workload.name for workload in chosen([], form, run)} for form, run in (("long", 0), ("long", 1))]
    assert names[0] - names[1] == long
    assert chosen([], "short", 0) == chosen([], "long", 1)
    # It is measured if `only` names it.
    assert [workload.name for workload in chosen(["growth", "node"], "short", 1)] == ["growth"]


def test_a_failure_is_counted_by_the_runs_that_measured_the_workload() -> None:
    failed = [{"workload": name, "subject": "pottery", "run": 0, "seen": "hung"} for name in ("one", "growth")]
    seen = results(turn("one", "node", 9), turn("one", "node", 9, run=1), failures=failed)
    one, growth = (next(workload for workload in WORKLOADS if workload.name == name) for name in ("one", "growth"))
    assert seen.failure(one, "pottery") == "hung (in 1 of 2 runs)"
    assert seen.failure(growth, "pottery") == "hung"


@pytest.mark.parametrize(
    ("words", "runs", "kept"),
    [
        ("--long", 5, True),
        ("", 1, False),
        ("--runs 3", 3, False),
        ("--long --only node", 5, False),
        ("--smoke", 1, False),
    ],
)
def test_only_the_whole_long_form_is_kept(words: str, runs: int, *, kept: bool) -> None:
    args = bench.parse(words.split())
    assert args.runs == runs
    assert (bench.place(args) == (page.RESULTS, page.PAGE)) == kept


def test_the_page_has_a_section_for_each_workload() -> None:
    sections = [line for line in page.PAGE.read_text().splitlines() if line.startswith("## ")]
    assert all(a != b for a, b in pairwise(sections))
    assert Path(page.RESULTS).name == "results"
