"""What `make stress` makes of its options, of the output of test programs, and of their outcomes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from setup import scarcity, stress
from setup.outcomes import Condition, Round, is_steady, report, rust_outcomes, tap_outcomes
from setup.parts import Program
from support.process import TESTS, python

HALF, BUSY = Round(1, Condition(0.5), 7), Round(2, Condition(), 8)


@pytest.mark.test_all("it collects cases three times more", gate=True)
def test_each_seed_has_the_cases_of_make_test(tmp_path: Path) -> None:
    collect = [*python("pytest"), "--collect-only", "-q", str(TESTS / "conformance/test_pairs.py")]
    seeds = (["-p", "setup.seeded", "--order-seed", seed, "--outcomes", str(tmp_path / "outcomes")] for seed in "12")
    found = [subprocess.run([*collect, *seed], capture_output=True, text=True, check=True) for seed in ([], *seeds)]
    usual, one, two = ([line for line in each.stdout.splitlines() if "::" in line] for each in found)
    assert sorted(usual) == sorted(one) == sorted(two)
    assert usual != one != two


def test_outcomes_of_rust() -> None:
    output = """
running 4 tests (shuffle seed: 7)
test a::three ... ignored, slow
test a::one ... ok
test two ... FAILED
test four - should panic ... ok

failures:

---- two stdout ----
test result: FAILED. 2 passed; 1 failed; 1 ignored
"""
    assert dict(rust_outcomes(output)) == {"a::three": "skipped", "a::one": "passed", "two": "failed", "four": "passed"}


def test_outcomes_of_node() -> None:
    output = """TAP version 13
# Subtest: one
ok 1 - one
  ---
  duration_ms: 9.6
  ...
# Subtest: outer
    # Subtest: inner
    ok 1 - inner
    # Subtest: bad
    not ok 2 - bad
    # Subtest: later
    ok 3 - later # TODO
    1..3
not ok 2 - outer
ok 3 - left out # SKIP
"""
    assert dict(tap_outcomes(output)) == {
        "one": "passed",
        "outer > inner": "passed",
        "outer > bad": "failed",
        "outer > later": "skipped",
        "outer": "failed",
        "left out": "skipped",
    }


def test_the_report_shows_what_differs_and_how_to_repeat_it() -> None:
    outcomes = {
        "tests/a.py::b[one node]": [(HALF, "failed"), (BUSY, "passed")],
        "tests/a.py::c": [(HALF, "failed"), (BUSY, "failed")],
        "tests/a.py::d": [(HALF, "passed"), (BUSY, "passed")],
    }
    lines = report(outcomes, {(HALF, "tests/a.py::b[one node]"): "target/stress/1/b.log"}, ["--all"])
    assert lines == [
        "not the same in every round:",
        "  tests/a.py::b[one node]",
        "    failed  quota 0.5, seed 7         target/stress/1/b.log",
        "    passed  busy neighbours, seed 8",
        "    make stress ARGS=\"--rounds 1 --quota 0.5 --seed 7 --all --only 'tests/a.py::b[one node]'\"",
        "failed in every round:",
        "  tests/a.py::c",
        "    failed  quota 0.5, seed 7",
        "    failed  busy neighbours, seed 8",
        '    make stress ARGS="--rounds 1 --quota 0.5 --seed 7 --all --only tests/a.py::c"',
        "3 test cases: 1 differed, 1 failed in every round",
    ]
    assert not is_steady(outcomes)
    assert is_steady({"tests/a.py::d": outcomes["tests/a.py::d"]})


@pytest.mark.parametrize("condition", [Condition(0.5), Condition()], ids=str)
def test_a_program_runs_under_each_condition(condition: Condition) -> None:
    with scarcity.scarce(condition) as (prefix, way):
        done = subprocess.run([*prefix, "echo", "a b"], capture_output=True, text=True, check=True)
    assert done.stdout == "a b\n", way


def test_a_program_that_hangs_has_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stress, "HANG_S", 0.1)
    hangs = Program("hangs", "rust", ["sh", "-c", "sleep 60"], tmp_path)
    assert [case[:2] for case in stress.run(hangs, [], HALF, tmp_path)] == [("hangs", "failed")]
