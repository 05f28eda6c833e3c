"""The demo on a cluster: its report and picture on a canned run, and a real run as `make demo` starts it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from chaos import screen
from chaos.cluster import SHARDS, Cluster
from chaos.cluster_demo import EPOCH, FIRST, KEEPERS, KILL, NEXT, WORDS, ClusterDemo
from chaos.demo import CREW
from chaos.run import Done
from chaos.tally import LANGUAGES, TICK_NS
from chaos.test_demo import RELEASED, START_NS, acquire, at_ns, held, play, record, text_of
from chaos.troubles import Takeover

OVER_S = ((1.0, 1.1), (3.0, 3.1), (4.5, 7.5), (8.0, 11.0))
"""When the troubles of the canned run began and ended."""

HISTORY = (
    acquire("rust-1.1/0", 0, 0.5, 10),
    record("rust-1.1/0", 10, 1.5, 1.5, kind="extend", valid_until_ns=at_ns(3.0)),
    record("rust-1.1/0", 10, 2.5, 2.51, **RELEASED),
    acquire("python-3.1/0", 0, 2.6, 20),
    record("python-3.1/0", 20, 3.0, 3.0, kind="extend", valid_until_ns=at_ns(4.5)),
    record("python-3.1/0", 20, 4.0, 4.01, **RELEASED),
    acquire("node-6.1/0", 0, 4.2, 30),
    record("node-6.1/0", 30, 5.7, 5.7, kind="lost"),
    acquire("rust-2.1/0", 0, 8.0 - 0.3, 40),
    record("rust-2.1/0", 40, 7.8, 7.81, **RELEASED),
    acquire("python-4.1/0", 0, 11.5, 50),
    record("python-4.1/0", 50, 11.6, 11.61, **RELEASED),
)
"""All troubles happen under holders; the last two fail over."""


@pytest.fixture
def run(tmp_path: Path) -> ClusterDemo:
    """A good run, without starting anything."""
    arena = Cluster(tmp_path, 1, None, CREW, 1)
    run = ClusterDemo(arena=arena, checker=tmp_path, out=tmp_path, scheduled=[EPOCH])
    run.start_ns, run.end_ns = START_NS, at_ns(13)
    run.epochs.append((EPOCH, START_NS, at_ns(12)))
    run.done = [Done(trouble, *map(at_ns, over_s)) for trouble, over_s in zip(EPOCH.troubles, OVER_S, strict=True)]
    taken = ((1.1, FIRST), (6, NEXT), (9.7, NEXT))
    run.takeovers = [Takeover(at_ns(second), f"shard {shard + 1}") for second, shard in taken]
    return run


def test_troubles_come_one_after_the_other_under_holders_of_every_language() -> None:
    for trouble, following in zip(EPOCH.troubles, EPOCH.troubles[1:], strict=False):
        assert trouble.until_s < following.at_s
    assert {CREW[keeper].language for keeper in KEEPERS.values()} == set(LANGUAGES)
    assert FIRST != NEXT < SHARDS


def test_every_trouble_has_a_result(run: ClusterDemo, tmp_path: Path) -> None:
    holds = held(tmp_path, of=HISTORY)
    planned, moved, killed, frozen = (run.result(holds, done) for done in run.done)
    assert planned == "happened under worker 1 (Rust), which held the lock for 2.0 s, renewed 1 time"
    assert moved == "happened under worker 3 (Python), which held the lock for 1.4 s, renewed 1 time"
    after = "a replica took over 1.5 s later, and worker 2 (Rust) had the lock 3.2 s later, 1.5 s being the ttl"
    assert killed == f"{after}; worker 6 (Node) was told that its lock was lost"
    assert frozen == (
        "a replica took over 1.7 s later, and worker 4 (Python) had the lock 3.5 s later, 1.5 s being the ttl"
    )


def test_what_did_not_happen_is_a_result(run: ClusterDemo, tmp_path: Path) -> None:
    run.takeovers.clear()
    holds = held(tmp_path, of=HISTORY)
    assert run.result(holds, run.done[3]) == "no replica took over"
    assert run.result([], run.done[0]) == "worker 1 (Rust) never held the lock"
    lost = held(tmp_path, record("rust-1.1/0", 10, 1.6, 1.6, kind="lost"), of=HISTORY[:2])
    assert run.result(lost, run.done[0]) == "happened under worker 1 (Rust), which had a lock that was lost"


def test_the_picture_and_the_live_view_show_failovers(run: ClusterDemo, tmp_path: Path) -> None:
    from chaos import picture  # noqa: PLC0415 - its library takes a second to load

    file = tmp_path / "timeline.svg"
    picture.draw(run, file, held(tmp_path, of=HISTORY))
    text = file.read_text()
    lanes = ["the lock", *(f"shard {i}" for i in range(1, SHARDS + 1)), "worker 6, Node"]
    for word in (*lanes, *(trouble.kind.name for trouble in EPOCH.troubles), "a replica took over", "told of its loss"):
        assert f"<!-- {word}" in text
    run.takeovers = run.takeovers[:2]
    picture.draw(run, file, held(tmp_path, of=HISTORY))
    assert file.read_text().count("<use ") == text.count("<use ") - 1, "each has a mark"
    run.takeovers = [dataclasses.replace(run.takeovers[1], at_ns=at_ns(6))]
    shown = text_of(lambda console: console.print(screen.screen(run, at_ns(6) + 2 * TICK_NS)), width=80)
    (line,) = (line for line in shown.splitlines() if f"shard {NEXT + 1}" in line)
    assert "✕▲" in line


@pytest.mark.test_all("it plays for half a minute")
@pytest.mark.timeout(180)
def test_a_real_run_goes_through_all_troubles(tmp_path: Path) -> None:
    status, said = play(tmp_path, "--cluster")
    assert status == 0, said
    assert said.rstrip().endswith("OK: every promise was kept.")
    words = " ".join(said.split())
    for trouble in EPOCH.troubles:
        assert all(word in words for word in WORDS[trouble.kind]), said
    for language in LANGUAGES:
        assert f"({language}) logs warn redlock.node failover: " in words, said
    for event in ("a replica takes over", "the lock is acquired again", "the holder is told that its lock is lost"):
        assert event in words, said
    for result in (
        "under worker 1 (Rust), which held",
        "under worker 3 (Python), which held",
        "worker 6 (Node) was told",
    ):
        assert result in words, said
    assert KILL.name in (tmp_path / "timeline.svg").read_text()
