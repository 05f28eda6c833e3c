"""A lock that cannot be kept: its command is asked to end, and is dead before anybody else can have the lock."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from cli.diary import diary_ns
from cli.redlock import Redlock, one_line, taken
from cli.running import Ended, full_pipe, group_of
from conformance.history import SLACK_MS
from support.clock import until
from support.proxy import HOLD, Proxy
from support.servers import Cluster, Server

LOST = 76

SLACK_S = SLACK_MS / 1000

TTL_MS = 4500
MARGIN_MS = 1000
"""As long as the machine may be late. Others get the lock after it."""

TIMES = ["-t", f"{TTL_MS}ms", "--margin", f"{MARGIN_MS}ms", "--kill-after", "1s"]
"""The command has a second to write down the signal that asks it to end."""


@pytest.fixture
def proxy(own_node: Server) -> Iterator[Proxy]:
    """A way to the server that can be held up, while the server itself still answers the test case."""
    with Proxy(own_node) as proxy:
        yield proxy


def expiry_ns(server: Server, name: str) -> float:
    """The earliest instant, on the clock of the diaries, when the server may give the lock to others."""
    asked_ns = diary_ns()
    left_ms = server.left_ms(name)
    assert left_ms > 0, "the lock is over already"
    return asked_ns + left_ms * 1e6


def test_a_command_that_ends_in_time(redlock: Redlock, own_node: Server, proxy: Proxy, name: str) -> None:
    running = redlock.at(proxy.url).hold(*TIMES, name, work=["--beat", "--end-on", "TERM", "--status", "3"])
    proxy.requests(HOLD)
    redlock.diary.caught("TERM")
    expires_ns = expiry_ns(own_node, name)
    ended = running.end()
    assert ended.status == LOST, "whatever the status of the command, its work cannot be relied on"
    assert redlock.diary.last_ns() < expires_ns
    assert_said(ended, name)


@pytest.mark.parametrize(
    "work", [["--catch", "TERM,CONT"], ["--catch", "TERM,CONT", "--forks", "3"]], ids=["alone", "forks"]
)
def test_a_command_that_does_not_end(
    redlock: Redlock, own_node: Server, proxy: Proxy, name: str, work: Sequence[str]
) -> None:
    """It is killed, and so are its children."""
    running = redlock.at(proxy.url).hold(*TIMES, name, work=["--beat", *work])
    proxy.requests(HOLD)
    redlock.diary.caught("TERM", 4 if "--forks" in work else 1)
    expires_ns = expiry_ns(own_node, name)
    ended = running.end()
    assert ended.status == LOST
    assert redlock.programs.only(), "all of them are dead when the program ends"
    assert redlock.diary.last_ns() < expires_ns
    assert_said(ended, name)


def assert_said(ended: Ended, name: str) -> None:
    """What is said of a loss: at its beginning and at its end, a line each, with the name."""
    lines = ended.err.splitlines()
    assert 1 <= len(lines) <= 2, ended.err
    assert all(line.startswith("redlock: ") for line in lines)
    assert name in lines[-1]


@pytest.mark.parametrize(
    ("options", "ttl_ms", "kill_after_ms", "margin_ms"),
    [(["-t", "6s"], 6000, 1000, 300), (["-t", "8s", "--margin", "2s", "--kill-after", "2s"], 8000, 2000, 2000)],
    ids=["without options", "with options"],
)
def test_when_it_is_asked_to_end(
    redlock: Redlock,
    own_node: Server,
    proxy: Proxy,
    name: str,
    options: Sequence[str],
    ttl_ms: float,
    kill_after_ms: float,
    margin_ms: float,
) -> None:
    """That long before others can have the lock: not at the first renewal that fails, nor too late."""
    running = redlock.at(proxy.url).hold(*options, name, work=["--beat", "--catch", "TERM"])
    proxy.requests(HOLD)
    term = redlock.diary.caught("TERM")
    expires_ns = expiry_ns(own_node, name)
    drift_ms = ttl_ms / 100 + 2
    early_ms = (expires_ns - term.at_ns) / 1e6 - (kill_after_ms + margin_ms + drift_ms)
    # The program counts from before it asked, and the server from when it answered.
    assert -SLACK_MS < early_ms < SLACK_MS
    assert running.end().status == LOST
    left_ms = (expires_ns - redlock.diary.last_ns()) / 1e6
    assert left_ms > 0, "it is dead before that"
    assert abs(left_ms - (margin_ms + drift_ms)) < SLACK_MS, "and neither much too early nor late"


@pytest.mark.parametrize("how", ["login", "right"])
def test_what_the_node_answered(redlock: Redlock, own_node: Server, name: str, how: str) -> None:
    """Each line says it, also of a command that ends when it is asked to."""
    own_node.set_user("worker", "on", ">battery-staple", "+@all", "~*")
    at = redlock.at(own_node.url_as("worker", "battery-staple"))
    running = at.hold("-t", "3s", name, work=["--end-on", "TERM"])
    own_node.set_user("worker", *(["resetpass", ">changed"] if how == "login" else ["-pexpire"]))
    own_node.command("CLIENT", "KILL", "USER", "worker")
    ended = running.end(3 + SLACK_S)
    assert ended.status == LOST
    assert_said(ended, name)
    answer = f"[{own_node.address}: refused with {'WRONGPASS' if how == 'login' else 'NOPERM'}"
    warning, error = ended.err.splitlines()
    assert "was not renewed, so it ends in " in warning
    assert answer in warning
    assert answer in error


def test_killed_without_being_asked(redlock: Redlock, own_node: Server, proxy: Proxy, name: str) -> None:
    running = redlock.at(proxy.url).hold(*TIMES, "--on-loss", "kill", name, work=["--beat", "--catch", "TERM"])
    (began,) = redlock.diary.of("begin")
    proxy.requests(HOLD)
    until(lambda: not group_of(began.pid), "it is killed", limit_s=TTL_MS / 1000 + SLACK_S)
    # Only the margin is left, and the program waits for its release before it ends.
    expires_ns = expiry_ns(own_node, name)
    ended = running.end(2 * SLACK_S)
    assert ended.status == LOST
    assert not redlock.diary.signals()
    assert redlock.diary.last_ns() < expires_ns
    assert_said(ended, name)


@pytest.mark.parametrize("how", ["frozen", "deleted"])
def test_a_command_that_goes_on_without_the_lock(redlock: Redlock, own_node: Server, name: str, how: str) -> None:
    running = redlock.at(own_node).hold(
        "-t", "1s", "--on-loss", "ignore", name, work=["--catch", "TERM", "--status", "5"]
    )
    if how == "frozen":
        own_node.freeze()
    else:
        own_node.command("DEL", name)
    until(lambda: running.err, "it says so")
    assert running.runs
    redlock.end_work()
    ended = running.end()
    assert ended.status == 5
    assert name in one_line(ended.err)
    assert not redlock.diary.signals()


@pytest.mark.parametrize("taken_by", [None, "somebody@else"], ids=["deleted", "taken"])
def test_the_lock_is_gone(redlock: Redlock, own_node: Server, name: str, taken_by: str | None) -> None:
    """Nothing is left to wait for: the command is killed as soon as it is known."""
    running = redlock.at(own_node).hold("-t", "3s", "--kill-after", "1s", name, work=["--beat", "--catch", "TERM"])
    own_node.command("DEL", name)
    if taken_by:
        taken(own_node, name, label=taken_by)
    ended = running.end(3 + SLACK_S)
    assert ended.status == LOST
    assert_said(ended, name)
    if taken_by:
        assert own_node.get(name), "the other's lock stays"


def test_the_release_finds_the_loss(redlock: Redlock, own_node: Server, name: str) -> None:
    running = redlock.at(own_node).hold("-q", "-t", "1m", name)
    own_node.command("DEL", name)
    redlock.end_work()
    ended = running.end()
    assert ended.status == LOST
    assert name in one_line(ended.err)


def test_the_longest_hold(redlock: Redlock, own_node: Server, name: str) -> None:
    at = redlock.at(own_node)
    # Renewals go on until then. Without them the end would come 1.5 s sooner.
    before_ns = diary_ns()
    running = at.hold(*TIMES, "--max-hold", "6s", name, work=["--beat", "--catch", "TERM"])
    (began,) = at.diary.of("begin")
    term = at.diary.caught("TERM")
    expires_ns = expiry_ns(own_node, name)
    asked_ns = (6000 - MARGIN_MS - 1000) * 1e6
    assert before_ns + asked_ns <= term.at_ns < began.at_ns + asked_ns + SLACK_MS * 1e6
    waiter = at.start("run", name, "--", *at.work("--beat"))
    ended = running.end()
    assert ended.status == LOST
    last_ns = max(entry.at_ns for entry in at.diary.entries() if entry.pid == began.pid)
    assert last_ns < expires_ns
    assert "max-hold" in ended.err
    at.diary.begun(2)
    at.end_work()
    assert waiter.end().status == 0
    at.diary.judge()


def test_a_short_trouble_is_none(redlock: Redlock, own_node: Server, proxy: Proxy, name: str) -> None:
    # Between the late renewal and the signal are two seconds.
    running = redlock.at(proxy.url).hold("-t", "6s", name, work=["--catch", "TERM"])
    proxy.requests(HOLD)

    def left_s() -> float:
        return (expiry_ns(own_node, name) - diary_ns()) / 1e9

    until(lambda: left_s() < 3.4, "a renewal is late")
    proxy.let_go()
    until(lambda: left_s() > 5, "it is renewed")
    redlock.end_work()
    ended = running.end()
    assert (ended.status, ended.err) == (0, "")
    assert not redlock.diary.signals()


def test_nobody_reads_what_it_says(redlock: Redlock, own_node: Server, proxy: Proxy, name: str) -> None:
    """A pipe that is full blocks whoever writes to it. That is not who has a command to kill."""
    read, write = full_pipe()
    running = redlock.at(proxy.url).hold(*TIMES, name, work=["--beat", "--catch", "TERM"], stderr=write)
    os.close(write)
    proxy.requests(HOLD)
    redlock.diary.caught("TERM")
    expires_ns = expiry_ns(own_node, name)
    assert running.end().status == LOST
    assert redlock.diary.last_ns() < expires_ns
    os.close(read)


def test_frozen_servers(redlock: Redlock, start_nodes: Callable[..., Cluster], name: str) -> None:
    nodes = start_nodes(3)
    at = redlock.at(nodes)
    running = at.hold("-t", "4s", "--kill-after", "1s", name, work=["--beat", "--catch", "TERM"])
    nodes[0].freeze()
    frozen = diary_ns()
    until(lambda: diary_ns() - frozen > 4.2e9, "a minority is of no importance: the ttl is over")
    assert running.runs
    nodes[1].freeze()
    ended = running.end(4 + SLACK_S)
    assert ended.status == LOST
    assert at.diary.signals() == ["TERM"]
    assert_said(ended, name)
    assert at.end("run", "-n", name, "--", "true").status == 69
    nodes[0].thaw()
    nodes[1].thaw()
    after = at.start("run", "-w", "10s", name, "--", *at.work("--beat"))
    at.diary.begun(2)
    at.end_work()
    assert after.end().status == 0
    at.diary.judge()


def test_killed_servers(redlock: Redlock, start_nodes: Callable[..., Cluster], name: str) -> None:
    nodes = start_nodes(3)
    running = redlock.at(nodes).hold("-t", "4s", name, work=["--catch", "TERM"])
    for node in nodes:
        node.kill()
    ended = running.end(4 + SLACK_S)
    assert ended.status == LOST
    assert_said(ended, name)


def test_a_stopped_command_is_killed(redlock: Redlock, own_node: Server, name: str) -> None:
    """It is continued for the end that it is asked for, and killed even if it is stopped again."""
    options = ["-t", "4500ms", "--kill-after", "1500ms"]
    running = redlock.at(own_node).hold(*options, name, work=["--end-on", "TERM", "--forks", "1"])
    for each in redlock.diary.begun(2):
        os.kill(each.pid, signal.SIGSTOP)
    own_node.freeze()
    ended = running.end(4.5 + SLACK_S)
    assert ended.status == LOST
    assert redlock.diary.signals() == ["TERM"] * 2, "it was continued"


@pytest.mark.parametrize("group", ["own", "session"])
def test_a_command_in_another_group(redlock: Redlock, own_node: Server, name: str, group: str) -> None:
    """The command is our child, and is met wherever it has gone; see the page for what it starts there."""
    options = ["-t", "4500ms", "--kill-after", "1500ms"]
    running = redlock.at(own_node).hold(*options, name, work=["--catch", "TERM", "--group", group])
    own_node.freeze()
    ended = running.end(4.5 + SLACK_S)
    assert ended.status == LOST
    assert redlock.diary.signals() == ["TERM"]
    assert redlock.programs.only(), "it is dead"


def test_the_program_itself_was_stopped(redlock: Redlock, own_node: Server, name: str) -> None:
    """Nobody can kill anything while it is stopped, as the page says; once it goes on, the command is dead at once."""
    at = redlock.at(own_node)
    running = at.hold("-t", "3s", name, work=["--beat", "--catch", "TERM"])
    running.send(signal.SIGSTOP)
    until(lambda: not own_node.has(name), "the lock is over")
    other = at.start("run", "-n", name, "--", "true")
    assert other.end().status == 0, "others have it"
    running.send(signal.SIGCONT)
    continued = time.monotonic()
    assert running.end().status == LOST
    assert time.monotonic() - continued < SLACK_S
    assert redlock.programs.only()


def test_a_quiet_loss(redlock: Redlock, own_node: Server, name: str) -> None:
    """`--quiet` is for warnings; that the command was killed is an error."""
    # Between the first renewal that fails and the signal are two seconds.
    running = redlock.at(own_node).hold("-q", "-t", "6s", name, work=["--end-on", "TERM"])
    own_node.freeze()
    ended = running.end(6 + SLACK_S)
    assert ended.status == LOST
    assert name in one_line(ended.err)
    assert f"[{own_node.address}: no answer" in ended.err
