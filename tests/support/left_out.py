"""The two tiers of tests: `make test` runs most, `make test-all` runs all of them, with `--all`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options that select the tier."""
    parser.addoption("--all", action="store_true", help="run also what only `make test-all` runs")
    parser.addoption("--gate", action="store_true", help="run what `make gate` runs of that, and nothing else")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark of a test that only `make test-all` runs."""
    config.addinivalue_line(
        "markers",
        "test_all(reason, gate): only `make test-all` runs it, for this reason, and `make gate` if that is true",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests with this mark out of `make test`, and those without it out of what the gate adds."""
    if config.getoption("--all"):
        return
    gate = config.getoption("--gate")

    def runs(item: pytest.Item) -> bool:
        marks = list(item.iter_markers("test_all"))
        return gate == bool(marks) and all(mark.kwargs.get("gate") for mark in marks)

    config.hook.pytest_deselected(items=[item for item in items if not runs(item)])
    items[:] = [item for item in items if runs(item)]
