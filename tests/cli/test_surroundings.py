"""Where nobody sits at a terminal: cron, nohup, scripts, and containers, where it is the first process."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from cli.conftest import every_launcher
from cli.redlock import Redlock
from cli.running import MARK
from conformance.history import SLACK_MS
from support.clock import until
from support.servers import Server

SLACK_S = SLACK_MS / 1000


def test_cron(redlock: Redlock, node: Server, name: str) -> None:
    """Nearly no environment, no input, another folder, no terminal, and a mail of all output."""
    variables = {"PATH": os.environ["PATH"], MARK: redlock.programs.mark}
    options = f"-n --node {shlex.quote(node.url)} {shlex.quote(name)}"
    environment = shlex.join(f"{variable}={value}" for variable, value in variables.items())
    running = redlock.shell(f"cd / && env -i {environment} $(command -v redlock) run {options} -- sh -c 'echo done'")
    ended = running.end()
    assert (ended.status, ended.out, ended.err) == (0, "done\n", "")
    assert not node.has(name)


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


def test_the_first_process_of_a_container_is_killed(redlock: Redlock, first: Container, name: str) -> None:
    first.start("run", "-t", "3s", name, "--", *redlock.work("--catch", "TERM"))
    redlock.diary.begun()
    os.kill(first.pid(), signal.SIGKILL)
    first.running.end(SLACK_S)
    until(redlock.programs.only, "nobody is left", limit_s=SLACK_S)
