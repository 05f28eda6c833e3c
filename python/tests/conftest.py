import itertools
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from conformance.covering import covering
from server import LIMIT, Nodes, Server
from support.process import TESTS

import redlock
from redlock import asyncio as aio

pytest_plugins = ["support.left_out"]


class Program(subprocess.Popen[str]):
    """A program with pipes."""

    stdin: IO[str]
    stdout: IO[str]


Start = Callable[..., Program]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Output = Callable[..., str]

PYTHONPATH = os.pathsep.join([str(Path(__file__).parent), str(TESTS)])
"""Where programs find the modules beside these tests, and those that all tests share."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the cases of `make test`: of each test as few as have each value of each parameter."""
    if config.getoption("--all"):
        return
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    chosen = {cases[at] for test, cases in tests.items() for at in covering(test, [*map(values, cases)])}
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def values(item: pytest.Item) -> set[tuple[int, str]]:
    """The values of the parameters of a case, as its id names them. Those of one mark are one value."""
    return (
        set(enumerate(item.callspec._idlist))
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else set()
    )


@pytest.fixture(scope="session")
def one_and_five() -> Iterator[dict[int, Nodes]]:
    both = {count: Nodes(count) for count in (1, 5)}
    yield both
    for nodes in both.values():
        nodes.stop()


@pytest.fixture
def server(one_and_five: dict[int, Nodes]) -> Server:
    return one_and_five[1].servers[0]


@pytest.fixture(params=[1, 5], ids=["one node", "five nodes"])
def nodes(request: pytest.FixtureRequest, one_and_five: dict[int, Nodes]) -> Nodes:
    return one_and_five[request.param]


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
def start(server: Server, name: str) -> Iterator[Start]:
    """Starts a program that has `client`, `name`, `urls` and `until`, on one node unless others are given.

    What comes `first` runs before all else.
    """
    started: list[Program] = []

    def start(program: str, *options: str, nodes: Nodes | None = None, first: str = "") -> Program:
        urls = [server.url] if nodes is None else nodes.urls
        prelude = f"{first}\nimport redlock\nfrom support.clock import until\nname = {name!r}\nurls = {urls!r}\n"
        process = Program(
            # Newer interpreters doubt each fork beside a thread; here that is what is tested.
            [
                sys.executable,
                "-W",
                "ignore:This process:DeprecationWarning",
                *options,
                "-c",
                prelude + "client = redlock.Redlock(urls, ttl=5)\n" + program,
            ],
            cwd=Path(__file__).parent,
            env={**os.environ, "REDLOCK_URLS": ",".join(urls), "PYTHONPATH": PYTHONPATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run(start: Start) -> Run:
    """Runs such a program to its end; what it prints comes back."""

    def run(
        program: str, *options: str, nodes: Nodes | None = None, first: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        process = start(program, *options, nodes=nodes, first=first)
        out, err = process.communicate(timeout=2 * LIMIT)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture
def output(run: Run) -> Output:
    """Runs such a program to its end, and fails unless that is a good one; what it prints comes back."""

    def output(program: str, *options: str, nodes: Nodes | None = None, first: str = "") -> str:
        done = run(program, *options, nodes=nodes, first=first)
        assert (done.stderr, done.returncode) == ("", 0), done.stdout
        return done.stdout

    return output
