"""The schedule is as specified, and the judge is told what happened. That the report shows it: `test_planted.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import cluster, nodes, sentinel
from chaos.arena import ROLES, Json, Worker
from chaos.nodes import AT_ONCE, struck
from chaos.schedule import EPOCH_S, TTL_S, count, epochs, kinds, meet
from chaos.tally import EpochHistory, Tally

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
