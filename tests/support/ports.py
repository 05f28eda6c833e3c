"""Free TCP ports, for servers and proxies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path

_PORT_FIRST = 20_000
_PORT_COUNT = 10_000

# How many ports were handed out on this machine, for this user. All tests count on, those in Rust too. A server binds
# its port some time after it got it, and until then no other process may get the same one.
_COUNT = Path("/tmp") / f"redlock-ports-{os.getuid()}"


def free_port() -> int:
    """Returns a TCP port that no process uses now."""
    with socket.socket() as probe:
        return bind_free_port(probe)


def bind_free_port(to_bind: socket.socket) -> int:
    """Binds a TCP socket to the next unused port of this machine; returns the port."""
    for _ in range(_PORT_COUNT):
        port = _PORT_FIRST + _count() % _PORT_COUNT
        with contextlib.suppress(OSError):
            to_bind.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no port is free between {_PORT_FIRST} and {_PORT_FIRST + _PORT_COUNT - 1}")


def _count() -> int:
    """Returns how many ports were handed out before."""
    with _COUNT.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        count = int(file.read() or 0)
        file.truncate(0)
        file.write(str(count + 1))
    return count
