"""The resource of readers and writers in `shared_store.py`: whoever comes too late is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redlock

from examples.shared_store import SharedStore, StaleFence
from support.clock import until
from support.servers import Server

PAUSED_S = 0.3
"""The ttl of whoever comes too late."""


@pytest.fixture
def store(tmp_path: Path) -> SharedStore:
    """A store of this test alone."""
    return SharedStore(str(tmp_path / "store.db"))


@pytest.fixture
def client() -> Iterator[redlock.Redlock]:
    """Its locks end by themselves, as those of a process that is paused."""
    with Server() as server, redlock.Redlock(server.url, auto_renew=False) as client:
        yield client


def test_a_paused_writer_comes_too_late(client: redlock.Redlock, store: SharedStore) -> None:
    writer, reader = client.lock("page", ttl=PAUSED_S), client.lock("page", shared=True)
    writer.acquire()
    late = writer.fence
    assert late is not None
    until(lambda: not writer.held, "its time is over")
    with reader:
        assert reader.fence is not None
        assert store.read("page", fence=reader.fence) is None
    with pytest.raises(StaleFence):
        store.write("page", "late", fence=late)


def test_a_paused_reader_comes_too_late(client: redlock.Redlock, store: SharedStore) -> None:
    reader, writer = client.lock("page", ttl=PAUSED_S, shared=True), client.lock("page")
    reader.acquire()
    late = reader.fence
    assert late is not None
    assert store.read("page", fence=late) is None
    until(lambda: not reader.held, "its time is over")
    with writer:
        assert writer.fence is not None
        store.write("page", "new", fence=writer.fence)
    with pytest.raises(StaleFence):
        store.read("page", fence=late)
