"""The figures from the numbers are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from bench import bench, page
from bench.counting import total
from bench.figures import intruded, occupied, over_runs, percentile, still_faster
from bench.nodes import Counters, parse
from bench.process import Json
from bench.results import Results
from bench.session import LONG
from bench.sharing import READERSHIP, obstacle
from bench.subjects import OURS, SUBJECTS
from bench.targets import TARGETS
from bench.workload import WORKLOADS, chosen


def test_the_median_of_runs_is_that_of_what_each_run_came_to() -> None:
    # The second run was on a slow machine, and had more rounds.
    values = {(0, 0): 1, (0, 1): 2, (0, 2): 3, (1, 0): 50, (1, 1): 60, (1, 2): 70, (1, 3): 80, (1, 4): 90, (2, 0): 4}
    assert over_runs(values, lambda run: percentile(run, 50)) == 4
    assert over_runs(values, max) == 4
    assert over_runs(values, max, worst=True) == 90


def test_a_subject_is_warm_once_its_last_turns_were_not_faster() -> None:
    assert still_faster([])
    assert still_faster([9, 5, 5])
    assert still_faster([9, 9, 9, 5])
    assert still_faster([9, 9, 5, 9, 9]), "one of the last three"
    assert not still_faster([9, 5, 5, 5, 5])
    assert not still_faster([100, 98, 99, 101]), "that is noise"


@pytest.mark.parametrize(
    ("holds", "busy", "most"),
    [
        ([], 0, 0),
        # One follows the other at the same instant.
        ([(10, 20), (20, 30)], 20, 1),
        ([(10, 20), (15, 30)], 25, 2),
        # They began before, or end after.
        ([(0, 15), (90, 200)], 15, 1),
        # The third holder has no slot.
        ([(10, 20), (10, 20), (12, 14)], 20, 3),
    ],
)
def test_slots_are_busy_while_tasks_hold_them(holds: list[tuple[int, int]], busy: int, most: int) -> None:
    assert occupied(holds, 10, 100, 2) == (busy, most)


@pytest.mark.parametrize(
    ("reads", "writes", "count"),
    [
        ([], [], 0),
        # Readers hold it together, and a writer between them, at the same instants.
        ([(10, 20), (10, 25), (30, 40)], [(25, 30)], 0),
        # The reader began before, ends after, or both; or it is inside.
        ([(10, 26)], [(25, 30)], 1),
        ([(29, 40)], [(25, 30)], 1),
        ([(10, 40)], [(25, 30)], 1),
        ([(27, 28)], [(25, 30)], 1),
        ([(25, 30)], [(25, 30)], 1),
        # One reader that has held it for long is beside both, and another one in between is not.
        ([(10, 40), (11, 12)], [(15, 20), (25, 30)], 2),
        # Two writers.
        ([], [(10, 20), (19, 30), (30, 40)], 2),
    ],
)
def test_a_writer_is_alone(reads: list[tuple[int, int]], writes: list[tuple[int, int]], count: int) -> None:
    assert intruded(reads, writes) == count
    assert intruded(reads[::-1], writes[::-1]) == count


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


def turn(workload: str, subject: str, us: int, *, run: int = 0, **more: float) -> Json:
    """One pair that took so long."""
    spent = dict.fromkeys(("cpu_ns", "server_cpu_us", "requests", "commands", "script_us", "p99_ns", "most_ns"), 0)
    where = {"workload": workload, "subject": subject, "run": run, "round": 0}
    return {**spent, **where, "count": 1, "wall_ns": us * 1000, **more}


def results(*turns: Json, failures: Sequence[Json] = ()) -> Results:
    """Those of a run with nothing else in it."""
    alone = {"form": asdict(LONG), "later": [], "left_out": []}
    return Results({**page.load().data, **alone, "turns": turns, "failures": failures})


def test_what_takes_long_is_measured_once_and_in_the_long_form_alone() -> None:
    long = {workload.name for workload in WORKLOADS if workload.long_only}
    assert long == {"contention64", "semaphore-crowd", "holding10000", "growth"}
    names = [{workload.name for workload in chosen([], form, run)} for form, run in (("long", 0), ("long", 1))]
    assert names[0] - names[1] == long
    assert chosen([], "short", 0) == chosen([], "long", 1)
    # It is measured if `only` names it.
    assert [workload.name for workload in chosen(["growth", "node"], "short", 1)] == ["growth"]


@pytest.mark.parametrize(
    ("form", "run", "names"),
    [("short", 0, ["one", "five"]), ("long", 0, ["one", "five", "crowd"]), ("long", 1, ["one", "five"])],
)
def test_a_family_is_what_its_form_has_of_it(form: str, run: int, names: list[str]) -> None:
    found = [workload.name for workload in chosen(["semaphore", "node"], form, run)]
    assert found == [f"semaphore-{name}" for name in names]


def test_a_subject_without_a_suitable_semaphore_is_left_out_for_a_reason() -> None:
    subjects = {subject.name: subject for subject in SUBJECTS}
    assert obstacle(subjects["rslock"], 10, 1) == "no semaphore"
    assert obstacle(subjects["redisson"], 10, 1) is None
    assert obstacle(subjects["redisson"], 10, 5) == "a semaphore on one node only"
    assert obstacle(subjects["redisson"], 100, 1) == "at most 10 processes at once"
    assert obstacle(subjects["node"], 100, 5) is None


def test_a_library_takes_part_where_readers_share_a_lock_if_it_has_one() -> None:
    sharing = {subject.name for subject in SUBJECTS if subject.shared}
    assert sharing == {subject.name for subject in SUBJECTS if subject.kind == OURS} | {"redisson"}
    assert all(subject.processes >= READERSHIP.processes for subject in SUBJECTS if subject.shared)


def test_a_later_run_replaces_its_workloads_and_the_page_says_when() -> None:
    failed = [{"workload": name, "subject": "node", "run": 0, "seen": "hung"} for name in ("one", "frozen")]
    kept = results(turn("one", "node", 9), turn("frozen-well", "node", 9), turn("unix", "node", 9), failures=failed)
    later = results(turn("frozen", "node", 1), turn("frozen-well", "node", 1))
    later.data |= {"date": "2100-01-02", "commit": "abc", "missing": {"redsync": "it was sold"}}
    later.data["subjects"] = {"node": {**later.subjects["node"], "version": "9.9"}}
    merged = kept.merged(Results(later.data))
    assert [(t["workload"], t["wall_ns"]) for t in merged.data["turns"]] == [
        ("one", 9_000),
        ("unix", 9_000),
        ("frozen", 1_000),
        ("frozen-well", 1_000),
    ]
    assert [failure["workload"] for failure in merged.failures] == ["one"]
    assert list(merged.subjects) == list(kept.subjects)
    title = merged.subjects["node"]["title"]
    said = "Measured apart from the rest. 5 runs: 2100-01-02, long form, seed 1, commit abc; "
    said += f"version of {title}: 9.9; not here, redsync: it was sold."
    sections = page.text(merged).split("\n## ")
    assert [section.partition("\n")[0] for section in sections if said in section] == ["Five nodes, one of which hangs"]
    assert "| measured apart | 1 of the workloads, each of which says when |" in sections[1]
    # Another one replaces that, too.
    later.data["date"] = "2100-01-03"
    assert [head["date"] for head in merged.merged(Results(later.data)).later] == ["2100-01-03"]


def test_four_digits_of_each_figure_are_kept(tmp_path: Path) -> None:
    seen = [turn("one", "node", 123_456, user_s=0.0123456), turn("one", "node", 9, run=1, user_s=0.02)]
    seen += [turn("growth", "bare", 7) | {"memory": [1, 2], "tracer": "strace", "script_us": None}]
    results(*seen).write(tmp_path / page.NUMBERS)
    growth, *kept = Results.read(tmp_path / page.NUMBERS).data["turns"]
    assert growth == seen[2]
    assert [(t["run"], t["wall_ns"], t["user_s"]) for t in kept] == [(0, 123_460_000, 0.01235), (1, 10_000, 0.02)]


def test_only_all_subjects_in_the_long_form_are_merged(tmp_path: Path) -> None:
    def written(name: str, form: str, only: Sequence[str]) -> Path:
        data = {**results().data, "form": {"name": form}, "only": only}
        Results(data).write(tmp_path / name / page.NUMBERS)
        return tmp_path / name

    assert bench.mergeable(written("whole", "long", ["semaphore"])).data["only"] == ["semaphore"]
    with pytest.raises(SystemExit, match="short form"):
        bench.mergeable(written("short", "short", []))
    with pytest.raises(SystemExit, match="only node took part"):
        bench.mergeable(written("node", "long", ["semaphore", "node"]))


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


def test_what_is_kept_is_small_and_drawn_for_both_themes() -> None:
    assert sum(file.stat().st_size for file in page.RESULTS.iterdir()) <= 1_000_000
    drawn = {workload.name for workload in page.load().workloads if workload.drawn}
    pictures = {file.stem: file.read_text() for file in page.RESULTS.glob("*.svg")}
    assert pictures.keys() == drawn
    assert all("prefers-color-scheme:dark" in text and "redlock · " in text for text in pictures.values())
