"""What `make stress` reads in the output of test programs, and what it says of their outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from setup import stress
from setup.stress import FAILED, Program, Round, report, rust_outcomes, tap_outcomes

HALF, BUSY = Round(1, 0.5, 7), Round(2, None, 8)


def test_outcomes_of_rust() -> None:
    output = """
running 3 tests (shuffle seed: 7)
test a::three ... ignored, slow
test two ... FAILED
test four - should panic ... ok

---- two stdout ----
"""
    assert dict(rust_outcomes(output)) == {"a::three": "skipped", "two": "failed", "four": "passed"}


def test_outcomes_of_node() -> None:
    output = """TAP version 13
# Subtest: outer
    # Subtest: inner
    ok 1 - inner
    # Subtest: bad
    not ok 2 - bad
not ok 1 - outer
ok 2 - left out # SKIP
"""
    expected = {"outer > inner": "passed", "outer > bad": "failed", "outer": "failed", "left out": "skipped"}
    assert dict(tap_outcomes(output)) == expected


def test_the_report_shows_what_differs_and_how_to_repeat_it() -> None:
    seen = {"tests/a.py::b[one node]": {HALF: "failed", BUSY: "passed"}, "tests/a.py::d": {HALF: "passed"}}
    assert report(seen, {(HALF, "tests/a.py::b[one node]"): "target/stress/1/b.log"}) == (
        [
            "not the same in every round:",
            "  tests/a.py::b[one node]",
            "    failed  quota 0.5, seed 7         target/stress/1/b.log",
            "    passed  busy neighbours, seed 8",
            "    make stress ARGS=\"--rounds 1 --quota 0.5 --seed 7 --only 'tests/a.py::b[one node]'\"",
            "2 test cases: 1 differed, 0 failed in every round",
        ],
        False,
    )
    assert report({"tests/a.py::c": {HALF: FAILED, BUSY: FAILED}}, {})[1] is False
    assert report({"tests/a.py::d": {HALF: "passed", BUSY: "passed"}}, {})[1] is True


def test_a_program_that_hangs_has_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stress, "HANG_S", 0.1)
    with stress.scarce(0.5) as (prefix, _):
        hangs = Program("hangs", "rust", ["sh", "-c", "sleep 60"], tmp_path)
        assert [case[:2] for case in stress.run(hangs, prefix, 7, tmp_path)] == [("hangs", "failed")]
