"""Options of the soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.soak import Programs


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much is done, and with which programs."""
    group = parser.getgroup("soak")
    group.addoption("--scale", type=float, help="1 is all of it; by default a little of everything")
    group.addoption("--worker-dir", type=Path, help="where redlock-soak is (cargo's debug directory)")
    group.addoption("--server", type=Path, help="another server program than the first that is found")


def pytest_configure(config: pytest.Config) -> None:
    """Knows the mark of `cases`."""
    config.addinivalue_line("markers", "rare: only with --scale")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what takes too long for everyday use."""
    if config.getoption("--scale") is None:
        rare = [item for item in items if item.get_closest_marker("rare")]
        items[:] = [item for item in items if item not in rare]
        config.hook.pytest_deselected(items=rare)


@pytest.fixture
def programs(pytestconfig: pytest.Config) -> Programs:
    """Starts workers and servers."""
    return Programs(pytestconfig.getoption("--worker-dir"), pytestconfig.getoption("--server"))
