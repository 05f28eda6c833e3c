"""Starting and stopping processes, which die with the suite."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

TESTS = Path(__file__).resolve().parents[1]
SETPRIV = shutil.which("setpriv")


def python(module: str, *options: str) -> list[str]:
    """Returns the command that starts a Python program of the tests, such as `chaos.store`.

    The options are the interpreter's. Arguments of the program come behind the command.
    """
    return [sys.executable, *options, str(TESTS), module]


def start(
    command: Sequence[str],
    errors: IO[bytes] | IO[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a process that talks over its standard input and output, and that is killed when this one ends."""
    return subprocess.Popen(
        dying(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=env,
        cwd=cwd,
        # Ctrl-C is for this process alone, which ends the others.
        start_new_session=True,
    )


def dying(command: Sequence[str]) -> Sequence[str]:
    """Returns a command that is killed when the thread that starts it ends, without the cost of a fork.

    That needs setpriv, as every Linux with util-linux has it.
    """
    if not SETPRIV:
        return command
    # Its parent may end before it asks for the signal.
    return [SETPRIV, "--pdeathsig", "KILL", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid()), *command]


def die_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn`: the child is killed when the thread that starts it ends (Linux; elsewhere `None`)."""
    if sys.platform != "linux":
        return None
    # It is looked up here, because another thread's lock may be held for ever between fork and exec.
    prctl = ctypes.CDLL(None).prctl
    set_death_signal, kill, parent = 1, int(signal.SIGKILL), os.getpid()

    def ask_for_signal() -> None:
        prctl(set_death_signal, kill, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask_for_signal


def stop_process(pid: int) -> bool:
    """Stops a child without ending it and waits until it has stopped; false if it ended instead."""
    os.kill(pid, signal.SIGSTOP)
    _, status = os.waitpid(pid, os.WUNTRACED)
    return os.WIFSTOPPED(status)
