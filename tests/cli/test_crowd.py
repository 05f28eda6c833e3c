"""Many at once for one name: a counter in a file, which every command reads and writes, is right in the end."""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path

import pytest

from cli.redlock import Redlock, keys_of
from cli.running import Running
from conformance.story import fence_key
from support.clock import until
from support.servers import Server

COUNT = ["sh", "-c", 'read n <"$0"; echo $((n + 1)) >"$0"; echo "$REDLOCK_FENCE" >>"$0.fences"']
"""Loses a count if another does the same meanwhile."""

PATIENT = ["--node-timeout", "5s", "--connect-timeout", "10s"]
"""A machine that runs so many programs answers late."""


def crowd(redlock: Redlock, runs: int, at_once: int, words: list[str]) -> Counter[int]:
    """Starts so many, never more than `at_once` of them together; returns how often each exit status came."""
    statuses: Counter[int] = Counter()
    present: deque[Running] = deque()

    def has_room() -> bool:
        ended = [each for each in present if not each.runs]
        for each in ended:
            present.remove(each)
            done = each.end()
            statuses[done.status] += 1
            assert not done.err, done.err
        return len(present) < at_once

    for _ in range(runs):
        until(has_room, "one ends", limit_s=60)
        present.append(redlock.start("run", *PATIENT, *words))
    until(lambda: has_room() and not present, "all end", limit_s=100)
    return statuses


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("runs", "at_once"),
    [(80, 20), pytest.param(1000, 100, marks=pytest.mark.test_all("it starts a thousand programs"))],
)
def test_a_crowd_for_one_name(
    redlock: Redlock, own_node: Server, name: str, tmp_path: Path, runs: int, at_once: int
) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0\n")
    at = redlock.at(own_node)
    assert crowd(at, runs, at_once, [name, "--", *COUNT, str(counter)]) == {0: runs}
    assert int(counter.read_text()) == runs
    fences = [int(line) for line in (tmp_path / "counter.fences").read_text().split()]
    assert fences == sorted(set(fences)), "each fence is larger than the one before"
    assert own_node.get(fence_key(name)) == str(fences[-1]).encode()
    assert keys_of(own_node, name) == {fence_key(name).encode()}, "nothing is left"


def test_a_crowd_for_slots(redlock: Redlock, own_node: Server, name: str, tmp_path: Path) -> None:
    """Two at a time, each in a slot with a counter of its own."""
    for slot in range(2):
        (tmp_path / f"counter{slot}").write_text("0\n")
    count = ["sh", "-c", 'f="$0$REDLOCK_SLOT"; read n <"$f"; echo $((n + 1)) >"$f"']
    runs = 40
    assert crowd(redlock.at(own_node), runs, 20, ["--permits", "2", name, "--", *count, str(tmp_path / "counter")]) == {
        0: runs
    }
    counts = [int((tmp_path / f"counter{slot}").read_text()) for slot in range(2)]
    assert sum(counts) == runs
    assert all(counts)


def test_the_counter_needs_the_lock(redlock: Redlock, tmp_path: Path) -> None:
    """The test itself: without a lock, counts are lost."""
    counter = tmp_path / "counter"
    lost = False

    def loses() -> bool:
        nonlocal lost
        counter.write_text("0\n")
        slow = 'read n <"$0"; until test -e "$0.all"; do sleep 0.01; done; echo $((n + 1)) >"$0"'
        running = [redlock.programs.start(["sh", "-c", slow, str(counter)]) for _ in range(4)]
        (tmp_path / "counter.all").touch()
        assert all(each.end().status == 0 for each in running)
        lost = int(counter.read_text()) < 4
        (tmp_path / "counter.all").unlink()
        return lost

    until(loses, "a count is lost")
    assert lost
