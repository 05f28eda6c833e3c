"""A server for each test, and the environment of a program on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.servers import Server


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def env(server: Server) -> dict[str, str]:
    return {**os.environ, "REDLOCK_URLS": server.url, "PYTHONUNBUFFERED": "1"}
