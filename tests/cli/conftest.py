"""Options of the tests of the program, and fixtures: the program by each of its launchers, and nodes."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cli.redlock import Redlock
from cli.running import Programs
from conformance.conftest import ROOT, log_ends
from support.servers import Cluster, Server

SHOWN = pytest.StashKey[list[tuple[str, Callable[[], str]]]]()
"""What a failure of this test case prints: a title, and a function that returns the text."""


def pytest_configure() -> None:
    """Programs start as from a terminal. What a shell runs in the background ignores these signals."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of the long test case."""
    group = parser.getgroup("cli")
    group.addoption("--trouble-seconds", type=float, help="how long servers and programs are killed (8, with --all 25)")
    group.addoption("--trouble-seed", type=int, default=1, help="another order of troubles")
    group.addoption("--redlock", type=Path, help="another program than the one that cargo has built", metavar="PROGRAM")


def _built() -> Path:
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "redlock"


def _console_script() -> Path:
    return Path(sys.executable).with_name("redlock")


def _linked_by_npm() -> Path:
    package = ROOT / "node"
    programs: dict[str, str] = json.loads((package / "package.json").read_text(encoding="utf-8")).get("bin", {})
    return package / programs.get("redlock", "the program, which package.json does not name")


LAUNCHERS = {"rust": _built, "python": _console_script, "node": _linked_by_npm}
"""The file that each way to install it executes."""

every_launcher = pytest.mark.parametrize("launcher", LAUNCHERS, indirect=True)
"""For what the hosts of the program could spoil: arguments, the exit status, signals, streams, the terminal."""


def each_launcher(name: str, values: Sequence[object]) -> pytest.MarkDecorator:
    """The program of cargo with each of the values of a parameter, and the other launchers with the first of them."""
    cases = [("rust", value) for value in values]
    cases += [(launcher, values[0]) for launcher in LAUNCHERS if launcher != "rust"]
    return pytest.mark.parametrize(("launcher", name), cases, indirect=["launcher"])


@pytest.fixture
def launcher(request: pytest.FixtureRequest) -> str:
    """How the program is installed."""
    name: str = getattr(request, "param", "rust")
    return name


@pytest.fixture
def program(pytestconfig: pytest.Config, launcher: str) -> Path:
    """The file that is executed."""
    given: Path | None = pytestconfig.getoption("--redlock") if launcher == "rust" else None
    path = given.absolute() if given else LAUNCHERS[launcher]()
    if not path.exists():
        pytest.fail(f"{path} is missing: cargo build -p redlock-cli", pytrace=False)
    return path


@pytest.fixture
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Programs]:
    """Starts programs, which have ended with the test case, as has everything that they have started."""
    programs = Programs(tmp_path)
    request.node.stash.setdefault(SHOWN, []).append(("programs", programs.shown))
    yield programs
    programs.stop()


@pytest.fixture(scope="session")
def node() -> Iterator[Server]:
    """A server that test cases share: do nothing to it."""
    with Server() as server:
        yield server


@pytest.fixture
def start_nodes(request: pytest.FixtureRequest) -> Iterator[Callable[..., Cluster]]:
    """Starts servers for this test case: `start_nodes(3, persist=True)`, with the options of `Cluster`."""
    started: list[Server] = []
    with ExitStack() as stack:

        def start(n: int, **options: Any) -> Cluster:
            cluster = stack.enter_context(Cluster(n, **options))
            started.extend(cluster)
            return cluster

        request.node.stash.setdefault(SHOWN, []).append(("servers", lambda: log_ends(started)))
        yield start


@pytest.fixture
def own_node(start_nodes: Callable[..., Cluster]) -> Server:
    """A server of this test case alone."""
    return start_nodes(1)[0]


@pytest.fixture
def redlock(programs: Programs, program: Path, node: Server) -> Redlock:
    """The program, on the shared server."""
    return Redlock(programs, program, [node.url])


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lock's name that no other test case uses."""
    nodeid: str = request.node.nodeid
    return nodeid.rpartition("/")[2]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the output of programs and servers to a failure."""
    report = yield
    if report.failed:
        report.sections += [(title, text()) for title, text in item.stash.get(SHOWN, [])]
    return report
