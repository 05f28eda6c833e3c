"""The program under test, for a test case: on which nodes, by which launcher, and what it has started."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.diary import Diary
from cli.running import Ended, Programs, Running
from cli.terminal import Terminal
from support.clock import until
from support.resp import LIMIT_S
from support.servers import Cluster, Server

WORK = Path(__file__).with_name("work.py")

LONG_MS = 60_000
"""A ttl of others' locks, which do not expire within a test case."""

Word = str | bytes | Path


class Redlock:
    """Starts `redlock` as users do: by its name, with a few variables of the environment."""

    def __init__(self, programs: Programs, program: Path, urls: Sequence[str]) -> None:
        self.programs = programs
        self.folder = programs.folder
        self.diary = Diary(self.folder / "diary")
        self.ending = self.folder / "ending"
        """The commands that `work` returns end when this file exists."""
        self._urls = urls
        self._bin = self.folder / "bin"
        self._program = self._bin / "redlock"
        if not self._bin.exists():
            self._bin.mkdir()
            self._program.symlink_to(program)

    def at(self, *nodes: Server | Cluster | str) -> Redlock:
        """The same program on other nodes, or at other addresses."""
        urls = [url for each in nodes for url in ([each] if isinstance(each, str) else _urls(each))]
        return Redlock(self.programs, self._program, urls)

    def environment(self, more: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """The environment of everything that is started here."""
        path = os.pathsep.join((str(self._bin), os.environ["PATH"]))
        return self.programs.environment({"PATH": path, "REDLOCK_URLS": ",".join(self._urls), **(more or {})})

    def start(self, *words: Word, env: Mapping[str, str | None] | None = None, **options: Any) -> Running:
        """Starts it with these arguments; takes the options of `Programs.start`."""
        return self.programs.start([self._program, *words], env=self.environment(env), **options)

    def end(self, *words: Word, limit_s: float = LIMIT_S, **options: Any) -> Ended:
        """Runs it to its end."""
        return self.start(*words, **options).end(limit_s)

    def shell(self, script: str, *, shell: Sequence[str] = ("sh",), **options: Any) -> Running:
        """Starts a script, which finds `redlock` and `$work` (and that command's end in `$ending`)."""
        env = {**self.variables, **(options.pop("env", None) or {})}
        return self.programs.start([*shell, "-c", script], env=self.environment(env), **options)

    def terminal(self, *command: Word, env: Mapping[str, str | None] | None = None) -> Terminal:
        """Opens a terminal with a program in it, by default `redlock` with these arguments."""
        words = [str(word) for word in command]
        environment = self.environment({"TERM": "xterm", **self.variables, **(env or {})})
        terminal = Terminal(words, env=environment, cwd=self.folder)
        self.programs.sessions.add(terminal.process.pid)
        self.programs.at_end(terminal.close)
        return terminal

    def bash(self) -> Terminal:
        """Opens a terminal with an interactive shell, which prompts with `> `."""
        env = {"TERM": "dumb", "PS1": "> ", "HISTFILE": "/dev/null", "INPUTRC": "/dev/null"}
        terminal = self.terminal("bash", "--norc", "--noprofile", "-i", env=env)
        terminal.expect("^> ")
        return terminal

    @property
    def variables(self) -> dict[str, str | None]:
        """What scripts find in their environment."""
        return {"work": shlex.join(map(str, self.work())), "ending": str(self.ending)}

    def work(self, *options: str) -> list[str]:
        """The command that keeps a diary; it ends when `end_work` is called."""
        return [sys.executable, "-I", "-S", str(WORK), str(self.diary.path), "--until", str(self.ending), *options]

    def end_work(self) -> None:
        """Ends every command of `work`."""
        self.ending.touch()

    def hold(self, *words: Word, work: Sequence[str] = (), **options: Any) -> Running:
        """Starts `redlock run` with these words in front of `--` and `work` behind it, and waits until that works."""
        before = len(self.diary.of("begin"))
        running = self.start("run", *words, "--", *self.work(*work), **options)
        until(
            lambda: len(self.diary.of("begin")) > before or not running.runs,
            f"the command begins; {running.err}",
        )
        assert running.runs, f"it has ended: {running.end()}"
        return running


def _urls(nodes: Server | Cluster) -> list[str]:
    return nodes.urls if isinstance(nodes, Cluster) else [nodes.url]


def taken(server: Server, name: str, *, label: str = "", fence: int = 7, ttl_ms: int = LONG_MS) -> None:
    """Has somebody else hold a lock, who answers to nobody."""
    value = f"{'0123456789abcdef' * 2}:{fence}{f':{label}' if label else ''}"
    assert server.command("SET", name, value, "NX", "PX", ttl_ms) == b"OK"


def freed(server: Server, name: str) -> None:
    """Has the other holder release it."""
    assert server.command("DEL", name) == 1


def keys_of(server: Server, name: str) -> set[bytes]:
    """The keys of a lock or a semaphore, also those of its fences and of those who wait."""
    return set(filter(lambda key: name.encode() in key, server.keys()))


def lasting_keys(server: Server) -> set[bytes]:
    """All keys but those that count who waits, which end by themselves."""
    return {key for key in sorted(server.keys()) if not key.startswith(b"redlock:waiters:")}


def waits(server: Server, name: str) -> bool:
    """Whether anybody waits for a lock or a semaphore, which is then counted on the server."""
    return any(key.startswith(b"redlock:waiters:") for key in keys_of(server, name))


def waiting(server: Server, name: str, running: Running) -> None:
    """Waits until the program waits for the lock."""
    until(lambda: waits(server, name) or not running.runs, f"it waits for the lock; {running.err}")
    assert running.runs, f"it has ended: {running.end()}"


def one_line(err: str) -> str:
    """The only line of an error."""
    lines = err.splitlines()
    assert len(lines) == 1, f"not one line: {err!r}"
    assert lines[0].startswith("redlock: "), err
    assert err.endswith("\n")
    return lines[0]


STATUS = {"TERM": 143, "INT": 130, "HUP": 129, "QUIT": 131, "KILL": 137}
"""The exit status of a shell's command by the signal that ended it."""


def numbered(name: str) -> signal.Signals:
    """The signal of a name without `SIG`."""
    return signal.Signals[f"SIG{name}"]
