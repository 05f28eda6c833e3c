"""What all suites share: `--all`, and no search for garbage among thousands of cases that stay to the end."""

from __future__ import annotations

import gc

import pytest

pytest_plugins = ["support.left_out"]


def pytest_configure() -> None:
    """Makes the cases without looking for garbage."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Looks for garbage again, in what comes from now on."""
    gc.freeze()
    gc.enable()
