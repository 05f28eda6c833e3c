"""The program `redlock`, as the wheel installs it: the native half does all of it, and ends the process.

Python changes its process before any code of ours runs. This module takes back what a command would inherit, or what
native code would get in its way, so that the program is the one that cargo installs.
"""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from redlock import _native

_STANDARD = (0, 1, 2)

_LC_CTYPE = b"LC_CTYPE"
_COERCED = frozenset({b"C.UTF-8", b"C.utf8", b"UTF-8"})
"""What Python writes into `LC_CTYPE` if the locale is that of C, as under cron."""


def main() -> NoReturn:
    """Run the program with the arguments of this process, and end the process with its exit status."""
    _open_standard()
    _leave_signals()
    _leave_locale()
    _native.command_line(["redlock", *sys.argv[1:]])


def _open_standard() -> None:
    """Open /dev/null for each standard stream that is closed, or a connection would get its number."""
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _leave_signals() -> None:
    """Take Python's handlers away. SIGPIPE stays ignored, as in every program in Rust, and commands get its default."""
    # A shell starts what runs in the background with SIGINT ignored, and Python then has no handler.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def _leave_locale() -> None:
    """Give `LC_CTYPE` the value back that it had before Python, where the system tells."""
    if os.environb.get(_LC_CTYPE) not in _COERCED:
        return
    try:
        started_with = Path("/proc/self/environ").read_bytes()
    except OSError:
        return
    values = [entry.partition(b"=")[2] for entry in started_with.split(b"\0") if entry.startswith(_LC_CTYPE + b"=")]
    if values:
        os.environb[_LC_CTYPE] = values[0]
    else:
        del os.environb[_LC_CTYPE]
