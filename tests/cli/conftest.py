"""Options of the tests of the program, and fixtures: the program by each of its launchers, and nodes."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Lets the launchers take turns in `make test`: in each test, each launcher and each value has a case."""
    if config.getoption("--all"):
        return
    values: dict[str, list[str]] = defaultdict(list)
    cases: dict[pytest.Item, tuple[list[str], str, int]] = {}
    for item in items:
        call = getattr(item, "callspec", None)
        if call and "launcher" in call.params and item.path.parent == Path(__file__).parent:
            launcher = call.params["launcher"]
            value = "-".join(each for each in call.id.split("-") if each != launcher)
            known = values[item.nodeid.partition("[")[0]]
            known += [value] if value not in known else []
            cases[item] = known, value, list(LAUNCHERS).index(launcher)

    def is_repeated(item: pytest.Item) -> bool:
        if item not in cases:
            return False
        known, value, launcher = cases[item]
        number = known.index(value)
        return launcher % len(known) != number and number % len(LAUNCHERS) != launcher

    config.hook.pytest_deselected(items=[item for item in items if is_repeated(item)])
    items[:] = [item for item in items if not is_repeated(item)]


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
"""For what the hosts of the program could spoil."""


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
