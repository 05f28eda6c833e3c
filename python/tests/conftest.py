import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server import LIMIT, Server

import redlock
from redlock import asyncio as aio

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    # Not pytest's directory: the path of a socket must be short.
    with tempfile.TemporaryDirectory() as directory:
        server = Server(Path(directory))
        yield server
        server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[redlock.Redlock]:
    with redlock.Redlock(server.url, ttl=5) as client:
        yield client


@pytest.fixture
def aclient(server: Server) -> Iterator[aio.Redlock]:
    client = aio.Redlock(server.url, ttl=5)
    yield client
    client.close()


_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"name-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def run(server: Server, name: str) -> Run:
    """Runs a program that has `client`, `name` and `until`; what it prints comes back."""

    def run(program: str, *options: str) -> "subprocess.CompletedProcess[str]":
        prelude = f"import redlock\nfrom server import until\nname = {name!r}\nurl = {server.url!r}\n"
        return subprocess.run(
            # Newer interpreters doubt each fork beside a thread; here that is what is tested.
            [
                sys.executable,
                "-W",
                "ignore:This process:DeprecationWarning",
                *options,
                "-c",
                prelude + "client = redlock.Redlock(url, ttl=5)\n" + program,
            ],
            cwd=Path(__file__).parent,
            env={**os.environ, "REDLOCK_URLS": server.url, "PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    return run
