"""A terminal with programs in it, and somebody who types and reads."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.running import shell_status
from support.clock import until
from support.process import die_with_parent
from support.resp import LIMIT_S

_CHUNK = 4096

INTERRUPT, QUIT, STOP = "\x03", "\x1c", "\x1a"
"""Control and C, \\ and Z."""

HOLD = "\x13"
"""Control and S: nothing is written from now on."""


class Terminal:
    """A pseudo terminal whose first program leads its session. It shows what was written when it is looked at."""

    def __init__(self, command: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path) -> None:
        self._master, self._slave = os.openpty()
        self._bytes = bytearray()
        self._seen = 0
        self._hung_up = False
        os.set_blocking(self._master, False)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
        dies, slave = die_with_parent(), self._slave

        def prepare() -> None:
            if dies:
                dies()
            # It leads a new session by now, and this makes the terminal that of the session.
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            list(command),
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509  (it only makes system calls)
        )

    @property
    def shown(self) -> str:
        """All that was ever written to it."""
        self._read()
        return bytes(self._bytes).decode(errors="replace").replace("\r\n", "\n")

    @property
    def foreground(self) -> int:
        """The process group in the foreground."""
        return os.tcgetpgrp(self._master)

    @property
    def modes(self) -> list[Any]:
        """Its modes, as `termios` has them."""
        return termios.tcgetattr(self._slave)

    @property
    def echoes(self) -> bool:
        """Whether it shows what is typed."""
        return bool(self.modes[3] & termios.ECHO)

    def type(self, text: str) -> None:
        """Types this."""
        os.write(self._master, text.encode())

    def line(self, text: str) -> None:
        """Types a line, once what is shown so far was seen."""
        self._seen = len(self.shown)
        self.type(f"{text}\n")

    def expect(self, pattern: str, limit_s: float = LIMIT_S) -> re.Match[str]:
        """Waits until a pattern is shown behind what was seen before, and sees it."""
        found: list[re.Match[str]] = []

        def comes() -> bool:
            match = re.compile(pattern, re.M).search(self.shown, self._seen)
            found.extend([match] if match else [])
            return bool(match)

        try:
            until(comes, f"{pattern!r} is shown", limit_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; shown: {self.shown!r}") from None
        self._seen = found[0].end()
        return found[0]

    def end(self, limit_s: float = LIMIT_S) -> int:
        """Waits until the first program ends; returns its status as a shell shows it."""
        until(lambda: self.shown is None or self.process.poll() is not None, f"{self.process.args!r} ends", limit_s)
        return shell_status(self.process.returncode)

    def hang_up(self) -> None:
        """Closes the terminal, as a lost connection does."""
        if not self._hung_up:
            self._hung_up = True
            os.close(self._slave)
            os.close(self._master)

    def close(self) -> None:
        """Hangs up, and kills the first program if it goes on."""
        self.hang_up()
        self.process.kill()
        self.process.wait(LIMIT_S)

    def _read(self) -> None:
        # Nothing more comes now, or never again.
        with contextlib.suppress(OSError):
            while not self._hung_up and (data := os.read(self._master, _CHUNK)):
                self._bytes += data


def screen(shown: str) -> list[str]:
    """The lines that can be read in the end, of programs that only rewrite their last one."""
    lines: list[list[str]] = [[]]
    column = 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", shown, re.S):
        line = lines[-1]
        match token:
            case "\n":
                lines.append([])
                column = 0
            case "\r":
                column = 0
            case "\x1b[K":
                del line[column:]
            case "\x1b[2K":
                line.clear()
            case str() if not token.startswith("\x1b"):
                line += [" "] * (column - len(line))
                line[column : column + 1] = token
                column += 1
    return [text for line in lines if (text := "".join(line).rstrip())]
