"""The schedule is as specified, the judge is told what happened, and the report lists broken promises."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from chaos import cluster, nodes, outcome, screen, sentinel
from chaos.arena import PASSWORD, ROLES, Json, Worker
from chaos.nodes import AT_ONCE, NODES, Nodes, struck
from chaos.run import SHAPES, Done, Run
from chaos.schedule import CREW, EPOCH_S, TTL_S, Kind, Trouble, count, epochs, kinds, meet
from chaos.tally import LANGUAGES, EpochHistory, Tally
from chaos.troubles import Takeover

PLANS = {"nodes": nodes.PLAN, "cluster": cluster.PLAN, "sentinel": sentinel.PLAN}
SEEDS = range(3)

FENCE_TTL_S = 3600
"""The default of the library. Clock steps must stay far below it."""


@pytest.mark.parametrize("arena", PLANS)
def test_the_shortest_run_has_every_kind_in_epochs_of_its_class(arena: str) -> None:
    plan = PLANS[arena]
    for seed in SEEDS:
        scheduled = epochs(plan, seed, count(plan, 60))
        assert scheduled == epochs(plan, seed, 12)[: len(scheduled)], "a seed repeats its schedule"
        assert kinds(scheduled) == {kind.name for kind in plan.kinds}
        for epoch in scheduled:
            assert {trouble.kind.of for trouble in epoch.troubles} <= {"steady", epoch.of}
            assert all(0 < trouble.at_s <= trouble.until_s <= EPOCH_S for trouble in epoch.troubles)
            steps_s = sum(trouble.amount for trouble in epoch.troubles if trouble.kind.of == "clock")
            assert steps_s < FENCE_TTL_S / 2


@pytest.mark.parametrize("arena", ["cluster", "sentinel"])
def test_what_is_alone_meets_nothing_else_that_servers_have(arena: str) -> None:
    for seed in SEEDS:
        for epoch in epochs(PLANS[arena], seed, 8):
            servers = [trouble for trouble in epoch.troubles if trouble.kind.subject != "worker"]
            for alone in (trouble for trouble in servers if trouble.kind.alone):
                assert not [other for other in servers if other is not alone and meet(alone, other)]


def test_most_nodes_are_well_at_any_time() -> None:
    for seed in SEEDS:
        for epoch in epochs(nodes.PLAN, seed, 12):
            for at_s in (trouble.at_s for trouble in epoch.troubles):
                now = [each for each in epoch.troubles if each.at_s <= at_s <= each.until_s + TTL_S * each.kind.bars]
                troubled = [trouble for trouble in now if struck(trouble)]
                each_node = [node for trouble in troubled for node in struck(trouble)]
                assert len(each_node) == len(set(each_node)), "a node is struck twice at once"
                assert len(each_node) <= AT_ONCE or len(troubled) == 1
                workers = [trouble.where for trouble in now if trouble.kind.subject == "worker"]
                assert len(workers) == len(set(workers))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A good run, without starting anything."""
    scheduled = epochs(nodes.PLAN, 1, 3)
    run = Run(Nodes(tmp_path, 1), tmp_path, tmp_path, scheduled)
    run.start_ns, run.end_ns = 10**12, 10**12 + 30 * 10**9
    run.done = [Done(trouble, run.start_ns, run.start_ns) for epoch in scheduled for trouble in epoch.troubles]
    run.served = run.waited = 3 * CREW
    run.summaries = ["5 records, 0 violations"] * 3
    for language in LANGUAGES:
        run.tally.acquired[language] = 100
        run.tally.by_shape.update((shape, language) for shape in SHAPES)
    return run


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """A worker that does nothing by itself."""
    worker = Worker(ROLES[0], "rust-1", 0, ["cat"], tmp_path / "log", tmp_path / "journal", "")
    try:
        yield worker
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("valid_until_ns", "asked_ns"), [(3_300_000_000, 1_800_000_000), (2_484_000_000, 1_001_000_000)]
)
def test_a_renewal_was_asked_for_before_it_was_seen_and_after_its_acquire(
    worker: Worker, valid_until_ns: int, asked_ns: int, tmp_path: Path
) -> None:
    hand = {"client": "rust-1/1", "name": "a", "fence": 7}
    asking = {"event": "asking", "at_ns": 1_000_000_000, "ttl_s": 1.5, **hand}
    won = {"kind": "acquire", "invoke_ns": 1_000_000_000, "return_ns": 1_001_000_000, "ok": True, **hand}
    seen = {"kind": "extend", "invoke_ns": 2_000_000_000, "return_ns": 2_000_000_000, "ok": True, **hand}
    lines = [asking, won | {"valid_until_ns": 2_483_000_000}, seen | {"valid_until_ns": valid_until_ns}]
    worker.journal.path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    history = EpochHistory(tmp_path / "history")
    Tally().hear(worker, history)
    history.close()
    extended = json.loads((tmp_path / "history").read_text().splitlines()[-1])
    assert extended["invoke_ns"] == asked_ns


def test_a_killed_holder_gives_up_its_lock(worker: Worker, tmp_path: Path) -> None:
    won = {"client": "rust-1/0", "name": "a", "kind": "acquire", "invoke_ns": 0, "return_ns": 1, "ok": True, "fence": 7}
    worker.journal.path.write_text(f"{json.dumps(won | {'valid_until_ns': 10})}\n")
    history = EpochHistory(tmp_path / "history")
    Tally().hear(worker, history)
    history.given_up(worker, 2)
    history.close()
    ended = json.loads((tmp_path / "history").read_text().splitlines()[-1])
    assert (ended["kind"], ended["ok"], ended["invoke_ns"]) == ("release", False, 2)


def test_a_password_in_the_log_is_trouble(worker: Worker) -> None:
    told: Json = {"event": "heard", "code": "lock_lost", "text": PASSWORD}
    worker.journal.path.write_text(f"{json.dumps(told)}\n")
    tally = Tally()
    tally.hear_end(worker)
    assert tally.troubles == ["rust-1 logs a password: lock_lost"]


def in_history(worker: Worker, folder: Path, *lines: Json) -> list[Json]:
    """What the lines of a worker are in a history."""
    worker.journal.path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    history = EpochHistory(folder / "history")
    Tally().hear(worker, history)
    history.never_back(worker, None)
    history.close()
    return [json.loads(line) for line in (folder / "history").read_text().splitlines()]


def test_the_judge_is_told_what_a_lock_was_asked_for(worker: Worker, tmp_path: Path) -> None:
    asking: Json = {"event": "asking", "client": "rust-1/0", "name": "pool", "at_ns": 0, "ttl_s": 2, "permits": 3}
    asking |= {"margin_s": 0.5, "least_s": 0.2}
    call: Json = {"client": "rust-1/0", "name": "pool", "kind": "acquire", "invoke_ns": 0, "return_ns": 1, "fence": 7}
    won = call | {"ok": True, "slot": 2, "valid_until_ns": 10**10}
    denied = call | {"ok": False, "fence": None, "valid_until_ns": None}
    lost = call | {"kind": "lost", "ok": True, "slot": 2, "reason": "expired"}
    records = in_history(worker, tmp_path, asking, won, lost, asking, denied, asking)
    assert [record.get("permits") for record in records] == [3, None, 3, 3], "also where it never came back"
    assert [record.get("slot") for record in records] == [2, 2, None, None]
    # It was acquired 1.5 s before its validity ends, and the clocks of nodes may be faster.
    kept = {"margin_ns": 500_000_000, "least_until_ns": 8_500_000_000 + 196_000_000}
    assert {field: records[0][field] for field in kept} == kept
    assert records[1]["reason"] == "expired"
    assert not any(record.keys() & kept.keys() for record in records[1:])


def report(run: Run) -> str:
    """The output without a terminal."""
    console = Console(file=io.StringIO(), width=110)
    outcome.write(console, run)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_run_in_which_all_was_well_is_good(run: Run) -> None:
    assert outcome.broken(run) == []
    assert report(run).rstrip().endswith("OK: every promise was kept.")


@pytest.mark.parametrize(
    ("said", "promise"),
    [
        ('lock "a": one fence was given twice: acquire of "x" (fence 7) from 0 s to 1 s', "fences"),
        ('lock "a": who asked later got the smaller fence: acquire of "x" (fence 7) from 0 s to 1 s', "fences"),
        ('lock "a": two holders at once: acquire of "x" (fence 6) from 0 s to 1 s', "exclusion"),
        ('lock "a": too soon: acquire of "x" (fence 6) from 0 s to 1 s', "exclusion"),
        ('lock "a": told late: acquire of "x" (fence 6) from 0 s to 1 s', "told in time"),
        ('lock "a": leaked: key of "node 1" from 3 s to 3 s', "keys gone"),
        ('lock "a": stuck: acquire of "x" from 1 s to the end; it had to come back by 2 s', "calls come back"),
        ('lock "a": stale write: write of "x" (fence 7) from 0 s to 1 s', "store"),
        ("the checker ended with 2", "history"),
    ],
)
def test_what_the_checker_finds_breaks_its_promise(run: Run, said: str, promise: str) -> None:
    run.violations.append(said)
    assert outcome.broken(run) == [promise]
    text = report(run)
    assert "FAILED" in text
    assert said[:60] in text


def test_what_nobody_judged_is_not_good(run: Run) -> None:
    run.summaries.clear()
    assert outcome.broken(run) == ["history"]


@pytest.mark.parametrize(
    ("spoil", "promise"),
    [
        (lambda run: setattr(run, "served", run.served - 1), "served"),
        (lambda run: run.tally.troubles.append("rust-1.1 ended with 101"), "workers"),
        (lambda run: run.early.append("node-1.1/2: release: lost"), "no early loss"),
        (lambda run: setattr(run.tally, "lost_updates", 1), "store"),
        (lambda run: run.tally.acquired.pop("Node"), "every language acquired"),
        (lambda run: run.tally.by_shape.pop(("set", "Node")), "every shape acquired"),
        (lambda run: run.done.clear(), "every kind of trouble"),
    ],
)
def test_each_broken_promise_is_bad(run: Run, spoil: object, promise: str) -> None:
    assert callable(spoil)
    spoil(run)
    assert outcome.broken(run) == [promise]
    assert "BAD" in report(run)


def test_the_screen_fits_a_small_terminal(run: Run) -> None:
    run.active = {Trouble(Kind("freeze", "node", (1, 1)), 0, 1, number): run.start_ns for number in range(NODES)}
    for number in range(20):
        run.note(run.start_ns, f"node {number}: freeze for 1.0 s")
    run.takeovers.append(Takeover(run.start_ns, "node 3"))
    console = Console(file=io.StringIO(), width=80)
    console.print(screen.Screen(run).draw())
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) < 26
    assert max(map(len, lines)) <= 80
    for word in ("node 2: freeze", "view C", f"worker {CREW}, Node async", "‖", "▲", "node 19: freeze for"):
        assert any(word in line for line in lines), word
