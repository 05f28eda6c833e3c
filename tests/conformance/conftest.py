"""Options of the suite, fixtures of test cases, and what a failure prints."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conformance.covering import covering
from conformance.driver import FACES, Driver, DriverError
from conformance.history import History
from conformance.left_out import LEFT_OUT, is_about_one_node, is_listed
from support.process import python
from support.proxy import Network
from support.rights import fewest, for_any_name, in_cluster, refused
from support.rules import OPTIONAL, Rule, unknown
from support.servers import Cluster, Group, Server, User, programs, system, version
from support.shards import Shards
from support.topology import TOPOLOGIES

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

MOST_IDLE = 2
"""How many drivers of a face wait for another test case."""

LOG_END = 5000
"""How much of a server's log a failure prints, in characters."""

every_face = pytest.mark.parametrize("face", FACES)
"""Runs a story on each face."""

SHOWN = pytest.StashKey[list[tuple[str, Callable[[], str]]]]()
"""The texts that a failure of this test prints: a title, and a function that returns the text."""

TIERS = pytest.StashKey[tuple[list[pytest.Item], list[pytest.Item]]]()
"""The test cases that the options can test, and those of them that run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options that point the suite at other programs."""
    group = parser.getgroup("conformance")
    group.addoption(
        "--driver-dir",
        help="where redlock-driver and redlock-history are (cargo's debug directory)",
        metavar="DIRECTORY",
    )
    group.addoption(
        "--server",
        action="append",
        default=[],
        metavar="PROGRAM",
        help="a server program under test, instead of all that are found; can be given more than once",
    )
    group.addoption(
        "--acl", action="store_true", help="let clients log in as the user with the fewest rights (.github/SECURITY.md)"
    )
    group.addoption(
        "--fewest-commands",
        action="store_true",
        help="let no server know a command that the library can do without, and leave out test cases that need one",
    )
    group.addoption(
        "--topology",
        choices=TOPOLOGIES,
        help="put a cluster, or a primary that sentinels name, in the place of a server, and run what uses one node",
    )
    group.addoption(
        "--take-turns",
        action="store_true",
        help="run each test case of a face on one server alone; the faces take turns, so each story is on every server",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what the options cannot test, and chooses the cases of this tier.

    It comes last, so that each story keeps a case of those that `-k` selects.
    """
    topology = config.getoption("--topology")
    lists = [LEFT_OUT[topology]] if topology else []
    lists += [LEFT_OUT["fewest commands"]] if config.getoption("--fewest-commands") else []

    def stays(item: pytest.Item) -> bool:
        is_left_out = any(is_listed(item, each) for each in lists) or (topology and not is_about_one_node(item))
        return not is_left_out

    possible = [item for item in items if stays(item)]
    chosen = possible
    if config.getoption("--take-turns"):
        turns = Turns(under_test(config), chosen)
        chosen = [item for item in chosen if turns.has(item)]
    if not config.getoption("--all"):
        chosen = tier(chosen)
    config.stash[TIERS] = possible, chosen
    left_out = set(items) - set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = chosen


def tier(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The test cases of `make test`: of each story of this suite as few as have each value of each parameter."""
    stories: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.path.is_relative_to(HERE):
            stories[story(item)].append(item)
    left_out = set[pytest.Item]()
    for name, cases in stories.items():
        chosen = covering(name, [values(case) for case in cases])
        left_out.update(case for at, case in enumerate(cases) if at not in chosen)
    return [item for item in items if item not in left_out]


def values(item: pytest.Item) -> set[tuple[str, str]]:
    """The values of a test case: its rows, as its id names them, and the language of each of its faces by itself."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return set()
    faces = {name: value for name, value in given(item).items() if isinstance(value, str) and value in FACES}
    # A pair of faces has one name in the id.
    rows = {(str(at), row) for at, row in enumerate(item.callspec._idlist) if row != "-".join(faces.values())}
    return rows | {(name, FACES[face].language) for name, face in faces.items()}


class Turns:
    """The turns of faces on the servers, so that each story is on every server."""

    def __init__(self, under: Sequence[Path], items: Iterable[pytest.Item]) -> None:
        self._under = under
        self._faces: dict[str, list[str]] = defaultdict(list)
        for item in items:
            face = given(item).get("face")
            if face in FACES and face not in self._faces[story(item)]:
                self._faces[story(item)].append(face)

    def has(self, item: pytest.Item) -> bool:
        """Whether a test case has its turn on its server; always in a story of too few faces."""
        faces, program, face = self._faces[story(item)], given(item).get("program"), given(item).get("face")
        if program not in self._under or face not in faces or len(faces) < len(self._under):
            return True
        first = zlib.crc32(story(item).encode())
        return self._under.index(program) == (first + faces.index(face)) % len(self._under)


def given(item: pytest.Item) -> Mapping[str, Any]:
    """The parameters of a test case."""
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def story(item: pytest.Item) -> str:
    """A test case without its parameters."""
    return item.nodeid.partition("[")[0]


def under_test(config: pytest.Config) -> list[Path]:
    """The server programs that test cases run on."""
    return [Path(shutil.which(given) or given) for given in config.getoption("--server")] or programs()


def pytest_configure(config: pytest.Config) -> None:
    """Looks at the options and the servers before anything runs."""
    if config.getoption("--topology") and config.getoption("--fewest-commands"):
        raise pytest.UsageError("servers of a group are used by TCP, and not by a proxy that takes commands away")
    try:
        for program in under_test(config):
            version(program)
    except (FileNotFoundError, RuntimeError) as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs test cases about servers on every program; if there are several, the id names the program."""
    if "program" in metafunc.fixturenames:
        under = under_test(metafunc.config)
        ids = [version(program) for program in under] if len(under) > 1 else [pytest.HIDDEN_PARAM]
        metafunc.parametrize("program", under, ids=ids)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Names the servers."""
    line = ", ".join(f"{version(program)} ({_from_root(program)})" for program in under_test(config))
    if not system() and not config.getoption("--server"):
        line += "; not on a server of the system, because no redis-server or valkey-server is on the PATH"
    topology = config.getoption("--topology")
    topology = f", with {topology} in the place of a server" if topology else ""
    rights = ", with the fewest rights" if config.getoption("--acl") else ""
    commands = ", with the fewest commands" if config.getoption("--fewest-commands") else ""
    terminalreporter.write_line(f"ran on {line}{topology}{rights}{commands}")


class Drivers:
    """Starts the drivers of one test case."""

    def __init__(self, config: pytest.Config, idle: dict[str, list[Driver]], history: History) -> None:
        self._config = config
        self._idle = idle
        self._history = history
        self._started: list[Driver] = []
        self._resting: list[Driver] = []

    def start(self, face: str) -> Driver:
        """A process for this face, which may have served other test cases."""
        if not self._idle[face]:
            return self.fresh(face)
        driver = self._idle[face].pop()
        driver.begin(self._history, self._label(face))
        self._started.append(driver)
        return driver

    def fresh(self, face: str, env: Mapping[str, str] | None = None) -> Driver:
        """A new process for this face, with this added to its environment."""
        try:
            driver = Driver(FACES[face], self._command(face), self._history, self._label(face), env)
        except DriverError as error:
            # A missing driver is missing in every test case: a trace would only be long.
            raise pytest.fail.Exception(str(error), pytrace=False) from None
        self._started.append(driver)
        if env:
            driver.spoil()
        return driver

    def rest(self) -> None:
        """Keeps those for other test cases that are done with this one, while its servers still answer."""
        self._resting = [driver for driver in self._started if driver.rest()]

    def spoil(self) -> None:
        """Keeps none of them."""
        for driver in self._started:
            driver.spoil()

    def stop(self) -> None:
        """Kills the others."""
        for driver in self._started:
            idle = self._idle[driver.face.name]
            if driver in self._resting and len(idle) < MOST_IDLE:
                idle.append(driver)
            else:
                driver.stop()

    def logs(self) -> str:
        """All lines between the suite and the drivers."""
        return "\n\n".join(f"{driver.label}:\n{driver.log()}" for driver in self._started)

    def _label(self, face: str) -> str:
        return f"{face}#{len(self._started) + 1}"

    def _command(self, face: str) -> list[str]:
        if FACES[face].language == "rust":
            return [str(built(self._config, "redlock-driver"))]
        if FACES[face].language == "python":
            return python("conformance.drivers.python_driver")
        return ["node", str(Path(__file__).parent / "drivers" / "node_driver.mjs")]


def built(config: pytest.Config, program: str) -> Path:
    """A program that cargo has built."""
    path = Path(config.getoption("--driver-dir") or _debug_dir()) / program
    if not path.exists():
        pytest.fail(f"{path} is missing: cargo build -p redlock-driver -p redlock-history", pytrace=False)
    return path


@cache
def _debug_dir() -> Path:
    if target := os.environ.get("CARGO_TARGET_DIR"):
        return ROOT / target / "debug"
    command = ["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    return Path(metadata["target_directory"]) / "debug"


@pytest.fixture
def history(request: pytest.FixtureRequest) -> Iterator[History]:
    """The recorded events of locks in this test case, judged when the drivers have ended."""
    records = History()
    yield records
    records.judge(built(request.config, "redlock-history"))


@pytest.fixture(scope="session")
def idle() -> Iterator[dict[str, list[Driver]]]:
    """Drivers that wait for another test case, by face."""
    idle: dict[str, list[Driver]] = defaultdict(list)
    yield idle
    for driver in itertools.chain.from_iterable(idle.values()):
        driver.stop()


@pytest.fixture
def drivers(request: pytest.FixtureRequest, history: History, idle: dict[str, list[Driver]]) -> Iterator[Drivers]:
    """Starts drivers, which no other test case uses meanwhile."""
    drivers = Drivers(request.config, idle, history)
    with shown(request, "drivers", drivers.logs):
        yield drivers
        drivers.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Lets the drivers of a test case come to rest before its servers end."""
    if isinstance(item, pytest.Function) and isinstance(drivers := item.funcargs.get("drivers"), Drivers):
        drivers.rest()


def log_ends(servers: Iterable[Server]) -> str:
    """The ends of the servers' logs."""
    return "\n\n".join(f"{server}:\n{server.log()[-LOG_END:]}" for server in servers)


@pytest.fixture(scope="session")
def user(pytestconfig: pytest.Config) -> User | None:
    """The user as whom clients log in, if there is one."""
    return for_any_name(fewest()) if pytestconfig.getoption("--acl") else None


@pytest.fixture(scope="session")
def rules(pytestconfig: pytest.Config) -> list[Rule]:
    """The rules for the commands of clients, on every server."""
    return [unknown(command) for command in OPTIONAL] if pytestconfig.getoption("--fewest-commands") else []


@pytest.fixture(scope="session")
def start_group(pytestconfig: pytest.Config) -> Callable[..., Group] | None:
    """Starts what is in the place of a server, if anything is."""
    topology: str | None = pytestconfig.getoption("--topology")
    return TOPOLOGIES[topology] if topology else None


@pytest.fixture
def start_nodes(
    request: pytest.FixtureRequest,
    program: Path,
    user: User | None,
    rules: list[Rule],
    start_group: Callable[..., Group] | None,
    name: str,
) -> Iterator[Callable[..., Cluster]]:
    """Starts nodes for this test case: `start_nodes(3, persist=True)`, with the options of `Cluster`."""
    started: list[Server] = []
    with ExitStack() as stack:

        def start(n: int, **options: Any) -> Cluster:
            options = {"program": program, "user": user, "rules": rules} | options
            if start_group:
                assert n == 1, "a test case about several nodes is left out"
                group = stack.enter_context(start_group(**options))
                started.extend(group)
                return group.as_node(name)
            cluster = stack.enter_context(Cluster(n, **options))
            started.extend(cluster)
            return cluster

        with shown(request, "servers", lambda: log_ends(started)):
            yield start


@pytest.fixture
def own_nodes(start_nodes: Callable[..., Cluster]) -> Cluster:
    """Five nodes of this test case alone, to be frozen, killed and wiped."""
    return start_nodes(5)


@pytest.fixture(scope="session")
def clusters(user: User | None, rules: list[Rule]) -> Iterator[Callable[[Path, int], Cluster]]:
    """Nodes that test cases share: by their program and number."""
    with ExitStack() as stack:
        yield cache(lambda program, n: stack.enter_context(Cluster(n, program=program, user=user, rules=rules)))


@pytest.fixture(scope="session")
def groups(start_group: Callable[..., Group] | None, user: User | None) -> Iterator[Callable[[Path], Group] | None]:
    """Groups in the place of a server that test cases share: by their program."""
    with ExitStack() as stack:
        yield start_group and cache(lambda program: stack.enter_context(start_group(program=program, user=user)))


@pytest.fixture
def undisturbed(
    request: pytest.FixtureRequest,
    program: Path,
    clusters: Callable[[Path, int], Cluster],
    groups: Callable[[Path], Group] | None,
    name: str,
) -> Iterator[Callable[[int], Cluster]]:
    """Nodes that test cases share, because none of them does anything to a server."""
    shared: list[Server] = []

    def cluster(n: int) -> Cluster:
        if groups:
            shared.extend(groups(program))
            return groups(program).as_node(name)
        found = clusters(program, n)
        shared.extend(found)
        return found

    with shown(request, "servers", lambda: log_ends(shared)):
        yield cluster
    if request.config.getoption("--acl"):
        # The library makes up for some refusals, and then nothing else reports them.
        lacking = set[str]().union(*map(refused, shared))
        assert not lacking, "the user has too few rights"


@pytest.fixture
def node(undisturbed: Callable[[int], Cluster]) -> Cluster:
    """One node, shared with other test cases: do nothing to it."""
    return undisturbed(1)


@pytest.fixture
def five_nodes(undisturbed: Callable[[int], Cluster]) -> Cluster:
    """Five nodes, shared with other test cases: do nothing to them."""
    return undisturbed(5)


@pytest.fixture(params=[1, 5], ids=["one node", "five nodes"])
def nodes(request: pytest.FixtureRequest, undisturbed: Callable[[int], Cluster]) -> Cluster:
    """One node, then five, shared with other test cases: do nothing to them."""
    return undisturbed(request.param)


@pytest.fixture
def network(five_nodes: Cluster) -> Iterator[Network]:
    """A proxy in front of each of the five shared nodes. Connections can be disturbed in every way."""
    with Network(five_nodes) as network:
        yield network


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lock's name that no other test case uses."""
    nodeid: str = request.node.nodeid
    return nodeid.rpartition("/")[2]


@pytest.fixture
def start_shards(request: pytest.FixtureRequest, program: Path, user: User | None) -> Iterator[Callable[..., Shards]]:
    """Starts clusters for this test case: `start_shards(3, replicas=True)`, with the options of `Shards`."""
    with ExitStack() as stack:

        def start(count: int, **options: Any) -> Shards:
            options = {"program": program, "user": user and in_cluster(user)} | options
            shards = stack.enter_context(Shards(count, **options))
            stack.enter_context(shown(request, "servers", lambda: log_ends(shards)))
            return shards

        yield start


@contextmanager
def shown(request: pytest.FixtureRequest, title: str, text: Callable[[], str]) -> Iterator[None]:
    """Prints a text if the test case fails. If its source is gone by then, the text is what it was before."""
    texts = request.node.stash.setdefault(SHOWN, [])
    place = len(texts)
    texts.append((title, text))
    yield
    last = text()
    texts[place] = (title, lambda: last)


def repeat(item: pytest.Item) -> str:
    """The command that repeats this test case as it ran here, from the root of the repository."""
    config = item.config
    words = [_from_root(sys.executable), "-m", "pytest", f"{_from_root(item.path)}::{item.nodeid.partition('::')[2]}"]
    if directory := config.getoption("--driver-dir"):
        words += ["--driver-dir", _from_root(directory)]
    words += [word for program in config.getoption("--server") for word in ("--server", _from_root(program))]
    words += ["--topology", topology] if (topology := config.getoption("--topology")) else []
    words += [option for option in ("--acl", "--fewest-commands") if config.getoption(option)]
    return shlex.join(words)


def _from_root(path: str | Path) -> str:
    absolute = Path(shutil.which(path) or path).absolute()
    return str(absolute.relative_to(ROOT) if absolute.is_relative_to(ROOT) else absolute)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the drivers' lines, the servers' logs and the command that repeats it to a failure."""
    report = yield
    if report.failed:
        if isinstance(item, pytest.Function) and isinstance(drivers := item.funcargs.get("drivers"), Drivers):
            drivers.spoil()
        report.sections += [(title, text()) for title, text in item.stash.get(SHOWN, [])]
        report.sections.append(("to repeat it", repeat(item)))
    return report
