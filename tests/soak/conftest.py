"""Options of the soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.soak import Programs


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much is done, and with which programs."""
    group = parser.getgroup("soak")
    group.addoption("--scale", type=float, help="1 is all of it; by default each test does a little")
    group.addoption("--worker-dir", type=Path, help="where redlock-driver is (cargo's debug directory)")
    group.addoption("--soak-server", type=Path, help="another server program than the first that is found")


@pytest.fixture
def programs(pytestconfig: pytest.Config) -> Programs:
    """Starts workers and servers."""
    return Programs(pytestconfig.getoption("--worker-dir"), pytestconfig.getoption("--soak-server"))
