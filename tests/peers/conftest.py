"""Options of these tests, what each is given, and writing down what they saw."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from conformance.driver import Driver
from conformance.history import History
from peers.compatibility import ROWS, TOOLS
from peers.interop import ROOT, Peer, start_ours
from support.servers import Cluster


class Notes:
    """What passing tests saw, those in other processes of the run too."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collects them."""
        if report.when == "call" and report.passed:
            for name, said in report.user_properties:
                peer, _, what = name.partition(": ")
                self._seen.setdefault(peer, {})[what] = str(said)

    def pytest_sessionfinish(self) -> None:
        """Adds them to the file; peers that this machine cannot run stay as they were."""
        seen = json.loads(self._file.read_text()) if self._file.exists() else {}
        for peer, notes in self._seen.items():
            seen.setdefault(peer, {}).update(notes)
        self._file.write_text(json.dumps(seen, indent=2, sort_keys=True) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where programs are, and where to write to."""
    group = parser.getgroup("peers")
    group.addoption(
        "--driver-dir", type=Path, help="where redlock-driver and redlock-history are (cargo's debug directory)"
    )
    group.addoption("--seen", type=Path, help="add what is seen to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Writes down what is seen, once for all processes of the run."""
    file: Path | None = config.getoption("--seen")
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(file.resolve()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the peers that this machine cannot run."""
    for row in ROWS:
        if not row.here:
            terminalreporter.write_line(f"without {row.name}: there is no {TOOLS[row.language]} on the PATH")


@pytest.fixture
def drivers(pytestconfig: pytest.Config) -> Path:
    """Where the programs of ours are that cargo has built."""
    given: Path | None = pytestconfig.getoption("--driver-dir")
    return given or ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug"


@pytest.fixture
def ours(drivers: Path) -> Iterator[Callable[[str], Driver]]:
    """Starts a driver of ours: `ours("python")`; what happened to our locks is judged at the end."""
    history = History()
    with ExitStack() as stack:
        yield lambda face: stack.enter_context(start_ours(face, drivers, history))
    history.judge(drivers / "redlock-history")


@pytest.fixture
def theirs() -> Iterator[Callable[..., Peer]]:
    """Starts a process of a peer: `theirs(row, nodes)`."""
    with ExitStack() as stack:
        yield lambda row, nodes: stack.enter_context(Peer(row.name, row.language, nodes.urls))


@pytest.fixture
def start_nodes() -> Iterator[Callable[..., Cluster]]:
    """Starts servers: `start_nodes(3)`, with the options of `Cluster`."""
    with ExitStack() as stack:
        yield lambda n, **options: stack.enter_context(Cluster(n, **options))


@pytest.fixture
def seen(record_property: Callable[[str, object], None]) -> Callable[[str, str, str], None]:
    """Notes what was seen: `seen("redis-py", "one node", "yes")`."""
    return lambda peer, what, said: record_property(f"{peer}: {what}", said)
