"""Options of the soak."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """How much is done."""
    parser.addoption("--scale", type=float, help="of the soak: 1 is all of it; by default each test does a little")
