"""Programs in a test case: starting them, looking at them, and leaving none behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from conformance.history import SLACK_MS
from support.clock import until
from support.process import die_with_parent
from support.resp import LIMIT_S

MARK = "REDLOCK_TEST_CASE"
"""The variable by which a test case finds everything that it has started, whatever its parent or its group."""

KEEPER = "redlock-keeper"
"""The last word of the command of the shell that kills a group if the program is killed."""

Streams = int | IO[bytes] | None


def shell_status(code: int) -> int:
    """The exit status that a shell shows."""
    return 128 - code if code < 0 else code


@dataclass(frozen=True)
class Ended:
    """How a program has ended, and what it has written."""

    status: int
    """As in a shell: a signal's number and 128 if it died of that."""
    out: str
    err: str
    took_s: float


class Running:
    """A process that writes into files."""

    def __init__(self, began: float, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self._process = process
        self._out, self._err = out, err
        self._began = began
        self.ended_ns = 0
        """By `CLOCK_MONOTONIC`, once `end` has returned."""

    def __repr__(self) -> str:
        words = self._process.args
        return f"{words if isinstance(words, list) else [words]} (process {self.pid})"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def out(self) -> str:
        """What it has written to its standard output so far."""
        return self._out.read_text(encoding="utf-8", errors="replace")

    @property
    def err(self) -> str:
        """What it has written to its standard error so far."""
        return self._err.read_text(encoding="utf-8", errors="replace")

    @property
    def stdin(self) -> IO[bytes]:
        """Its standard input, if it was started with a pipe there."""
        assert self._process.stdin
        return self._process.stdin

    def send(self, *signals: signal.Signals) -> None:
        """Sends signals to this process alone."""
        for each in signals:
            self._process.send_signal(each)

    def end(self, limit_s: float = LIMIT_S) -> Ended:
        """Waits until it ends by itself."""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} goes on after {limit_s:g} s: {self.out}{self.err}") from None
        self.ended_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return Ended(shell_status(code), self.out, self.err, time.monotonic() - self._began)

    def kill(self) -> None:
        """Ends it at once, as a crash would; does nothing if it has ended."""
        self._process.kill()
        self._process.wait(LIMIT_S)

    def close(self) -> None:
        """Ends it, and closes its input."""
        self.kill()
        if self._process.stdin:
            # What was not read any more is lost.
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def full_pipe() -> tuple[int, int]:
    """A pipe that nobody reads, which blocks whoever writes to it: its two ends."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    return read, write


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped, as by SIGSTOP."""
    return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)


def group_of(pid: int) -> int:
    """The group of a process, 0 if it has ended."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


class Programs:
    """Starts programs of one test case, in an environment of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        # The system counts it in hundredths.
        self._began = time.time() - 1
        self._before = set(psutil.pids())
        """Processes that were there before, of which there may be hundreds."""
        self.sessions: set[int] = set()
        """The sessions of what was started, each of which has one of its own."""
        self._started: list[Running] = []
        self._closing: list[Callable[[], None]] = []

    def environment(self, more: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """A short environment with this in it; `None` takes a variable away."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        wanted: dict[str, str | None] = {**kept, "LANG": "C.UTF-8", MARK: self.mark, **(more or {})}
        return {name: value for name, value in wanted.items() if value is not None}

    def start(
        self,
        command: Sequence[str | bytes | Path],
        *,
        env: Mapping[str, str | None] | None = None,
        stdin: Streams = subprocess.DEVNULL,
        stdout: Streams = None,
        stderr: Streams = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
        before: Callable[[], object] | None = None,
    ) -> Running:
        """Starts a program in a session of its own, without a terminal. It is killed if this process dies.

        before   is called in the child before the program begins
        """
        number = len(self._started)
        out, err = self.folder / f"out{number}", self.folder / f"err{number}"
        dies = die_with_parent()

        def prepare() -> None:
            if dies:
                dies()
            if before:
                before()

        # A machine without a processor to spare may come back from the start when the program has waited already.
        began = time.monotonic()
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                list(command),
                stdin=stdin,
                stdout=out_file if stdout is None else stdout,
                stderr=err_file if stderr is None else stderr,
                env=self.environment(env),
                cwd=cwd,
                pass_fds=pass_fds,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509  (it only makes system calls)
            )
        self.sessions.add(process.pid)
        running = Running(began, process, out, err)
        self._started.append(running)
        return running

    def at_end(self, close: Callable[[], None]) -> None:
        """Has something closed before the test case looks for what it has left behind."""
        self._closing.append(close)

    def alive(self, but: Sequence[int] = ()) -> list[psutil.Process]:
        """All processes of the test case that are alive, but those."""
        found = (self._ours(pid) for pid in set(psutil.pids()) - self._before - set(but))
        return [process for process in found if process]

    def only(self, *processes: int) -> bool:
        """Whether no process of the test case is alive but those."""
        return not self.alive(processes)

    def shown(self) -> str:
        """All output so far."""
        return "\n\n".join(f"{each}:\n{each.out}\n{each.err}" for each in self._started)

    def stop(self) -> None:
        """Kills what still runs. Fails if anything is alive then: nobody but the program cleans up behind itself."""
        for close in self._closing:
            close()
        for running in self._started:
            running.close()
        try:
            until(self.only, "nothing is left behind", limit_s=SLACK_MS / 1000)
        except AssertionError:
            left = self.alive()
            for each in left:
                # It compares when the process was started, so that no other with its number is met.
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            raise AssertionError(f"left behind: {left}") from None

    def _ours(self, pid: int) -> psutil.Process | None:
        try:
            process = psutil.Process(pid)
            return process if self._has_mark(process) and process.status() != psutil.STATUS_ZOMBIE else None
        except (psutil.Error, ProcessLookupError, PermissionError):
            # It has ended, or is another user's.
            return None

    def _has_mark(self, process: psutil.Process) -> bool:
        # A keeper has no environment, and macOS shows nobody that of its own programs, such as shells.
        if sys.platform != "linux" or KEEPER in process.cmdline():
            return process.create_time() >= self._began and os.getsid(process.pid) in self.sessions
        return process.environ().get(MARK) == self.mark
