"""Report, view and timeline on a canned fight. Nothing is started here."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from chaos import checker
from demo import report, timeline, view
from demo.fight import Fault, Fight, Hold, Worker

START_NS = 10**12
SECOND_NS = 10**9
GOOD = checker.Judgement(True, "5 records, 0 violations")


def crew() -> list[Worker]:
    """One worker of each language."""
    return [Worker("rust-1", "Rust", "async"), Worker("python-1", "Python", "sync"), Worker("node-1", "Node", "async")]


def at_ns(seconds: float) -> int:
    """An instant of the canned fight."""
    return START_NS + round(seconds * SECOND_NS)


def acquire(fight: Fight, worker: Worker, asked_s: float, since_s: float, fence: int) -> Hold:
    """Lets a worker wait and acquire with a ttl of two seconds."""
    fight.hear(worker, {"event": "asking", "at_ns": at_ns(asked_s)})
    got = {"event": "acquired", "at_ns": at_ns(since_s), "fence": fence, "remaining_ns": 2 * SECOND_NS, "kept": False}
    fight.hear(worker, got)
    return fight.holds[-1]


def release(fight: Fight, worker: Worker, at_s: float, fence: int) -> None:
    """Lets it increase the file and release."""
    fight.hear(worker, {"event": "counted", "fence": fence})
    done = {"event": "released", "asked_ns": at_ns(at_s), "at_ns": at_ns(at_s + 0.01), "fence": fence}
    fight.hear(worker, done)


@pytest.fixture
def fight() -> Fight:
    """All workers acquire, one node freezes, one dies under a holder, one holder is killed and one is frozen."""
    rust, python, node = crew()
    fight = Fight(workers=[rust, python, node], start_ns=START_NS, end_ns=at_ns(12))
    for worker in fight.workers:
        fight.hear(worker, {"event": "ready"})
    fight.faults.append(Fault("node frozen", "node 2", at_ns(0.1), at_ns(2.0)))
    acquire(fight, rust, 0, 0.2, 10)
    release(fight, rust, 0.5, 10)
    acquire(fight, node, 0, 1.5, 20)
    fight.faults.append(Fault("node killed", "node 4", at_ns(2.5), at_ns(3.5)))
    fight.hear(node, {"event": "renewed", "at_ns": at_ns(2), "fence": 20, "remaining_ns": 2 * SECOND_NS})
    release(fight, node, 3.8, 20)
    dead = acquire(fight, node, 4.0, 4.1, 30)
    fight.killed(node, at_ns(4.5))
    fight.faults.append(Fault("holder killed", "node-1", at_ns(4.5), at_ns(6.2), dead))
    frozen = acquire(fight, python, 0, 6.2, 40)
    python.state = "frozen"
    acquire(fight, rust, 4.0, 8.3, 50)
    release(fight, rust, 8.4, 50)
    fight.faults.append(Fault("holder frozen", "python-1", at_ns(6.5), at_ns(9), frozen))
    fight.hear(python, {"event": "lost", "at_ns": at_ns(9.1), "fence": 40, "reason": "expired"})
    fight.count = 3
    return fight


def text_of(show: Callable[[Console], object]) -> str:
    """The output without a terminal."""
    console = Console(file=io.StringIO(), width=110)
    show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_records_are_those_that_the_checker_reads(fight: Fight) -> None:
    records = [json.loads(line) for line in fight.history()]
    fields = {"client", "name", "kind", "invoke_ns", "return_ns", "ok", "fence", "valid_until_ns"}
    assert {frozenset(record) for record in records} == {frozenset(fields)}
    kinds = [(record["client"], record["kind"], record["ok"]) for record in records if record["fence"] == 20]
    assert kinds == [("node-1", "acquire", True), ("node-1", "extend", True), ("node-1", "release", True)]


def test_a_killed_holder_gives_up_its_lock_in_the_history(fight: Fight) -> None:
    ends = [record for record in fight.records if record["fence"] == 30 and record["kind"] == "release"]
    assert [(end["ok"], end["invoke_ns"]) for end in ends] == [(False, at_ns(4.5))]


def test_a_frozen_holder_holds_until_its_validity_ends_and_no_longer(fight: Fight) -> None:
    assert fight.holds[3].over_ns == at_ns(8.2)
    assert fight.holds[3].reason == "expired"


def test_every_fault_has_an_outcome(fight: Fight) -> None:
    frozen, dead, killed, asleep = (report.outcome(fight, fault) for fault in fight.faults)
    assert frozen == "2 acquisitions meanwhile, longest wait 1.50 s"
    assert dead == "came back empty under node-1, which held the lock for 2.3 s, renewed 1 time"
    assert killed == "python-1 had it 1.7 s later, 2 s being the ttl"
    assert asleep == "rust-1 had it 1.8 s later; it woke up, was told lost (expired) and wrote nothing"


def test_a_fair_fight_is_good(fight: Fight) -> None:
    text = text_of(lambda console: report.write(console, fight, GOOD, [Path("timeline.svg")]))
    assert "BAD" not in text
    assert text.rstrip().endswith("OK: one holder at a time, fences in order, no update lost.")


def mutes(language: str) -> Callable[[Fight], None]:
    """Takes the acquisitions of one language away."""

    def mute(fight: Fight) -> None:
        for hold in fight.of(language):
            fight.holds.remove(hold)
            fight.count = (fight.count or 0) - hold.counted

    return mute


def equal_fences(fight: Fight) -> None:
    """Gives one fence twice."""
    fight.holds[1].fence = fight.holds[0].fence


BREAKS: dict[str, Callable[[Fight], None]] = {
    "lost update": lambda fight: setattr(fight, "count", 2),
    "unread": lambda fight: setattr(fight, "count", None),
    "silent language": mutes("Node"),
    "equal fences": equal_fences,
    "trouble": lambda fight: fight.troubles.append("rust-1 ended with 101"),
    "nothing": lambda fight: fight.holds.clear(),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_each_broken_promise_is_bad(fight: Fight, broken: str) -> None:
    BREAKS[broken](fight)
    text = text_of(lambda console: report.write(console, fight, GOOD, []))
    assert "BAD" in text
    assert "FAILED" in text


def test_what_the_checker_finds_is_bad_and_shown(fight: Fight) -> None:
    judgement = checker.Judgement(False, "5 records, 1 violations", ("two held it at once",))
    text = text_of(lambda console: report.write(console, fight, judgement, []))
    assert "FAILED" in text
    assert "two held it at once" in text


def test_a_call_without_quorum_is_shown_and_no_failure(fight: Fight) -> None:
    rust = fight.workers[0]
    fight.hear(rust, {"event": "asking", "at_ns": at_ns(9.5)})
    error = {"event": "error", "call": "acquire", "asked_ns": at_ns(9.5), "at_ns": at_ns(11), "fence": None}
    fight.hear(rust, {**error, "code": "unavailable", "message": "3 of 5 nodes did not answer"})
    text = text_of(lambda console: report.write(console, fight, GOOD, []))
    assert "OK" in text
    assert "3 of 5 nodes did not answer" in text


def test_the_picture_names_every_worker_and_fault(fight: Fight, tmp_path: Path) -> None:
    file = tmp_path / "timeline.svg"
    timeline.draw(fight, file)
    text = file.read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    # Type is drawn as outlines, with its text beside it as a comment.
    for word in ("the lock", "rust-1", "python-1", "node-1", "node 2", "node 4 dead,", "seconds", "told of its loss"):
        assert f"<!-- {word}" in text


def test_a_fight_that_never_began_can_be_drawn_and_reported(tmp_path: Path) -> None:
    empty = Fight(workers=crew())
    timeline.draw(empty, tmp_path / "timeline.svg")
    assert "FAILED" in text_of(lambda console: report.write(console, empty, GOOD, []))


def test_the_live_view_fits_a_small_terminal(fight: Fight) -> None:
    fight.nodes[1], fight.nodes[3] = "frozen", "dead"
    fight.workers = [worker for worker in fight.workers for _ in range(2)]
    fight.note(at_ns(4.5), "node-1 killed while it holds the lock")
    text = text_of(lambda console: console.print(view.screen(fight, at_ns(11))))
    assert len(text.splitlines()) < 24
    assert max(map(len, text.splitlines())) <= 80
    for word in ("2 ‖ frozen", "4 ✕ dead", "killed", "node-1 killed while it holds the lock"):
        assert word in text
