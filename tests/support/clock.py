"""A wall clock of its own for a server, by a library that is preloaded into it (clock_shift.c)."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path


class ShiftedClock:
    """The clock of a process that is started with `environment`; right until it is shifted. Linux only.

    The program has to be linked dynamically, as the embedded Valkey and Redis as it is packaged are: nothing is
    preloaded into a static one, which `Server.shift_clock` then says.
    """

    def __init__(self, path: Path) -> None:
        self._offset = path
        self.shift(timedelta())

    @property
    def environment(self) -> dict[str, str]:
        """What the process has to be started with."""
        return {"LD_PRELOAD": str(_library()), "CLOCK_SHIFT": str(self._offset)}

    def shift(self, by: timedelta) -> None:
        """How far it is off from now on."""
        # In place, and at once: the process has this very file in its memory.
        with self._offset.open("r+b" if self._offset.exists() else "xb", buffering=0) as file:
            file.write((by // timedelta(microseconds=1)).to_bytes(8, "little", signed=True))


@functools.cache
def _library() -> Path:
    """Compiled once per run, by the compiler that the Rust crates need too."""
    directory = Path(tempfile.mkdtemp(prefix="redlock-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    library, source = directory / "clock_shift.so", Path(__file__).with_name("clock_shift.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library
