"""The demo's report, live view and picture on a canned run, and a real run as `make demo` starts it."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from chaos import demo, holds, live, screen
from chaos.counts import Heard
from chaos.demo import CREW, EPOCH, KEEPER, Demo
from chaos.holds import Hold
from chaos.nodes import AT_ONCE, NODES, Nodes, struck
from chaos.run import Done
from chaos.schedule import TTL_S
from chaos.tally import LANGUAGES, Holder
from support.process import python

START_NS = 10**12

OVER_S = ((0.3, 2.0), (2.5, 3.5), (4.5, 6.2), (6.5, 9.0), (9.6, 11.9), (12.6, 14.9))
"""When the troubles of the canned run began and ended."""

RELEASED = {"kind": "release", "ok": True}


def at_ns(seconds: float) -> int:
    """An instant of the canned run."""
    return START_NS + round(seconds * 1e9)


def record(client: str, fence: int, from_s: float, to_s: float, **values: object) -> str:
    """A line of the history."""
    times = {"invoke_ns": at_ns(from_s), "return_ns": at_ns(to_s)}
    line = {"client": client, "name": "demo", "fence": fence, "ok": True, "valid_until_ns": None, **times, **values}
    return json.dumps(line) + "\n"


def acquire(client: str, asked_s: float, since_s: float, fence: int) -> str:
    """A client waits and acquires."""
    return record(client, fence, asked_s, since_s, kind="acquire", valid_until_ns=at_ns(since_s + TTL_S))


HISTORY = (
    acquire("rust-2.1/0", 0, 0.2, 10),
    record("rust-2.1/0", 10, 0.5, 0.51, **RELEASED),
    acquire("rust-1.1/0", 0, 1.5, 20),
    record("rust-1.1/0", 20, 2.5, 2.5, kind="extend", valid_until_ns=at_ns(4.0)),
    record("rust-1.1/0", 20, 3.8, 3.81, **RELEASED),
    acquire("node-6.1/0", 4.0, 4.1, 30),
    record("node-6.1/0", 30, 4.5, 4.5, kind="release", ok=False),
    acquire("python-3.1/0", 0, 6.2, 40),
    record("python-3.1/0", 40, 6.21, 6.22, kind="write"),
    acquire("rust-2.1/0", 4.0, 8.3, 50),
    record("rust-2.1/0", 50, 8.4, 8.41, **RELEASED),
    record("python-3.1/0", 40, 9.1, 9.1, kind="lost"),
    record("python-3.1/0", 40, 9.11, 9.12, kind="release", ok=False),
    acquire("node-5.1/0", 4.0, 9.4, 60),
    acquire("rust-1.1/0", 4.0, 11.2, 70),
    record("rust-1.1/0", 70, 11.4, 11.41, **RELEASED),
    record("node-5.1/0", 60, 12.0, 12.0, kind="lost"),
    record("node-5.1/0", 60, 12.01, 12.02, kind="release", ok=False),
    acquire("rust-2.1/0", 9.0, 12.4, 80),
    acquire("python-3.1/0", 10.0, 14.2, 90),
    record("python-3.1/0", 90, 14.4, 14.41, **RELEASED),
    record("rust-2.1/0", 80, 15.0, 15.0, kind="lost"),
    record("rust-2.1/0", 80, 15.01, 15.02, kind="release", ok=False),
)
"""All languages acquire, one node freezes, one crashes under a holder, one holder is killed, and then one holder of
each language is frozen."""


def held(folder: Path, *more: str) -> list[Hold]:
    """The holds of a canned run."""
    file = folder / "history.jsonl"
    file.write_text("".join([*HISTORY, *more]))
    return holds.read(file)


@pytest.fixture
def run(tmp_path: Path) -> Demo:
    """A good run, without starting anything."""
    run = never_began(tmp_path)
    run.start_ns, run.end_ns = START_NS, at_ns(17)
    run.epochs.append((EPOCH, START_NS, at_ns(16)))
    run.done = [Done(trouble, *map(at_ns, over_s)) for trouble, over_s in zip(EPOCH.troubles, OVER_S, strict=True)]
    run.served = run.waited = len(CREW)
    run.summaries = ["5 records, 0 violations"]
    for language in LANGUAGES:
        run.tally.acquired[language] = 2
        run.tally.seconds[START_NS // 10**9 + 3, language] = 2
    return run


def never_began(folder: Path) -> Demo:
    """A run before its first server."""
    return Demo(arena=Nodes(folder, 1, None, CREW, 1), checker=folder, out=folder, scheduled=[EPOCH])


def report(run: Demo, of: list[Hold]) -> str:
    """The report without a terminal."""
    console = Console(file=io.StringIO(), width=110)
    demo.write(console, run, of, [Path("timeline.svg")])
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_troubles_leave_a_quorum_and_come_one_after_the_other() -> None:
    assert len({trouble.where for trouble in EPOCH.troubles if struck(trouble)}) <= AT_ONCE
    for trouble, following in zip(EPOCH.troubles, EPOCH.troubles[1:], strict=False):
        assert trouble.until_s < following.at_s
    assert {CREW[trouble.where].language for trouble in EPOCH.troubles if trouble.kind is demo.STOP} == {*LANGUAGES}
    assert CREW[KEEPER].language == "Rust"
    assert [role.language for role in CREW] == [language for language in LANGUAGES for _ in range(2)]


def test_a_frozen_holder_holds_until_its_validity_ends_and_no_longer(tmp_path: Path) -> None:
    frozen = held(tmp_path)[3]
    assert (frozen.client, frozen.end, frozen.over_ns) == ("python-3.1/0", "lost", at_ns(6.2 + TTL_S))


def test_every_trouble_has_a_result(run: Demo, tmp_path: Path) -> None:
    frozen, crashed, killed, *asleep = (run.result(held(tmp_path), done) for done in run.done)
    came = "the next acquisition came 1.20 s later; 1 acquisitions a second meanwhile, 10 before"
    assert frozen == f"{came}; mean wait 1.50 s meanwhile, 200 ms before"
    assert crashed == "came back empty under worker 1 (Rust), which held the lock for 2.3 s, renewed 1 time"
    assert killed == "worker 3 (Python) had it 1.7 s later, 1.5 s being the ttl"
    woke_up = "it woke up, was told that it was lost and wrote nothing"
    assert asleep == [
        f"worker 2 (Rust) had it 1.8 s later; {woke_up}",
        f"worker 1 (Rust) had it 1.6 s later; {woke_up}",
        f"worker 3 (Python) had it 1.6 s later; {woke_up}",
    ]


@pytest.mark.parametrize(
    ("ok", "result"),
    [
        (False, "wrote all the same: the store refused its fence 40, which is not the largest"),
        (True, "wrote all the same, and the store took it"),
    ],
)
def test_a_late_write_is_a_result(run: Demo, tmp_path: Path, ok: bool, result: str) -> None:
    late = record("python-3.1/0", 40, 9.2, 9.21, kind="write", ok=ok)
    assert run.result(held(tmp_path, late), run.done[3]).endswith(f" and {result}")


def test_what_a_language_logs_of_a_trouble_is_noted_once(run: Demo) -> None:
    silent = Heard("worker 3", at_ns(0.5), "redlock.node", "warn", "node_silent", "it is silent")
    for heard in (
        silent,
        dataclasses.replace(silent, lane="worker 4"),
        dataclasses.replace(silent, lane="worker 5"),
        dataclasses.replace(silent, level="info", code="node_answers"),
        dataclasses.replace(silent, at_ns=at_ns(2.2), code="lock_lost"),
        dataclasses.replace(silent, at_ns=at_ns(5)),
        dataclasses.replace(silent, at_ns=START_NS, code="node_restarted"),
    ):
        run.tally.heard.append(heard)
        run.note_log(heard)
    said = "logs warn redlock.node"
    assert [note.text.split(":")[0] for note in run.notes] == [
        f"worker 3 (Python) {said} node_silent",
        f"worker 5 (Node) {said} node_silent",
        f"worker 3 (Python) {said} lock_lost",
        f"worker 3 (Python) {said} node_silent",
    ]


def test_a_fair_fight_is_good(run: Demo, tmp_path: Path) -> None:
    text = report(run, held(tmp_path))
    assert "BAD" not in text
    assert text.rstrip().endswith("OK: every promise was kept.")


def test_a_call_without_quorum_is_shown_and_no_failure(run: Demo, tmp_path: Path) -> None:
    run.tally.errors["unavailable"] += 1
    run.tally.said.append("rust-1.1/0: acquire: unavailable: 3 of 5 nodes did not answer")
    text = report(run, held(tmp_path))
    assert "OK" in text
    assert "3 of 5 nodes did not answer" in text


def test_the_picture_names_every_worker_and_trouble(run: Demo, tmp_path: Path) -> None:
    from chaos import picture  # noqa: PLC0415 - its library takes a second to load

    file = tmp_path / "timeline.svg"
    picture.draw(run, file, held(tmp_path, record("python-3.1/0", 40, 9.2, 9.21, kind="write", ok=False)))
    text = file.read_text()
    assert ET.fromstring(text).tag.endswith("svg")
    # Type is drawn as outlines, with its text beside it as a comment.
    lanes = ["the lock", "node 2", "node 4", *(f"worker {i}, {role.language}" for i, role in enumerate(CREW, 1))]
    for word in (*lanes, *(trouble.kind.name for trouble in EPOCH.troubles), "seconds"):
        assert f"<!-- {word}" in text
    for word in ("told of its loss", "its late write is refused", "its process is frozen or dead", "survived"):
        assert f"<!-- {word}" in text
    assert text.count("<!-- one ttl") == sum(trouble.kind.subject == "worker" for trouble in EPOCH.troubles)
    assert "<!-- view" not in text


def test_a_run_that_never_began_can_be_drawn_and_reported(tmp_path: Path) -> None:
    from chaos import picture  # noqa: PLC0415 - its library takes a second to load

    run = never_began(tmp_path)
    picture.draw(run, tmp_path / "timeline.svg")
    assert "FAILED" in report(run, [])


def show_holder(run: Demo) -> None:
    """Lets the canned run continue with one node frozen, one down, and one holder."""
    for trouble in EPOCH.troubles[:2]:
        run.active[trouble] = at_ns(10)
    run.tally.by_lane["worker 2"] = 123
    run.tally.holders["demo"] = Holder("rust-2.1/0", "Rust", 50, at_ns(10.5), at_ns(12))
    run.note(at_ns(4.5), "worker 6 (Node) is killed while it holds the lock")


def test_a_terminal_shows_lanes_and_keeps_the_events(run: Demo) -> None:
    show_holder(run)
    console = Console(file=io.StringIO(), width=80, force_terminal=True, _environ={"TERM": "xterm"})
    with live.opened(console, run, lambda now_ns: screen.screen(run, now_ns), lambda: screen.counts(run)) as view:
        view.show(at_ns(11))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "node 2: freeze" in text
    assert text.rstrip().endswith("worker 6 (Node) is killed while it holds the lock")


def play(out: Path) -> tuple[int, str]:
    """Plays the demo without a terminal; returns its exit status and output, after it has left nothing behind."""
    command = [*python("chaos.chaos"), "--demo", "--out", str(out)]
    with tempfile.TemporaryDirectory() as temporary:
        env = os.environ | {"TMPDIR": temporary}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, start_new_session=True
        ) as process:
            try:
                assert process.stdout
                said = ""
                while "acquisitions: " not in said:
                    said += (line := process.stdout.readline())
                    assert line, said
                children = psutil.Process(process.pid).children(recursive=True)
                said += process.stdout.read()
            finally:
                process.kill()
        assert len(children) > NODES + len(CREW)
        assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        assert not list(Path(temporary).iterdir())
    return process.returncode, said


@pytest.mark.test_all("make demo plays it", gate=True)
@pytest.mark.timeout(180)
def test_a_real_run_goes_through_all_troubles(tmp_path: Path) -> None:
    status, said = play(tmp_path)
    assert status == 0, said
    assert said.rstrip().endswith("OK: every promise was kept.")
    words = " ".join(said.split())
    for trouble in EPOCH.troubles:
        assert all(word in words for word in demo.WORDS[trouble.kind]), said
    for language in LANGUAGES:
        for what in ("node node_silent", "node node_restarted", "lock lock_lost"):
            assert f"({language}) logs warn redlock.{what}: " in words, said
    for result in (
        "acquisitions a second meanwhile",
        "under worker 1 (Rust)",
        "s being the ttl",
        "was told that it was lost",
    ):
        assert result in words, said
    assert {file.name for file in tmp_path.iterdir()} == {"timeline.svg", "epoch-0001.jsonl"}
