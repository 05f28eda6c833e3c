"""Signals to `redlock run`: before the lock they end it, and once the command runs they are the command's."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time

import pytest

from cli.conftest import each_launcher, every_launcher
from cli.diary import diary_ns
from cli.redlock import STATUS, Redlock, freed, keys_of, numbered, taken, waiting
from cli.running import group_of, is_stopped
from conformance.history import SLACK_MS
from support.clock import until
from support.servers import Server

ENDING = ["TERM", "INT", "HUP", "QUIT"]
OTHERS = ["USR1", "USR2", "WINCH", "CONT"]

SLACK_S = SLACK_MS / 1000

QUIET_NS = 300_000_000
"""Longer than any pause of a process that writes each millisecond."""

STAGES = 24
"""At how many instants of its start it is met by a signal."""

STEP_S = 0.004
"""The time between two of them. Together they are longer than a start takes."""


@each_launcher("name_of", ENDING)
def test_one_that_waits_ends_at_once(redlock: Redlock, node: Server, name: str, name_of: str) -> None:
    before = keys_of(node, name)
    taken(node, name)
    running = redlock.start("run", name, "--", *redlock.work())
    waiting(node, name, running)
    running.send(numbered(name_of))
    assert running.end(SLACK_S).status == STATUS[name_of]
    assert not redlock.diary.entries(), "the command does not run"
    freed(node, name)
    (left,) = keys_of(node, name) - before
    assert left.startswith(b"redlock:waiters:"), "nothing is left behind but a hint"
    assert 0 < node.left_ms(left) <= 10_000, "which is gone in a moment"


def test_one_that_waits_for_a_slot_leaves_none_behind(redlock: Redlock, node: Server, name: str) -> None:
    holder = redlock.hold("--permits", "1", name)
    running = redlock.start("run", "--permits", "1", name, "--", "true")
    waiting(node, name, running)
    running.send(signal.SIGTERM)
    assert running.end(SLACK_S).status == STATUS["TERM"]
    redlock.end_work()
    assert holder.end().status == 0
    assert redlock.end("run", "-n", "--permits", "1", name, "--", "true").status == 0, "the slot is free"


@every_launcher
def test_the_command_gets_every_signal(redlock: Redlock, name: str) -> None:
    """So do its children, and nobody gets one twice."""
    # Several that end would hurry.
    names = ["TERM", *OTHERS]
    running = redlock.hold(name, work=["--catch", ",".join(names), "--forks", "1"])
    redlock.diary.begun(2)
    for each in names:
        running.send(numbered(each))
        redlock.diary.caught(each, 2)
    redlock.end_work()
    assert running.end().status == 0
    assert sorted(redlock.diary.signals()) == sorted(names * 2)


@pytest.mark.parametrize("name_of", ENDING)
def test_the_command_decides_how_to_end(redlock: Redlock, node: Server, name: str, name_of: str) -> None:
    running = redlock.hold(name, work=["--catch", name_of, "--status", "4"])
    running.send(numbered(name_of))
    redlock.diary.caught(name_of)
    assert running.runs
    assert node.has(name), "it has the lock until it has ended"
    redlock.end_work()
    ended = running.end()
    assert (ended.status, ended.err) == (4, "")
    assert not node.has(name)


@pytest.mark.parametrize("name_of", ["TERM", "USR1"])
def test_a_command_without_handlers_ends(redlock: Redlock, node: Server, name: str, name_of: str) -> None:
    running = redlock.hold(name, work=["--forks", "1"])
    redlock.diary.begun(2)
    running.send(numbered(name_of))
    assert running.end(SLACK_S).status == 128 + numbered(name_of)
    assert not node.has(name)


def test_a_second_signal_hurries(redlock: Redlock, node: Server, name: str) -> None:
    """A command that ends in its own time is killed that long after the second one."""
    running = redlock.hold("-t", "20s", "--kill-after", "1s", name, work=["--catch", "TERM,INT", "--forks", "1"])
    redlock.diary.begun(2)
    running.send(signal.SIGTERM)
    redlock.diary.caught("TERM", 2)
    began = time.monotonic()
    running.send(signal.SIGINT)
    redlock.diary.caught("INT", 2)
    ended = running.end(1 + SLACK_S)
    assert ended.status == STATUS["KILL"]
    assert time.monotonic() - began >= 1, "it has that time"
    assert not node.has(name)
    until(redlock.programs.only, "all of its group are dead", limit_s=SLACK_S)


def test_a_third_signal_kills(redlock: Redlock, node: Server, name: str) -> None:
    running = redlock.hold("-t", "60s", "--kill-after", "20s", name, work=["--catch", "TERM,INT"])
    for each in ("TERM", "INT"):
        running.send(numbered(each))
        redlock.diary.caught(each)
    running.send(signal.SIGTERM)
    assert running.end(SLACK_S).status == STATUS["KILL"]
    assert not node.has(name)


def test_one_signal_alone_does_not_hurry(redlock: Redlock, name: str) -> None:
    """A command may take its time, with the lock, after the signal that asks it to end."""
    running = redlock.hold("-t", "3s", "--kill-after", "100ms", name, work=["--catch", "TERM"])
    running.send(signal.SIGTERM)
    caught = redlock.diary.caught("TERM")
    until(lambda: diary_ns() - caught.at_ns > 3_500_000_000, "it takes its time")
    assert running.runs
    redlock.end_work()
    assert running.end().status == 0


def test_a_burst_of_signals(redlock: Redlock, node: Server, name: str) -> None:
    """Many at once are no trouble. The system joins equal ones."""
    running = redlock.hold(name, work=["--catch", "USR1,USR2,WINCH"])
    for _ in range(50):
        running.send(signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
    for each in ("USR1", "USR2", "WINCH"):
        redlock.diary.caught(each)
    redlock.end_work()
    assert running.end().status == 0
    assert not node.has(name)


def test_a_signal_at_every_stage_of_its_start(redlock: Redlock, node: Server, name: str) -> None:
    """It has always ended by that signal, with nothing left behind: no process and no key."""
    for stage in range(STAGES):
        running = redlock.start("run", "-t", "10s", f"{name}/{stage}", "--", "sleep", "60")
        met(running.pid, stage * STEP_S)
        running.send(signal.SIGTERM)
        assert running.end(2 * SLACK_S).status == STATUS["TERM"], stage
        # A release that the servers had no time to answer arrives all the same.
        until(functools.partial(is_free, node, f"{name}/{stage}"), f"it is released at stage {stage}", SLACK_S)
    until(redlock.programs.only, "nobody is left", limit_s=SLACK_S)


def is_free(node: Server, name: str) -> bool:
    """Whether nobody has the lock."""
    return not node.has(name)


def met(pid: int, after_s: float) -> None:
    """Waits until the process has had so much time since now, whatever state it is in then."""
    began = time.monotonic()
    until(lambda: time.monotonic() - began >= after_s, f"process {pid} has had {after_s} s")


@each_launcher("waits", [False, True])
def test_it_is_killed(redlock: Redlock, node: Server, name: str, waits: bool) -> None:
    """By SIGKILL, as by a lack of memory. The command dies with it, and the lock is free after its ttl."""
    if waits:
        taken(node, name)
        running = redlock.start("run", "-t", "3s", name, "--", *redlock.work())
        waiting(node, name, running)
    else:
        running = redlock.hold("-t", "3s", name, work=["--catch", "TERM,HUP,INT,QUIT", "--forks", "2"])
        redlock.diary.begun(3)
    running.kill()
    until(redlock.programs.only, "nobody is left", limit_s=SLACK_S)
    if waits:
        freed(node, name)
    assert redlock.end("run", "-w", f"{3000 + SLACK_MS}ms", name, "--", "true").status == 0


def test_it_is_killed_at_every_stage_of_its_start(redlock: Redlock, name: str) -> None:
    """There is no moment in which the command would outlive it."""
    for stage in range(STAGES):
        running = redlock.start("run", "-t", "1s", f"{name}/{stage}", "--", *redlock.work())
        met(running.pid, stage * STEP_S)
        running.kill()
    until(redlock.programs.only, "nobody is left", limit_s=SLACK_S)


def test_it_is_killed_with_a_stopped_command(redlock: Redlock, name: str) -> None:
    """Also its keeper may have been stopped, by a command that stops its whole group."""
    running = redlock.hold("-t", "3s", name, work=["--forks", "1"])
    began = redlock.diary.begun(2)
    os.killpg(os.getpgid(began[0].pid), signal.SIGSTOP)
    until(lambda: all(is_stopped(each.pid) for each in began), "they are stopped")
    running.kill()
    until(redlock.programs.only, "nobody is left", limit_s=SLACK_S)


@pytest.mark.parametrize("how", ["killed", "lost"])
def test_a_child_that_is_always_another_process(redlock: Redlock, own_node: Server, name: str, how: str) -> None:
    """Nobody escapes by forking."""
    running = redlock.at(own_node).hold("-t", "3s", name, work=["--hop", "--catch", "TERM"])
    group = group_of(redlock.diary.begun(2)[0].pid)
    try:
        if how == "killed":
            running.kill()
        else:
            own_node.freeze()
            assert running.end().status == 76
        # Who looks at one process after the other may never see it.
        until(lambda: diary_ns() - redlock.diary.last_ns() > QUIET_NS, "nobody is left", limit_s=SLACK_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def keeper_of(redlock: Redlock, command: int) -> int:
    """The process that would kill the command's group: the only other one in it."""
    group = os.getpgid(command)
    others: list[int] = []

    def found() -> bool:
        others[:] = [each.pid for each in redlock.programs.alive([command]) if group_of(each.pid) == group]
        return len(others) == 1

    until(found, "there is a keeper")
    return others[0]


def test_the_keeper_is_killed(redlock: Redlock, node: Server, name: str) -> None:
    """Another one takes its place: the command would otherwise outlive the program."""
    running = redlock.hold("-t", "5s", name, work=["--catch", "TERM"])
    (began,) = redlock.diary.of("begin")
    keeper = keeper_of(redlock, began.pid)
    os.kill(keeper, signal.SIGKILL)
    until(lambda: group_of(keeper) == 0 and keeper_of(redlock, began.pid) != keeper, "there is another one")
    assert running.runs
    assert node.has(name)
    running.kill()
    until(redlock.programs.only, "nobody is left", limit_s=SLACK_S)


def test_the_keeper_ignores_what_the_command_gets(redlock: Redlock, name: str) -> None:
    names = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH", "CONT", "TSTP", "TTIN", "TTOU", "ALRM", "PIPE"]
    running = redlock.hold("-t", "5s", name, work=["--catch", ",".join(names)])
    (began,) = redlock.diary.of("begin")
    keeper = keeper_of(redlock, began.pid)
    for each in names:
        os.killpg(os.getpgid(began.pid), numbered(each))
        redlock.diary.caught(each)
    assert keeper_of(redlock, began.pid) == keeper
    running.kill()
    until(redlock.programs.only, "nobody is left", limit_s=SLACK_S)


def test_a_signal_while_it_releases(redlock: Redlock, own_node: Server, name: str) -> None:
    """The command has ended, with a status that stays."""
    running = redlock.at(own_node).hold("-t", "20s", name, work=["--status", "3"])
    (began,) = redlock.diary.of("begin")
    own_node.freeze()
    redlock.end_work()
    until(lambda: not group_of(began.pid), "the command has ended")
    running.send(signal.SIGTERM)
    assert running.end(2 * SLACK_S).status == 3
    own_node.thaw()
    until(lambda: not own_node.has(name), "it is free")
