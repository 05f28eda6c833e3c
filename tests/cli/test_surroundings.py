"""Where nobody sits at a terminal: cron, nohup, scripts, and containers, where it is the first process."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cli.conftest import every_launcher
from cli.redlock import STATUS, Redlock, freed, one_line, taken, waiting
from cli.running import MARK
from conformance.history import SLACK_MS
from support.clock import until
from support.servers import Server

SLACK_S = SLACK_MS / 1000


@every_launcher
def test_cron(redlock: Redlock, node: Server, name: str) -> None:
    """Nearly no environment, no input, another folder, no terminal, and a mail of all output."""
    variables = {"PATH": os.environ["PATH"], MARK: redlock.programs.mark}
    options = f"-n --node {shlex.quote(node.url)} {shlex.quote(name)}"
    environment = shlex.join(f"{variable}={value}" for variable, value in variables.items())
    running = redlock.shell(f"cd / && env -i {environment} $(command -v redlock) run {options} -- sh -c 'echo done'")
    ended = running.end()
    assert (ended.status, ended.out, ended.err) == (0, "done\n", "")
    assert not node.has(name)


def test_an_empty_environment(redlock: Redlock, node: Server, name: str) -> None:
    """No path either. The system's default is looked through."""
    program = redlock.environment()["PATH"].partition(":")[0] + "/redlock"
    command = ["env", "-i", f"{MARK}={redlock.programs.mark}", program]
    words = ["run", "--node", node.url, name, "--", "/bin/sh", "-c", "exit 3"]
    assert redlock.programs.start([*command, *words]).end().status == 3


@pytest.mark.parametrize("launcher", ["rust", "python"], indirect=True)
def test_nohup(redlock: Redlock, node: Server, name: str) -> None:
    """Whoever ignores SIGHUP wants the command to survive the end of the session."""
    running = redlock.shell(f"exec nohup redlock run {shlex.quote(name)} -- $work 2>&1")
    redlock.diary.begun()
    running.send(signal.SIGHUP, signal.SIGHUP, signal.SIGHUP)
    redlock.end_work()
    assert running.end().status == 0
    assert redlock.diary.of("end")
    assert not node.has(name)


def test_nohup_while_it_waits(redlock: Redlock, node: Server, name: str) -> None:
    taken(node, name)
    running = redlock.shell(f"exec nohup redlock run {shlex.quote(name)} -- $work 2>&1")
    waiting(node, name, running)
    running.send(signal.SIGHUP)
    freed(node, name)
    redlock.diary.begun()
    redlock.end_work()
    assert running.end().status == 0


@every_launcher
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_script(redlock: Redlock, node: Server, name: str, shell: str) -> None:
    script = """
        set -e
        redlock run "$name" -- sh -c 'echo one'
        if redlock run "$name" -- false; then echo not reached; else echo "two $?"; fi
        echo three | redlock run "$name" -- cat
        redlock run "$name" -- $work &
        until test -s "$diary"; do sleep 0.01; done
        redlock run -n "$name" -- echo not reached || echo "four $?"
        : >"$ending"
        wait $!
        echo "five $?"
    """
    variables = {"name": name, "diary": str(redlock.diary.path)}
    ended = redlock.shell(script, shell=[shell], env=variables).end()
    assert ended.out == "one\ntwo 1\nthree\nfour 75\nfive 0\n", ended
    assert ended.status == 0
    assert not node.has(name)


def test_a_job_in_the_background_of_a_script(redlock: Redlock, name: str) -> None:
    """A shell without job control has it ignore INT and QUIT. The command does too, and TERM ends it."""
    running = redlock.shell(f"redlock run {shlex.quote(name)} -- $work & echo $!; wait $!; echo status=$?")
    redlock.diary.begun()
    until(lambda: running.out.endswith("\n"), "the shell tells its number")
    job = int(running.out)
    os.kill(job, signal.SIGINT)
    os.kill(job, signal.SIGQUIT)
    os.kill(job, signal.SIGTERM)
    assert running.end(SLACK_S).out.splitlines()[1:] == ["status=143"]


def test_a_trap_of_a_script(redlock: Redlock, name: str) -> None:
    """The usual way to pass a signal on."""
    job = f"redlock run {shlex.quote(name)} -- $work --end-on TERM --status 6"
    script = f'{job} & trap "kill $!" TERM; wait $!; wait $!; exit $?'
    running = redlock.shell(script)
    redlock.diary.begun()
    running.send(signal.SIGTERM)
    assert running.end(SLACK_S).status == 6


def test_timeout_of_coreutils(redlock: Redlock, node: Server, name: str) -> None:
    """It signals its own group, in which we are and the command is not."""
    # The command has begun by then.
    running = redlock.programs.start(
        ["timeout", "5", "redlock", "run", name, "--", *redlock.work("--end-on", "TERM")], env=redlock.environment()
    )
    assert running.end().status == 124
    assert redlock.diary.signals() == ["TERM"]
    assert not node.has(name)


def test_without_a_shell(redlock: Redlock, node: Server, name: str, tmp_path: Path) -> None:
    """As in an image from scratch: the program is its own keeper."""
    nothing = tmp_path / "nothing"
    nothing.touch()
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    script = f'mount --bind {nothing} $(readlink -f /bin/sh) && exec "$@"'
    if subprocess.run([*mount, script, "sh", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace of mounts may be made here")
    command = ["redlock", "run", name, "--", *redlock.work()]
    running = redlock.programs.start([*mount, script, "sh", *command], env=redlock.environment())
    redlock.diary.begun()
    running.kill()
    until(redlock.programs.only, "nobody is left", limit_s=SLACK_S)
    assert node.has(name)


CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def container() -> list[str]:
    """The command that runs another as the first process of a container, as far as one is allowed to."""
    for more in ([], ["--user", "--map-root-user"]):
        command = [*CONTAINER[:1], *more, *CONTAINER[1:]]
        if (
            shutil.which("unshare")
            and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
        ):
            return command
    pytest.skip("unshare is missing, or may not make a namespace of processes here")


class Container:
    """`redlock` as the first process of a container."""

    def __init__(self, redlock: Redlock) -> None:
        self.redlock = redlock
        self._command = container()

    def start(self, *words: str) -> None:
        """Starts it. It may end before anybody looks."""
        self._words = words
        self.running = self.redlock.programs.start([*self._command, "redlock", *words], env=self.redlock.environment())

    def pid(self) -> int:
        """Waits until it has begun, and returns the id of its process outside."""
        found: list[int] = []

        def started() -> bool:
            children = psutil.Process(self.running.pid).children()
            words = list(self._words)
            found.extend(child.pid for child in children if child.cmdline()[-len(words) :] == words)
            return bool(found)

        until(started, "it has begun in the container")
        return found[0]


@pytest.fixture
def first(redlock: Redlock) -> Container:
    """`redlock` as the first process of a container."""
    return Container(redlock)


@every_launcher
def test_the_first_process_passes_its_signals_on(redlock: Redlock, first: Container, node: Server, name: str) -> None:
    """The system does nothing with a signal to the first process that it does not handle."""
    first.start("run", name, "--", *redlock.work("--end-on", "TERM", "--status", "4"))
    redlock.diary.begun()
    os.kill(first.pid(), signal.SIGTERM)
    assert first.running.end(SLACK_S).status == 4
    assert redlock.diary.signals() == ["TERM"]
    assert not node.has(name)


@every_launcher
@pytest.mark.parametrize("name_of", ["TERM", "INT"])
def test_the_first_process_ends_while_it_waits(
    redlock: Redlock, first: Container, node: Server, name: str, name_of: str
) -> None:
    taken(node, name)
    first.start("run", name, "--", *redlock.work())
    waiting(node, name, first.running)
    os.kill(first.pid(), signal.Signals[f"SIG{name_of}"])
    assert first.running.end(SLACK_S).status == STATUS[name_of]


@every_launcher
def test_the_first_process_reaps_orphans(redlock: Redlock, first: Container, name: str, tmp_path: Path) -> None:
    """Processes whose parents have ended become its children. None stays behind, dead or as the command."""
    script = """
        for each in 1 2 3 4 5 6 7 8 9 10; do sh -c 'sh -c "exit 9" & exit 0'; done
        sleep 0 & wait
        until ! grep -hs '^State:.Z' /proc/[0-9]*/status; do sleep 0.01; done
        echo done; exit 5
    """
    first.start("run", name, "--", "sh", "-c", script)
    ended = first.running.end()
    assert ended.status == 5
    assert ended.out.endswith("done\n")


def test_a_command_of_the_first_process_that_goes_to_the_background(
    redlock: Redlock, first: Container, name: str
) -> None:
    """The end of the first process ends everything in the container: nothing goes on without the lock."""
    script = f"{shlex.join(redlock.work())} & until test -s {shlex.quote(str(redlock.diary.path))}; do sleep 0.01; done"
    first.start("run", name, "--", "sh", "-c", script)
    assert first.running.end().status == 0
    until(redlock.programs.only, "nobody is left", limit_s=SLACK_S)
    assert not redlock.diary.of("end")


def test_the_first_process_of_a_container_is_killed(redlock: Redlock, first: Container, name: str) -> None:
    first.start("run", "-t", "3s", name, "--", *redlock.work("--catch", "TERM"))
    redlock.diary.begun()
    os.kill(first.pid(), signal.SIGKILL)
    first.running.end(SLACK_S)
    until(redlock.programs.only, "nobody is left", limit_s=SLACK_S)


@pytest.mark.parametrize("launcher", ["python"], indirect=True)
def test_the_module_of_python(redlock: Redlock, node: Server, name: str) -> None:
    """`python -m redlock` is the same program."""
    command = [sys.executable, "-m", "redlock", "run", "-n", name, "--"]
    assert redlock.programs.start([*command, "sh", "-c", "exit 3"], env=redlock.environment()).end().status == 3
    taken(node, name)
    ended = redlock.programs.start([*command, "true"], env=redlock.environment()).end()
    assert ended.status == 75
    one_line(ended.err)
