"""The two tiers of tests: `make test` runs most, `make test-all` runs all of them, with `--all`."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that selects the tier."""
    parser.addoption("--all", action="store_true", help="run also what only `make test-all` runs")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark of a test that only `make test-all` runs."""
    config.addinivalue_line("markers", "test_all(reason): only `make test-all` runs it, for this reason")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests with this mark out of `make test`."""
    if config.getoption("--all"):
        return
    left_out = {item: None for item in items if item.get_closest_marker("test_all")}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
