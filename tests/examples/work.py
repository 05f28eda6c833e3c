"""Runs a program that calls `work`, or awaits it. `work` writes "working", and ends after a line of input.

The program is killed at its end, so that locks which it did not release stay.
"""

import asyncio
import builtins
import os
import runpy
import signal
import sys
from collections.abc import Awaitable


def _wait() -> None:
    print("working", flush=True)
    sys.stdin.readline()


def work(*_: object) -> Awaitable[None] | None:
    """What the lock protects: within an event loop it is awaited, and does not keep the loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        _wait()
        return None
    return asyncio.to_thread(_wait)


builtins.work = work  # type: ignore[attr-defined]
runpy.run_path(sys.argv[1], run_name="__main__")
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
