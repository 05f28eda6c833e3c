"""A plugin of pytest: runs the tests in the order of a seed, and writes the outcome of each to a file."""

from __future__ import annotations

import json
import random
from collections.abc import Generator
from pathlib import Path

import pytest

from setup.stress import FAILED, PASSED, ROOT, SKIPPED


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    parser.addoption("--order-seed", type=int, help="run the tests in the order of this seed")
    parser.addoption("--outcomes", type=Path, help="write the outcome of each test to this file, a line of JSON each")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Puts the tests that are left into the order of the seed. Which are left depends on the order before."""
    yield
    items.sort(key=lambda item: item.nodeid)
    random.Random(config.getoption("--order-seed")).shuffle(items)


def pytest_configure(config: pytest.Config) -> None:
    """Writes outcomes, but not in the processes of `-n`, whose reports arrive here too."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer(config))


class Writer:
    """Writes the outcome of each test."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath.relative_to(ROOT)
        self._path: Path = config.getoption("--outcomes")
        self._path.write_text("", encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Writes the outcome of one step of a test. A set-up and a clean-up are only worth a line if they fail."""
        if report.when == "call" or report.failed or report.skipped:
            outcome = FAILED if report.failed else SKIPPED if report.skipped else PASSED
            text = "\n\n".join([report.longreprtext, *(f"{title}:\n{text}" for title, text in report.sections)])
            line = {"case": str(self._root / report.nodeid), "outcome": outcome, "text": text if report.failed else ""}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
