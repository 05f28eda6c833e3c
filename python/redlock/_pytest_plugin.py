"""Fixtures for pytest, which finds them by an entry point of this package."""

from collections.abc import Iterator

import pytest

import redlock
from redlock import _default
from redlock.testing import MemoryServer


@pytest.fixture
def redlock_server() -> Iterator[MemoryServer]:
    """Make a new server in memory, which the default clients of redlock use until the test ends.

    What `redlock.configure` has set stays in force, except nodes, logins and TLS.
    """
    server = MemoryServer()
    with _default.instead(server.url):
        yield server


@pytest.fixture
def redlock_client(redlock_server: MemoryServer) -> Iterator[redlock.Redlock]:
    """Make a client of `redlock_server`, which is closed when the test ends."""
    with redlock.Redlock(redlock_server.url) as client:
        yield client


@pytest.fixture
def redlock_aclient(redlock_server: MemoryServer) -> Iterator[redlock.asyncio.Redlock]:
    """Make a client of `redlock_server` for asyncio, which is closed when the test ends."""
    client = redlock.asyncio.Redlock(redlock_server.url)
    yield client
    client.close()
