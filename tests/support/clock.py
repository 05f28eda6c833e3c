"""Time: the clock that processes share, waiting for a state, and a separate wall clock for a server."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from support.resp import LIMIT_S

_POLL_S = 0.005


def now_ns() -> int:
    """Reads `CLOCK_MONOTONIC`, the clock that all processes of a machine share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def until(condition: Callable[[], object], what: str = "the condition is true", limit_s: float = LIMIT_S) -> None:
    """Waits until `condition` is true; fails after the limit with `what` was waited for."""
    began = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began
        assert waited_s < limit_s, f"not within {limit_s:g} s: {what}"
        # Looking costs processor time, and after a long wait a little more of it does not matter.
        time.sleep(min(max(_POLL_S, waited_s / 20), 4 * _POLL_S))


class ShiftedClock:
    """The clock of a process that is started with `environment`. It is right until it is shifted. Linux only.

    A library is preloaded into the process (clock_shift.c). The program has to be linked dynamically, as the embedded
    Valkey and packaged Redis are. Nothing can be preloaded into a static program; `Server.shift_clock` then says so.
    """

    def __init__(self, path: Path) -> None:
        self._offset = path
        self.shift(timedelta())

    @property
    def environment(self) -> dict[str, str]:
        """The environment that the process needs."""
        return {"LD_PRELOAD": str(_library()), "CLOCK_SHIFT": str(self._offset)}

    def shift(self, by: timedelta) -> None:
        """Sets how far the clock is off from now on."""
        # The file is changed in place and at once, because the process has it mapped into its memory.
        with self._offset.open("r+b" if self._offset.exists() else "xb", buffering=0) as file:
            file.write((by // timedelta(microseconds=1)).to_bytes(8, "little", signed=True))


@functools.cache
def _library() -> Path:
    """Compiles the library once per run, with the compiler that the Rust crates need too."""
    directory = Path(tempfile.mkdtemp(prefix="redlock-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    library, source = directory / "clock_shift.so", Path(__file__).with_name("clock_shift.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library
