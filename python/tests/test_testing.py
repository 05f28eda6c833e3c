"""What the package offers to the tests of programs: `redlock.testing`, and fixtures for pytest."""

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import redlock
from redlock.testing import MemoryServer, lose


def test_durations() -> None:
    server = MemoryServer()
    lock = redlock.Redlock(server.url, timeout=0).lock("job")
    server.hold(b"job", ttl=timedelta(seconds=30))
    server.advance(29)
    assert not lock.acquire()
    server.advance(timedelta(seconds=1))
    with lock:
        lock.check()
    assert repr(server) == f"<redlock.testing.MemoryServer {server.url}>"


WRONG: list[tuple[Callable[[MemoryServer, redlock.Lock], object], str]] = [
    (lambda server, _: server.hold(""), "empty"),
    (lambda server, _: server.hold("a", ttl="1"), "ttl"),  # type: ignore[arg-type]
    (lambda server, _: server.release("redlock:fence:a"), "reserved"),
    (lambda server, _: server.advance(-1), "by"),
    (lambda _, lock: lose(lock, "broken"), "reason must be one of expired, taken"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_arguments(call: Callable[[MemoryServer, redlock.Lock], object], message: str) -> None:
    server = MemoryServer()
    with redlock.Redlock(server.url).lock("held") as lock, pytest.raises(redlock.LockInvalidArgument, match=message):
        call(server, lock)


FIXTURES = """
import asyncio
import redlock

seen = []

def test_the_default_client_is_on_the_server(redlock_server):
    seen.append(redlock_server.url)
    redlock_server.hold("job")
    assert not redlock.lock("job").acquire(), "the timeout that was configured stays in force"
    assert [view.node for view in redlock.inspect("job").nodes] == [redlock_server.url]

def test_each_test_has_another_server(redlock_server, redlock_client, redlock_aclient):
    assert redlock_server.url not in seen
    with redlock_client.lock("job"):
        assert not redlock.lock("job").acquire(timeout=0)
        assert asyncio.run(redlock_aclient.lock("job").locked())

def test_afterwards_the_default_client_is_the_former(monkeypatch):
    assert redlock.inspect("job").nodes[0].node == "memory://former"
"""


def test_fixtures_of_pytest(tmp_path: Path) -> None:
    """The plugin is found by its entry point, as in a program of somebody else."""
    program = "import redlock\nredlock.configure('memory://former', timeout=0.1)\n"
    (tmp_path / "conftest.py").write_text(program)
    (tmp_path / "test_program.py").write_text(FIXTURES)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:valkey", "-p", "no:asyncio", "."]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 passed" in result.stdout
