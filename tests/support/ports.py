"""Free TCP ports, for servers and proxies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path

BUS = 10_000
"""How far the port for the other servers of a cluster is from the one for clients; Redis 6.2 knows no other choice."""

# The ports of servers for a cluster come first. So are their other ports below those that systems give to connections,
# which begin at 32768, and no connection has the port of a server that was killed and starts again.
_FOR_CLUSTERS = range(20_000, 22_700)
_FOR_ALL = range(22_700, 30_000)

# How many ports were handed out on this machine, for this user. All tests count on, those in Rust too. A server binds
# its port some time after it got it, and until then no other process may get the same one.
_COUNT = Path("/tmp") / f"redlock-ports-{os.getuid()}"


def free_port() -> int:
    """Returns a TCP port that no process uses now."""
    with socket.socket() as probe:
        return bind_free_port(probe)


def free_cluster_port() -> int:
    """Returns a TCP port for a server of a cluster, which no process uses now, nor the port for the other servers."""
    while True:
        with socket.socket() as probe, socket.socket() as bus, contextlib.suppress(OSError):
            port = _bind(probe, _FOR_CLUSTERS)
            bus.bind(("127.0.0.1", port + BUS))
            return port


def bind_free_port(to_bind: socket.socket) -> int:
    """Binds a TCP socket to the next unused port of this machine; returns the port."""
    return _bind(to_bind, _FOR_ALL)


def _bind(to_bind: socket.socket, ports: range) -> int:
    for _ in ports:
        port = ports[_count() % len(ports)]
        with contextlib.suppress(OSError):
            to_bind.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no port is free between {ports[0]} and {ports[-1]}")


def _count() -> int:
    """Returns how many ports were handed out before."""
    with _COUNT.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        count = int(file.read() or 0)
        file.truncate(0)
        file.write(str(count + 1))
    return count
