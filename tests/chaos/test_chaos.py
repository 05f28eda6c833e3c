"""The schedule is as specified, the report lists broken promises, and a real run ends as it should."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from rich.console import Console

from chaos import journal, outcome, screen
from chaos.arena import PASSWORD, ROLES, Json, Worker
from chaos.asked import plain
from chaos.cluster import Cluster
from chaos.counts import Counts
from chaos.hand import Hold
from chaos.nodes import AT_ONCE, KINDS, NODES, PLAN, Nodes, struck
from chaos.played import played, seeds
from chaos.run import POOLS, SHAPES, TAGGED, Done, Run
from chaos.schedule import CREW, EPOCH_S, TTL_S, Kind, Trouble, count, epochs, kinds
from chaos.tally import LANGUAGES, TICK_NS, EpochHistory, Holder, Tally
from chaos.troubles import Takeover
from chaos.ways import ALTERED
from support.process import python
from support.servers import LIMIT_S

HERE = Path(__file__).parent
SEEDS = seeds(60, 6)

FENCE_TTL_S = 3600
"""The default of the library. Clock steps must stay far below it."""

TOKEN = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


def test_a_seed_repeats_its_schedule() -> None:
    assert epochs(PLAN, 7, 9) == epochs(PLAN, 7, 9)
    assert epochs(PLAN, 7, 9)[:4] == epochs(PLAN, 7, 4)
    assert epochs(PLAN, 7, 3) != epochs(PLAN, 8, 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_shortest_run_has_every_kind(seed: int) -> None:
    assert len(KINDS) >= 20
    assert kinds(epochs(PLAN, seed, count(PLAN, 30))) == {kind.name for kind in KINDS}


@pytest.mark.parametrize("seed", SEEDS)
def test_data_loss_and_clocks_that_step_never_meet(seed: int) -> None:
    for epoch in epochs(PLAN, seed, 12):
        assert {trouble.kind.of for trouble in epoch.troubles} <= {"steady", epoch.of}
        steps_s = sum(trouble.amount for trouble in epoch.troubles if trouble.kind.of == "clock")
        assert steps_s < FENCE_TTL_S / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_most_nodes_are_well_at_any_time(seed: int) -> None:
    for epoch in epochs(PLAN, seed, 12):
        for at_s in (trouble.at_s for trouble in epoch.troubles):
            now = [trouble for trouble in epoch.troubles if trouble.at_s <= at_s <= counted_on_s(trouble)]
            troubled = [trouble for trouble in now if struck(trouble)]
            nodes = [node for trouble in troubled for node in struck(trouble)]
            assert len(nodes) == len(set(nodes)), "a node is struck twice at once"
            assert len(nodes) <= AT_ONCE or len(troubled) == 1
            workers = [trouble.where for trouble in now if trouble.kind.subject == "worker"]
            assert len(workers) == len(set(workers))


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_is_over_with_its_epoch(seed: int) -> None:
    for epoch in epochs(PLAN, seed, 12):
        assert all(0 < trouble.at_s <= trouble.until_s <= EPOCH_S for trouble in epoch.troubles)
        assert all(trouble.where < (CREW if trouble.kind.subject == "worker" else NODES) for trouble in epoch.troubles)


def counted_on_s(trouble: Trouble) -> float:
    """When clients can use a node again."""
    return trouble.until_s + (TTL_S if trouble.kind.bars else 0)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A good run, without starting anything."""
    scheduled = epochs(PLAN, 1, 3)
    run = Run(arena=Nodes(tmp_path, 1), checker=tmp_path, out=tmp_path, scheduled=scheduled)
    run.start_ns, run.end_ns = 10**12, 10**12 + 30 * 10**9
    for epoch in scheduled:
        from_ns = run.start_ns + round(epoch.number * 1e10)
        run.epochs.append((epoch, from_ns, from_ns + round(EPOCH_S * 1e9)))
        for trouble in epoch.troubles:
            at_ns = from_ns + round(trouble.at_s * 1e9)
            run.done.append(Done(trouble, at_ns, at_ns + round(trouble.lasts_s * 1e9)))
    run.epoch, run.phase = scheduled[1], "trouble"
    run.served = run.waited = 3 * CREW
    run.summaries = ["5 records, 0 violations"] * 3
    for language in LANGUAGES:
        run.tally.acquired[language] = 100
        run.tally.seconds[run.start_ns // 10**9 + 3, language] = 100
        run.tally.by_shape.update((shape, language) for shape in SHAPES)
        run.tally.attached[language, "released"] = 1
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


def test_renewals_may_have_begun_behind_the_last_look_of_a_holder_that_was_not_attentive(tmp_path: Path) -> None:
    ms = 10**6
    hand: Any = SimpleNamespace(client="python-1/0", worker=SimpleNamespace(args=SimpleNamespace(fault=None)))
    hand.worker.journal = journal.Journal(tmp_path / "journal")
    hold = Hold(hand, 1, plain("a", 1.5), 0, {"slot": None, "fence": 7, "read_ns": 0, "remaining_ms": 1_483})
    for at_ms, until_ms in (300, 1_483), (9_000, 10_200), (9_020, 10_500):
        hold.seen(at_ms * ms, until_ms * ms)
    _, *extended = map(json.loads, (tmp_path / "journal").read_text().splitlines())
    assert [line["invoke_ns"] for line in extended] == [300 * ms, 9_020 * ms]


def test_a_killed_holder_gives_up_its_lock_and_has_held_it_until_then(worker: Worker, tmp_path: Path) -> None:
    won = {"client": "rust-1/0", "name": "a", "kind": "acquire", "invoke_ns": 0, "return_ns": 1, "ok": True, "fence": 7}
    worker.journal.path.write_text(f"{json.dumps(won | {'valid_until_ns': 10 * TICK_NS})}\n")
    history, tally = EpochHistory(tmp_path / "history"), Tally()
    tally.hear(worker, history)
    tally.forget(worker, 2 * TICK_NS)
    history.given_up(worker, 2 * TICK_NS)
    history.close()
    ended = json.loads((tmp_path / "history").read_text().splitlines()[-1])
    assert (ended["kind"], ended["ok"], ended["invoke_ns"]) == ("release", False, 2 * TICK_NS)
    assert [tally.held_ns["worker 1", tick] for tick in range(3)] == [TICK_NS - 1, TICK_NS, 0]
    assert tally.held_ns.total() == 2 * TICK_NS - 1


def test_a_killed_worker_does_not_end_what_another_hand_has_released(worker: Worker, tmp_path: Path) -> None:
    won = {"client": "rust-1/0", "name": "a", "kind": "acquire", "invoke_ns": 0, "return_ns": 1, "ok": True, "fence": 7}
    lines = [won | {"valid_until_ns": 9}, {"event": "releasing", "client": "rust-1/0", "at_ns": 9}]
    lines += [{"event": "given", "client": "rust-1/0"}]
    worker.journal.path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    first, second = (EpochHistory(tmp_path / name) for name in ("first", "second"))
    Tally().hear(worker, first)
    second.given_up(worker, 5)
    first.close()
    second.close()
    assert (tmp_path / "second").read_text() == ""


def test_the_tally_has_what_metrics_are_compared_with(worker: Worker, tmp_path: Path) -> None:
    hand: Json = {"client": "rust-1/0", "name": "a", "fence": 7, "invoke_ns": 1, "return_ns": 1, "ok": True}
    won = hand | {"kind": "acquire", "valid_until_ns": 5}
    lost: Json = {"event": "error", "client": "rust-1/0", "at_ns": 9, "code": "lost"}
    lost |= {"message": "", "reason": "deleted"}
    logged: Json = {"event": "heard", "at_ns": 9, "logger": "redlock.lock", "level": "warn", "code": "lock_lost"}
    told = logged | {"text": PASSWORD}
    lines = [won, hand | {"kind": "lost"}, lost | {"call": "hold"}, lost | {"call": "release"}, told]
    # Only the release finds this one lost. The child's is another process's.
    lines += [won, lost | {"call": "release"}, won | {"client": "rust-1/child-99"}]
    lines += [{"event": "mass", "acquired": 3, "lost": 1}, {"event": "stats", "process": "rust-1", "metrics": {}}]
    worker.journal.path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    tally, history = Tally(), EpochHistory(tmp_path / "history")
    tally.hear(worker, history)
    history.close()
    assert tally.counts["rust-1"] == Counts(acquired=5, told=1, lost=3, logged=1)
    assert tally.counts["rust-1/child-99"] == Counts(acquired=1)
    assert tally.metrics == {"rust-1": {}}
    assert [heard.code for heard in tally.heard] == ["lock_lost"]
    assert tally.troubles == ["worker 1 logs a password: lock_lost"]


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


def test_a_set_is_one_call_with_several_names(worker: Worker, tmp_path: Path) -> None:
    names = {"name": "a, b", "names": ["a", "b"]}
    asking: Json = {"event": "asking", "client": "rust-1/0", "at_ns": 0, "ttl_s": 2, "permits": None, **names}
    call: Json = {"client": "rust-1/0", "invoke_ns": 0, "return_ns": 1, "ok": True, "fence": 7, **names}
    won = call | {"kind": "acquire", "valid_until_ns": 10**10}
    records = in_history(worker, tmp_path, asking, won, call | {"kind": "release"}, asking)
    assert [record["kind"] for record in records] == ["acquire", "release", "acquire"]
    assert all(record["names"] == ["a", "b"] for record in records)
    assert "permits" not in records[0]


def test_every_pool_has_sets_of_names(run: Run) -> None:
    cluster = Cluster(Path(), 1)
    for pool, names in run.names(run.scheduled[0]).items():
        assert len(names) == len(set(names)) == POOLS[pool]
        assert run.arena.families(names) == [names]
        together = [name for family in cluster.families(names) for name in family]
        assert len(together) == TAGGED.get(pool, 0), "those with a hash tag"


def test_what_is_altered_is_in_the_scripts() -> None:
    scripts = [script.read_bytes() for script in (HERE.parent.parent / "core/src/protocol/lua").glob("*.lua")]
    for text, other in ALTERED.values():
        assert any(text in script for script in scripts), text
        assert len(text) == len(other), text


def report(run: Run) -> str:
    """The output without a terminal."""
    console = Console(file=io.StringIO(), width=110)
    outcome.write(console, run, outcome.tables(run), {"seed": "1"}, [Path("chaos.svg")])
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_run_in_which_all_was_well_is_good(run: Run) -> None:
    assert outcome.broken(run) == []
    assert report(run).rstrip().endswith("OK: every promise was kept.")


@pytest.mark.parametrize(
    ("said", "promise"),
    [
        ('lock "a": fence 7 was given twice, to "x" at 1 s and to "y" at 2 s', "fences"),
        ('lock "a": "x" got fence 7 at 1 s, and "y", who asked only after that, got the smaller fence 6', "fences"),
        ('lock "a": two holders at once: "x" (fence 6) held it, and "y" (fence 7) held it', "exclusion"),
        ('lock "a": too soon: "x" (fence 6) held it, which kept it until 2 s, and yet "y" (fence 7)', "exclusion"),
        ('lock "a": told late: "x" (fence 6) held it, and heard of it 2s later', "told in time"),
        ('lock "a": leaked: "node 1" had its key at 3 s', "keys gone"),
        ('lock "a": stuck: "x" asked for acquire at 1 s, which had to come back by 2 s and did not', "calls come back"),
        ('lock "a": stale write: "x" (fence 7) at 1 s wrote, and only then "y" (fence 6) at 2 s', "store"),
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
        (lambda run: run.miscounted.append("node-1.1 told no metrics at its end"), "metrics"),
        (lambda run: setattr(run.tally, "lost_updates", 1), "store"),
        (lambda run: run.tally.acquired.pop("Node"), "every language acquired"),
        (lambda run: run.tally.by_shape.pop(("term", "Node")), "every shape acquired"),
        (lambda run: run.tally.attached.pop(("Node", "released")), "every language attached"),
        (lambda run: run.done.clear(), "every kind of trouble"),
    ],
)
def test_each_broken_promise_is_bad(run: Run, spoil: object, promise: str) -> None:
    assert callable(spoil)
    spoil(run)
    assert outcome.broken(run) == [promise]
    assert "BAD" in report(run)


def test_the_live_view_fits_a_small_terminal(run: Run) -> None:
    kind = Kind("freeze", "node", (1, 1))
    for i in range(20):
        run.active[Trouble(kind, i, 1, i % NODES)] = run.start_ns
        holder = Holder(f"python-{i}.1/3", "Python", 1795298549083253, run.start_ns, run.end_ns)
        run.tally.holders[f"1-cool-{i}"] = holder
        run.note(run.start_ns, f"node {i}: freeze for 1.0 s")
    run.takeovers.append(Takeover(run.end_ns - 2 * TICK_NS, "node 3"))
    console = Console(file=io.StringIO(), width=80)
    console.print(screen.screen(run, run.end_ns))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) < 26
    assert max(map(len, lines)) <= 80
    for word in ("python-19.1/3", "node 2: freeze", "view C", f"worker {CREW}, Node async", "‖", "▲"):
        assert any(word in line for line in lines), word


def test_the_picture_names_every_lane(run: Run, tmp_path: Path) -> None:
    from chaos import picture  # noqa: PLC0415 - its library takes a second to load

    file = tmp_path / "chaos.svg"
    run.takeovers.append(Takeover(run.start_ns, "node 3"))
    picture.draw(run, file)
    text = file.read_text()
    assert "<!-- a replica took over" in text
    for word in ("node 5", "view A", f"worker {CREW}, Node async", "data epoch", "Rust", "acquisitions a second"):
        assert f"<!-- {word} -->" in text


@pytest.mark.timeout(120)
def test_a_violation_is_told_by_the_exit_status_and_no_secret_at_all(tmp_path: Path) -> None:
    done = played(tmp_path, "--seed", "1", "--hands", "2", "--fault", "old fence", "--fail-fast")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert re.search(r"fences +BAD", said), said
    assert "unavailable" in said, "errors, which name nodes, are among what is looked through"
    written = [file.read_text(encoding="utf-8") for file in tmp_path.iterdir()]
    # The picture, and the record of each epoch.
    assert len(written) == 1 + len(set(re.findall(r"\bepoch (\d+),", said))), said
    for text in (said, *written):
        assert PASSWORD not in text
        assert not TOKEN.search(text)


@pytest.mark.test_all("it begins a whole run", gate=True)
@pytest.mark.timeout(120)
def test_ctrl_c_ends_everything_and_reports(tmp_path: Path) -> None:
    command = [*python("chaos.chaos"), "--out", str(tmp_path), "--seed", "1", "--hands", "1", "--seconds", "3600"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout
            said = ""
            while "writes: " not in said:
                said += (line := process.stdout.readline())
                assert line, said
            children = psutil.Process(process.pid).children(recursive=True)
            # A terminal does the same.
            os.killpg(process.pid, signal.SIGINT)
            said += process.stdout.read()
            process.wait(LIMIT_S)
        finally:
            process.kill()
    assert len(children) > NODES + CREW
    assert process.returncode == 130, said
    assert "Interrupted: judged is what there was." in said
    assert re.search(r"fences +ok", said), said
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
