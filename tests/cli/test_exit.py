"""The exit status: the command's own, or one that says why it did not run or did not end by itself."""

from __future__ import annotations

import shlex
import signal
import time
from pathlib import Path

import pytest

from cli.conftest import each_launcher
from cli.redlock import Redlock, freed, lasting_keys, one_line, taken, waits
from conformance.history import SLACK_MS
from support.clock import until
from support.rights import fewest
from support.servers import Server

HELD, UNAVAILABLE, LOST, FORBIDDEN, USAGE = 75, 69, 76, 77, 64
NOT_EXECUTABLE, NOT_FOUND = 126, 127


@each_launcher("status", [75, 0, 1, 64, 255])
def test_it_is_that_of_the_command(redlock: Redlock, node: Server, name: str, status: int) -> None:
    ended = redlock.end("run", name, "--", "sh", "-c", f"echo out; echo err >&2; exit {status}")
    assert (ended.status, ended.out, ended.err) == (status, "out\n", "err\n")
    assert not node.has(name), "the lock is released"


@each_launcher("signal_name", ["TERM", "KILL", "SEGV", "PIPE", "INT"])
def test_of_a_command_that_dies_of_a_signal(redlock: Redlock, node: Server, name: str, signal_name: str) -> None:
    ended = redlock.end("run", name, "--", "sh", "-c", f"ulimit -c 0; kill -{signal_name} $$")
    assert ended.status == 128 + signal.Signals[f"SIG{signal_name}"]
    assert not node.has(name), "the lock is released"


@pytest.mark.parametrize(
    ("words", "least_ms"),
    [(["-n"], 0), (["--no-wait"], 0), (["-w", "0"], 0), (["-w", "1500ms"], 1500), (["--wait=1.5"], 1500)],
)
def test_a_lock_that_others_hold(redlock: Redlock, node: Server, name: str, words: list[str], least_ms: float) -> None:
    taken(node, name)
    ended = redlock.end("run", *words, name, "--", *redlock.work())
    assert ended.status == HELD
    assert name in one_line(ended.err)
    assert ended.took_s * 1000 >= least_ms
    assert ended.took_s * 1000 <= least_ms + 3 * SLACK_MS, "beside its start"
    assert not redlock.diary.entries(), "the command does not run"


@pytest.mark.parametrize("words", [["-n"], ["-w", "1500ms"]])
def test_no_word_about_a_lock_that_others_hold(redlock: Redlock, node: Server, name: str, words: list[str]) -> None:
    """Cron sends a mail of every word. Other errors stay."""
    taken(node, name)
    ended = redlock.end("run", "-q", *words, name, "--", "true")
    assert (ended.status, ended.err) == (HELD, "")
    ended = redlock.at("unix:///no/where.sock").end("run", "-q", *words, name, "--", "true")
    assert ended.status == UNAVAILABLE
    one_line(ended.err)


def test_a_wait_that_is_too_short_for_an_answer(redlock: Redlock, node: Server, name: str) -> None:
    """The lock may be free, so that is not the status for a lock that others hold: cron must hear of it."""
    node.command("CLIENT", "PAUSE", "5000", "WRITE")
    ended = redlock.end("run", "-q", "-E", "0", "-w", "200ms", name, "--", "true")
    node.command("CLIENT", "UNPAUSE")
    assert ended.status == UNAVAILABLE
    assert "before a quorum answered" in one_line(ended.err)


@pytest.mark.parametrize("words", [["-n", "-E", "7"], ["-w", "1500ms", "--conflict-exit-code", "7"]])
def test_a_status_of_ones_own_for_a_lock_that_others_hold(
    redlock: Redlock, node: Server, name: str, words: list[str]
) -> None:
    taken(node, name)
    assert redlock.end("run", *words, name, "--", "true").status == 7
    freed(node, name)
    assert redlock.end("run", *words, name, "--", "true").status == 0
    assert redlock.end("run", *words, name, "--", "sh", "-c", "exit 75").status == HELD, "the command's stays"


def test_no_node_answers(redlock: Redlock, name: str, tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/nowhere.sock"
    ended = redlock.at(nowhere).end("run", "-n", name, "--", *redlock.work())
    assert ended.status == UNAVAILABLE
    assert nowhere in one_line(ended.err), "it names the node"
    assert not redlock.diary.entries(), "the command does not run"


def test_no_node_answers_while_it_waits_for_ever(redlock: Redlock, name: str, tmp_path: Path) -> None:
    nowhere = redlock.at(f"unix://{tmp_path}/nowhere.sock")
    longer, quiet = (nowhere.start("run", "-w", "1d", *words, name, "--", "true") for words in ([], ["-q"]))
    ended = nowhere.end("run", name, "--", "true")
    assert ended.status == UNAVAILABLE
    assert ended.took_s < 10 + SLACK_MS / 1000 + 2, "for 10 s, beside the attempt itself"
    until(lambda: "waiting on" in longer.err, "who waits for longer says why")
    assert one_line(ended.err).partition("[")[2].split("]")[0] in one_line(longer.err), "with the same answers"
    assert [each.runs for each in (longer, quiet)] == [True, True]
    assert not quiet.err


def test_a_login_that_is_refused(redlock: Redlock, own_node: Server, name: str) -> None:
    own_node.set_user("worker", "on", ">right", "+@all", "~*")
    for ended in (
        redlock.at(own_node.url_as("worker", "battery-staple")).end("run", "-n", name, "--", *redlock.work()),
        redlock.at(own_node.url_as("nobody", "battery-staple")).end("run", name, "--", *redlock.work()),
    ):
        assert ended.status == FORBIDDEN
        assert "battery-staple" not in one_line(ended.err), "no password is said"
    assert not redlock.diary.entries(), "the command does not run"


def test_a_name_without_the_right_to_it(redlock: Redlock, own_node: Server) -> None:
    user = fewest()
    own_node.set_user(user.name, "on", ">battery-staple", *user.rules)
    at = redlock.at(own_node.url_as(user.name, "battery-staple"))
    (pattern,) = (rule[1:] for rule in user.rules if rule.startswith("~") and "redlock:" not in rule)
    assert at.end("run", "-n", pattern.replace("*", "mine"), "--", "true").status == 0
    ended = at.end("run", "-n", "theirs", "--", *redlock.work())
    assert ended.status == FORBIDDEN
    assert "battery-staple" not in one_line(ended.err)
    assert not redlock.diary.entries(), "the command does not run"


USAGES = {
    "no command": "run NAME",
    "nothing behind the dashes": "run NAME --",
    "no name": "run -- true",
    "no such option": "run --frobnicate NAME -- true",
    "no such command": "frobnicate",
    "both waits": "run -n -w 1s NAME -- true",
    "no duration": "run -w soon NAME -- true",
    "an unknown unit": "run -t 3days NAME -- true",
    "a ttl of nothing": "run -t 0 NAME -- true",
    "a long time to end": "run -t 3s --kill-after 1100ms NAME -- true",
    "a large margin": "run -t 3s --margin 1600ms NAME -- true",
    "longer than a week": "run -t 3s --at-least 8d NAME -- true",
    "no such end": "run --on-loss explode NAME -- true",
    "no exit status": "run -E 256 NAME -- true",
    "no permits": "run --permits 0 NAME -- true",
    "permits of two names": "run --permits 2 NAME other -- true",
    "at least, of two names": "run --at-least 1s NAME other -- true",
    "shared names": "run --shared NAME other -- true",
    "shared permits": "run -s --permits 2 NAME -- true",
    "shared, and at least": "run -s --at-least 1s NAME -- true",
    "a reserved name": "run redlock:fence:NAME -- true",
    "no address": "run --node nonsense NAME -- true",
    "no such file": "run --password-file /no/such/file NAME -- true",
    "nor in an address": "run --node redis://localhost?password_file=/no/such/file NAME -- true",
    "nor of a sentinel": "status --node redis+sentinel://localhost/m?sentinel_password_file=/no/such/file NAME",
    "no name to look at": "status",
    "no name to wait for": "wait",
    "no name to release": "release --force",
    "a release without force": "release NAME",
    "nobody to ask": "release NAME --force",
    "no such shell": "completions cobol",
    "too many words": "check NAME",
}


@pytest.mark.parametrize("words", USAGES.values(), ids=USAGES)
def test_a_usage_error(redlock: Redlock, node: Server, words: str) -> None:
    before = lasting_keys(node)
    ended = redlock.end(*shlex.split(words))
    assert ended.status == USAGE, ended
    assert ended.err.startswith("redlock: "), ended.err
    assert "panicked" not in ended.err
    assert not ended.out
    # Locks of others may have expired meanwhile.
    assert lasting_keys(node) <= before, "nothing is done"


def test_wrong_nodes_in_the_environment(redlock: Redlock) -> None:
    ended = redlock.end("run", "-n", "name", "--", "true", env={"REDLOCK_URLS": "http://localhost"})
    assert ended.status == USAGE
    assert "REDLOCK_URLS" in one_line(ended.err)


def test_a_node_of_the_command_line_comes_before_the_environment(redlock: Redlock, node: Server, name: str) -> None:
    for words in (["--node", node.url], [f"--node={node.url}", "--node", f"unix://{node.socket}?db=0"][:1]):
        ended = redlock.end("run", *words, "-n", name, "--", "true", env={"REDLOCK_URLS": "http://localhost"})
        assert (ended.status, ended.err) == (0, "")


def test_a_command_that_cannot_be_run(redlock: Redlock, node: Server, name: str, tmp_path: Path) -> None:
    """It is found out before anybody waits for the lock, and no node is asked for it."""
    plain = tmp_path / "plain"
    plain.write_text("true")
    taken(node, name)
    before = lasting_keys(node)
    for command, status in (
        ("no-such-command", NOT_FOUND),
        ("./no/such/command", NOT_FOUND),
        ("", NOT_FOUND),
        (str(plain), NOT_EXECUTABLE),
        (str(tmp_path), NOT_EXECUTABLE),
    ):
        ended = redlock.end("run", name, "--", command)
        assert (command, ended.status) == (command, status)
        assert command in one_line(ended.err)
    assert lasting_keys(node) <= before, "the lock was asked for"
    assert not waits(node, name)


def test_a_command_that_fails_to_start(redlock: Redlock, node: Server, name: str, tmp_path: Path) -> None:
    """Only the system finds it out, once the lock is held, which is then released."""
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    ended = redlock.end("run", name, "--", program)
    assert ended.status == NOT_FOUND
    assert str(program) in one_line(ended.err)
    assert not node.has(name), "the lock is released"


def test_a_script_without_an_interpreter(redlock: Redlock, name: str, tmp_path: Path) -> None:
    """It is the shell's, as for env(1)."""
    program = tmp_path / "program"
    program.write_text('echo "$1"; exit 3\n')
    program.chmod(0o755)
    ended = redlock.end("run", name, "--", program, "a b")
    assert (ended.status, ended.out) == (3, "a b\n")


def test_a_command_is_looked_up_on_the_path_of_the_command(redlock: Redlock, name: str, tmp_path: Path) -> None:
    for folder, said in (("first", "1"), ("second", "2")):
        program = tmp_path / folder / "hello"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho {said}\n")
        program.chmod(0o755 if said == "2" else 0o644)
    path = f"{tmp_path}/first:{tmp_path}/second:/usr/bin:/bin"
    ended = redlock.end("run", name, "--", "hello", env={"PATH": path})
    assert (ended.status, ended.out) == (0, "2\n"), "a file that nobody may execute is passed by"


def test_the_status_of_a_release_that_fails(redlock: Redlock, own_node: Server, name: str) -> None:
    """The command has done its work: its status stays, and what could not be released is said."""
    running = redlock.at(own_node).hold("-t", "20s", name, work=["--status", "3"])
    own_node.kill()
    redlock.end_work()
    began = time.monotonic()
    ended = running.end()
    assert ended.status == 3
    assert name in one_line(ended.err)
    assert time.monotonic() - began <= 3 * SLACK_MS / 1000


@pytest.mark.parametrize("words", [["--no-such"], []])
def test_nothing_to_do(redlock: Redlock, words: list[str]) -> None:
    ended = redlock.end(*words)
    assert ended.status == USAGE
    assert not ended.out
    assert "redlock" in ended.err
