"""A server that loads the application, locks and all, and then forks its workers."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from server import LIMIT, SLACK, Nodes
from support.clock import until


class Gunicorn:
    """The server with its workers, on a unix socket."""

    def __init__(self, directory: str, nodes: Nodes, name: str) -> None:
        self._path = f"{directory}/s"
        options = ["--preload", "--workers", "2", "--bind", f"unix:{self._path}", "--log-level", "critical"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *options, "wsgi:application"],
            cwd=Path(__file__).parent,
            env={**os.environ, "REDLOCK_URLS": ",".join(nodes.urls), "NAME": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def listens(self) -> bool:
        """Whether a worker answers; the socket has its name a moment before that."""
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(self._path) == 0

    def ask(self) -> tuple[int, bool, bool]:
        """The process that answers, and whether it holds its parent's locks and its own."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(LIMIT)
            connection.connect(self._path)
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with connection.makefile() as answer:
                pid, inherited, own = answer.read().rpartition("\n")[2].split()
        return int(pid), inherited == "True", own == "True"

    def workers(self, count: int, former: set[int]) -> set[int]:
        """Ask until as many workers have answered, all of them correctly."""
        found: set[int] = set()

        def enough() -> bool:
            pid, inherited, own = self.ask()
            assert not inherited
            assert own
            found.add(pid)
            return len(found - former) >= count

        until(enough)
        return found


@pytest.fixture
def gunicorn(nodes: Nodes, name: str) -> Iterator[Gunicorn]:
    with tempfile.TemporaryDirectory() as directory:
        server = Gunicorn(directory, nodes, name)
        try:
            until(server.listens)
            yield server
        finally:
            if server.process.poll() is None:
                server.process.terminate()
            server.process.communicate()


def test_workers_start_anew_and_give_back_what_they_hold(gunicorn: Gunicorn, nodes: Nodes, name: str) -> None:
    def held() -> list[object]:
        return [server.command("GET", f"{name}-held-1") for server in nodes.servers]

    # A quorum is enough: a busy node may grant later, or not at all.
    before = held()
    assert 2 * sum(value is not None for value in before) > len(before)
    first = gunicorn.workers(2, set())
    killed = first.pop()
    os.kill(killed, signal.SIGKILL)
    # Its successor is forked at another moment.
    (second,) = gunicorn.workers(1, {killed, *first}) - first
    assert all(now == value for value, now in zip(before, held(), strict=True) if value is not None)
    gunicorn.process.terminate()
    assert gunicorn.process.communicate(timeout=LIMIT) == ("", "")
    assert gunicorn.process.returncode == 0
    keys = [f"{name}-{key}" for key in ("held-0", "held-1", "busy", "loop", "request", *first, second)]
    until(lambda: not any(nodes.having(key) for key in keys), limit_s=SLACK)
