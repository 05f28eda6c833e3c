"""Options of the suite, what every story is given, and what a failure prints."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from driver import FACES, Driver, DriverError
from history import History
from servers import Cluster

ROOT = Path(__file__).parents[2]

LOG_END = 1000
"""How much of a server's log a failure prints, in characters."""

SHOWN = pytest.StashKey[list[tuple[str, Callable[[], str]]]]()
"""What a failure of this test prints: a title, and where to get the text."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Lets the suite be pointed at other programs."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--driver-dir", type=Path, help="where redlock-driver and redlock-history are (cargo's release dir)"
    )
    group.addoption("--server", type=Path, help="another server program than the first that is found")
    group.addoption(
        "--driver",
        action="append",
        default=[],
        metavar="FACE=COMMAND",
        help="another driver for a face; it is started with `--face FACE` behind the command",
    )
    group.addoption(
        "--known-failures",
        type=Path,
        default=Path(__file__).parent / "known_failures.toml",
        help="another list of them",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Has known failures fail."""
    known = tomllib.loads(config.getoption("--known-failures").read_text(encoding="utf-8"))["failure"]
    for item in items:
        for failure in known:
            # In ids, brackets are no pattern.
            if fnmatchcase(item.nodeid.rpartition("/")[2], failure["story"].replace("[", "[[]")):
                item.add_marker(pytest.mark.xfail(reason=failure["reason"], strict=True))


class Drivers:
    """Starts the drivers of one story."""

    def __init__(self, config: pytest.Config, stack: ExitStack, history: History) -> None:
        self._commands = dict(given.split("=", 1) for given in config.getoption("--driver"))
        self._config = config
        self._stack = stack
        self._history = history
        self.started: list[Driver] = []

    def start(self, face: str, env: Mapping[str, str] | None = None) -> Driver:
        """A new process for this face, with this added to its environment."""
        label = f"{face}#{len(self.started) + 1}"
        try:
            driver = self._stack.enter_context(Driver(FACES[face], self._command(face), self._history, label, env))
        except DriverError as error:
            # One that is missing is missing in every story: a trace would only be long.
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        self.started.append(driver)
        return driver

    def _command(self, face: str) -> list[str]:
        drivers = ROOT / "tests" / "drivers"
        if face in self._commands:
            return shlex.split(self._commands[face])
        if FACES[face].language == "rust":
            return [str(built(self._config, "redlock-driver"))]
        if FACES[face].language == "python":
            return [sys.executable, str(drivers / "python_driver.py")]
        return ["node", str(drivers / "node_driver.mjs")]


def built(config: pytest.Config, program: str) -> Path:
    """A program that cargo has built."""
    path: Path = (config.getoption("--driver-dir") or _release_dir()) / program
    if not path.exists():
        pytest.fail(f"{path} is missing: cargo build --release -p redlock-driver -p redlock-history", pytrace=False)
    return path


def _release_dir() -> Path:
    if target := os.environ.get("CARGO_TARGET_DIR"):
        return ROOT / target / "release"
    command = ["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    return Path(metadata["target_directory"]) / "release"


@pytest.fixture
def history(request: pytest.FixtureRequest) -> Iterator[History]:
    """What happened to locks in this story; judged when the drivers have ended."""
    records = History()
    yield records
    records.judge(built(request.config, "redlock-history"))


@pytest.fixture
def drivers(request: pytest.FixtureRequest, history: History) -> Iterator[Drivers]:
    """Starts drivers; they are killed at the end of the story."""
    with ExitStack() as stack:
        drivers = Drivers(request.config, stack, history)
        shown = request.node.stash.setdefault(SHOWN, [])
        shown.append(("drivers", lambda: "\n\n".join(f"{each.label}:\n{each.log()}" for each in drivers.started)))
        yield drivers


@pytest.fixture(scope="session")
def undisturbed(pytestconfig: pytest.Config) -> Iterator[Callable[[int], Cluster]]:
    """Nodes that all stories share, because none of them does anything to a server."""
    clusters: dict[int, Cluster] = {}

    def cluster(n: int) -> Cluster:
        if n not in clusters:
            clusters[n] = stack.enter_context(Cluster(n, program=pytestconfig.getoption("--server")))
        return clusters[n]

    with ExitStack() as stack:
        yield cluster


@pytest.fixture
def node(request: pytest.FixtureRequest, undisturbed: Callable[[int], Cluster]) -> Cluster:
    """One node, shared with other stories: leave it alone."""
    return _shown(request, undisturbed(1))


@pytest.fixture
def five_nodes(request: pytest.FixtureRequest, undisturbed: Callable[[int], Cluster]) -> Cluster:
    """Five nodes, shared with other stories: leave them alone."""
    return _shown(request, undisturbed(5))


@pytest.fixture(params=[1, 5], ids=["one node", "five nodes"])
def nodes(request: pytest.FixtureRequest, undisturbed: Callable[[int], Cluster]) -> Cluster:
    """One node, then five, shared with other stories: leave them alone."""
    return _shown(request, undisturbed(request.param))


@pytest.fixture
def own_nodes(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Five nodes of this story's own, to be frozen, killed and wiped."""
    with Cluster(5, program=request.config.getoption("--server")) as cluster:
        yield _shown(request, cluster)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lock's name that no other story uses."""
    nodeid: str = request.node.nodeid
    return nodeid.rpartition("/")[2]


def _shown(request: pytest.FixtureRequest, cluster: Cluster) -> Cluster:
    def logs() -> str:
        return "\n\n".join(f"{server}:\n{server.log()[-LOG_END:]}" for server in cluster)

    request.node.stash.setdefault(SHOWN, []).append(("servers", logs))
    return cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the drivers' lines and the servers' logs to a failure."""
    report = yield
    if report.failed:
        report.sections += [(title, text()) for title, text in item.stash.get(SHOWN, [])]
    return report
