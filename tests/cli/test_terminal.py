"""On a terminal, `redlock run` is as its command alone: it reads, is interrupted, is stopped and continued."""

from __future__ import annotations

import os
import re
import shlex
import signal
import termios

import pytest

from cli.conftest import each_launcher, every_launcher
from cli.diary import Entry, diary_ns
from cli.redlock import LONG_MS, Redlock, freed, keys_of, one_line, taken, waits
from cli.running import is_stopped
from cli.terminal import HOLD, INTERRUPT, QUIT, STOP, Terminal, screen
from conformance.history import SLACK_MS
from support.clock import until
from support.servers import Server

SLACK_S = SLACK_MS / 1000

LOST = 76


def stopped(process: Entry) -> bool:
    """Whether a process is stopped."""
    return is_stopped(process.pid)


def status(shell: Terminal) -> int:
    """The exit status of the last command, once the shell prompts for another."""
    shell.line("echo status=$?")
    return int(shell.expect(r"^status=(\d+)$")[1])


def run(shell: Terminal, redlock: Redlock, name: str, *work: str, options: str = "", behind: str = "") -> Entry:
    """Types a command line with `redlock run` and its work, and waits until that works."""
    before = len(redlock.diary.of("begin"))
    command = shlex.join(redlock.work(*work))
    shell.line(f"redlock run {options} {shlex.quote(name)} -- {command} {behind}")
    return redlock.diary.begun(before + 1)[-1]


def test_it_reads_what_is_typed(redlock: Redlock, node: Server, name: str) -> None:
    shell = redlock.bash()
    own = shell.foreground
    shell.line(f"redlock run {shlex.quote(name)} -- sh -c 'echo ready; read line; echo \"got $line\"'")
    shell.expect("^ready$")
    assert shell.foreground not in {own, 0}
    shell.type("hello\n")
    shell.expect("^got hello$")
    assert status(shell) == 0
    assert shell.foreground == own
    assert not node.has(name)


@each_launcher("number", [signal.SIGINT, signal.SIGQUIT])
def test_it_is_interrupted(redlock: Redlock, node: Server, name: str, number: int) -> None:
    shell = redlock.bash()
    shell.line("ulimit -c 0")
    run(shell, redlock, name, "--forks", "1")
    redlock.diary.begun(2)
    shell.type({signal.SIGINT: INTERRUPT, signal.SIGQUIT: QUIT}[signal.Signals(number)])
    assert status(shell) == 128 + number
    assert not node.has(name)
    until(lambda: redlock.programs.only(shell.process.pid), "nobody is left", limit_s=SLACK_S)


def test_it_gets_an_interrupt_once(redlock: Redlock, name: str) -> None:
    shell = redlock.bash()
    run(shell, redlock, name, "--catch", "INT", "--status", "4")
    shell.type(INTERRUPT)
    redlock.diary.caught("INT")
    shell.type(INTERRUPT)
    redlock.diary.caught("INT", 2)
    redlock.end_work()
    assert status(shell) == 4
    assert redlock.diary.signals() == ["INT"] * 2


@pytest.mark.parametrize("shell", ["sh", "bash", "bash -m"])
def test_an_interrupt_ends_the_script_around_it(redlock: Redlock, node: Server, name: str, shell: str) -> None:
    """As it ends a script around any command that dies of it."""
    bash = redlock.bash()
    script = f"redlock run {shlex.quote(name)} -- $work; echo not reached; sleep 60"
    if shell == "bash -m":
        # A job in a script with job control is alone in its group, so the script asks for its end.
        script = f"redlock run {shlex.quote(name)} -- $work || exit $?; sleep 60"
    bash.line(f"{shell} -c {shlex.quote(script)}")
    redlock.diary.begun()
    bash.type(INTERRUPT)
    assert status(bash) == 130
    assert "\nnot reached" not in bash.shown
    assert not node.has(name)


@every_launcher
def test_it_is_stopped_and_continued(redlock: Redlock, node: Server, name: str) -> None:
    shell = redlock.bash()
    own = shell.foreground
    began = run(shell, redlock, name, "--status", "6")
    foreground = shell.foreground
    assert os.getpgid(began.pid) == foreground != own
    for _ in range(2):
        shell.type(STOP)
        shell.expect("Stopped")
        until(lambda: stopped(began), "the command is stopped too")
        assert status(shell) in {128 + signal.SIGTSTP, 128 + signal.SIGSTOP}
        assert shell.foreground == own
        shell.line("fg")
        until(lambda: shell.foreground == foreground and not stopped(began), "it has the terminal again")
    redlock.end_work()
    assert status(shell) == 6
    assert not node.has(name)


def test_it_goes_on_in_the_background(redlock: Redlock, node: Server, name: str) -> None:
    shell = redlock.bash()
    began = run(shell, redlock, name)
    shell.type(STOP)
    shell.expect("Stopped")
    shell.line("bg")
    until(lambda: not stopped(began), "it goes on")
    assert shell.foreground == os.getpgid(shell.process.pid), "without the terminal"
    shell.line("kill %1; wait %1; echo status=$?")
    shell.expect("^status=143$")
    assert not node.has(name)


def test_it_reads_in_the_background(redlock: Redlock, name: str) -> None:
    """It is stopped, as every job is that reads there, and so is the job of the shell."""
    shell = redlock.bash()
    shell.line(f"redlock run {shlex.quote(name)} -- sh -c 'read line; echo \"got $line\"' &")
    until(lambda: "Stopped" in jobs(shell), "the job is stopped")
    shell.line("fg")
    until(lambda: shell.foreground != os.getpgid(shell.process.pid), "it has the terminal")
    shell.type("hello\n")
    shell.expect("^got hello$")
    assert status(shell) == 0


def jobs(shell: Terminal) -> str:
    """What the shell says of its jobs."""
    before = len(shell.shown)
    shell.line("jobs; echo told")
    shell.expect("^told$")
    return shell.shown[before:]


def test_it_is_lost_while_it_is_stopped(redlock: Redlock, own_node: Server, name: str) -> None:
    """Nothing renews it then. The command does not run for a moment more when the job is continued."""
    at = redlock.at(own_node)
    shell = at.bash()
    run(shell, at, name, "--beat", "--catch", "TERM", "--forks", "8", options="-t 3s")
    at.diary.begun(9)
    shell.type(STOP)
    shell.expect("Stopped")
    until(lambda: all(map(stopped, at.diary.of("begin"))), "the command is stopped")
    until(lambda: not own_node.has(name), "the lock is over")
    over_ns = diary_ns()
    assert at.end("run", "-n", name, "--", "true").status == 0, "others get it"
    shell.line("fg")
    assert status(shell) == LOST
    assert at.diary.last_ns() < over_ns
    assert not at.diary.signals()


def test_a_session_leader_is_not_stopped(redlock: Redlock, name: str) -> None:
    """Nobody could continue it, as in `ssh -t host redlock run`. Without us, the system would ignore ^Z there."""
    terminal = redlock.terminal("redlock", "run", name, "--", *redlock.work("--beat", "--catch", "INT"))
    redlock.diary.begun()
    until(lambda: terminal.foreground != terminal.process.pid, "the command has the terminal")
    terminal.type(STOP)
    terminal.type(INTERRUPT)
    redlock.diary.caught("INT")
    last_ns = redlock.diary.last_ns()
    until(lambda: redlock.diary.last_ns() > last_ns + 100_000_000, "it goes on")
    redlock.end_work()
    assert terminal.end() == 0


def test_a_terminal_that_is_held_delays_no_end(redlock: Redlock, own_node: Server, name: str) -> None:
    """Somebody has typed ^S: nothing can be told, and the command is killed in time all the same."""
    at = redlock.at(own_node)
    options = ["-t", "4s", "--margin", "700ms", "--kill-after", "1s"]
    terminal = at.terminal("redlock", "run", *options, name, "--", *at.work("--beat", "--catch", "TERM"))
    at.diary.begun()
    terminal.type(HOLD)
    own_node.freeze()
    term = at.diary.caught("TERM")
    assert terminal.end() == LOST
    assert at.diary.last_ns() < term.at_ns + 1_700_000_000 + SLACK_MS * 1_000_000


def test_a_pager_behind_it(redlock: Redlock, name: str) -> None:
    """It is in our group and reads from the terminal, which is not given away behind its back."""
    shell = redlock.bash()
    pager = 'cat; echo ready; read line </dev/tty; echo "pager got $line"'
    shell.line(f"redlock run {shlex.quote(name)} -- echo hello | sh -c {shlex.quote(pager)}")
    shell.expect("^hello\nready$")
    shell.type("q\n")
    shell.expect("^pager got q$")
    assert status(shell) == 0


def test_an_interrupt_in_a_pipeline(redlock: Redlock, node: Server, name: str) -> None:
    shell = redlock.bash()
    run(shell, redlock, name, behind="| cat")
    shell.type(INTERRUPT)
    assert status(shell) == 130
    assert not node.has(name)
    until(lambda: redlock.programs.only(shell.process.pid), "nobody is left", limit_s=SLACK_S)


def test_a_command_that_changes_the_modes_and_dies(redlock: Redlock, own_node: Server, name: str) -> None:
    """An editor that is killed leaves no terminal that shows nothing."""
    at = redlock.at(own_node)
    terminal = at.terminal(
        "redlock", "run", "-t", "3s", name, "--", "sh", "-c", "stty raw -echo; echo ready; exec sleep 60"
    )
    terminal.expect("ready")
    assert not terminal.echoes
    own_node.freeze()
    assert terminal.end() == LOST
    assert terminal.echoes
    assert terminal.modes[3] & termios.ICANON


def test_the_terminal_is_closed(redlock: Redlock, node: Server, name: str) -> None:
    """The connection of a person is lost: the command is notified, and the lock is released when it has ended."""
    terminal = redlock.terminal("redlock", "run", name, "--", *redlock.work("--end-on", "HUP", "--status", "5"))
    redlock.diary.begun()
    terminal.hang_up()
    redlock.diary.caught("HUP")
    until(redlock.programs.only, "everything has ended", limit_s=SLACK_S)
    assert not node.has(name)


def test_the_terminal_is_closed_while_it_waits(redlock: Redlock, node: Server, name: str) -> None:
    taken(node, name)
    terminal = redlock.terminal("redlock", "run", name, "--", "true")
    until(lambda: waits(node, name), "it waits")
    terminal.hang_up()
    until(redlock.programs.only, "it has ended", limit_s=SLACK_S)
    assert keys_of(node, name) - {name.encode()} <= {f"redlock:waiters:{{{name}}}".encode()}


def test_progress(redlock: Redlock, node: Server, name: str) -> None:
    """Who has it, for how long, and how many wait; it is gone when the command begins."""
    taken(node, name, label="deploy@host-7")
    terminal = redlock.terminal("redlock", "run", name, "--", "echo", "done")
    shown = terminal.expect("redlock: .*deploy@host-7[^\n]*")[0]
    assert name in shown
    other = redlock.start("run", name, "--", "true")
    terminal.expect("1 more waiting")
    freed(node, name)
    assert terminal.end() == 0
    assert other.end().status == 0
    assert screen(terminal.shown) == ["done"]


def test_progress_leaves_a_warning_alone(redlock: Redlock, name: str) -> None:
    """It has a line of its own."""
    inner = ["redlock", "run", "-w", "1500ms", name, "--", "true"]
    terminal = redlock.terminal("redlock", "run", name, "--", *inner)
    assert terminal.end() == 75
    assert [line.split(":")[1].split()[0] for line in screen(terminal.shown)] == ["lock", "lock"]


@pytest.mark.parametrize("how", ["quiet", "no wait"])
def test_no_progress(redlock: Redlock, node: Server, name: str, how: str) -> None:
    taken(node, name, label="deploy@host-7")
    words = {"quiet": ["-q", "-w", "1500ms"], "no wait": ["-n"]}[how]
    terminal = redlock.terminal("redlock", "run", *words, name, "--", "true")
    assert terminal.end() == 75
    assert "\r" not in terminal.shown
    assert "\x1b[K" not in terminal.shown
    assert "\x1b[2K" not in terminal.shown


@pytest.mark.parametrize(
    "variables",
    [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": None}],
    ids=["colours", "no colours", "dumb", "unknown"],
)
@pytest.mark.parametrize("words", [["run", "-n", "NAME", "--", "true"], ["check"]], ids=["an error", "a result"])
def test_colours(redlock: Redlock, node: Server, name: str, variables: dict[str, str | None], words: list[str]) -> None:
    taken(node, name)
    words = [name if word == "NAME" else word for word in words]
    terminal = redlock.terminal("redlock", *words, env=variables)
    terminal.end()
    assert ("\x1b[" in terminal.shown) == (not variables)
    ended = redlock.end(*words, env=variables)
    assert "\x1b" not in ended.out + ended.err, "without a terminal there are none"


def test_names_that_move_the_cursor(redlock: Redlock, own_node: Server) -> None:
    """What others have written is shown as text."""
    evil = "evil\x1b[2J\r\nname"
    own_node.command("SET", evil, f"{'0123456789abcdef' * 2}:7:evil\x1b[2Jlabel", "PX", LONG_MS)
    own_node.command("SET", f"redlock:fence:{{{evil}}}", 7)
    at = redlock.at(own_node)
    ended = at.end("run", "-n", evil, "--", "true")
    results = [at.end(*words).out for words in (["status", evil], ["list"], ["status", "--json", evil])]
    for said in (one_line(ended.err), *results):
        assert "evil" in said
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", said)
    terminal = at.terminal("redlock", "run", "-w", "1500ms", evil, "--", "true", env={"NO_COLOR": "1"})
    terminal.end()
    assert "evil" in terminal.shown
    assert "\x1b[2J" not in terminal.shown


def test_bash_without_a_terminal(redlock: Redlock, node: Server, name: str) -> None:
    """`bash -m` in a script: each job has a group, and none a terminal."""
    job = f"redlock run {shlex.quote(name)} --"
    script = f"{job} sh -c 'exit 3' & wait $!; echo status=$?; {job} true; echo status=$?"
    ended = redlock.shell(script, shell=["bash", "-m"]).end()
    assert re.findall(r"status=(\d+)", ended.out) == ["3", "0"]
    assert not node.has(name)
