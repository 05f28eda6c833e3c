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


def test_a_read_is_refused_behind_a_later_write(store: SharedStore) -> None:
    assert store.read("a", fence=5) is None
    assert store.read("a", fence=4) is None, "readers do not disturb each other"
    store.write("a", "six", fence=6)
    assert [store.read("a", fence=fence) for fence in (9, 7, 6)] == ["six"] * 3
    with pytest.raises(StaleFence):
        store.read("a", fence=5)


def test_a_write_is_refused_behind_any_later_access(store: SharedStore) -> None:
    store.write("a", "one", fence=1)
    store.write("a", "one again", fence=1)
    store.read("a", fence=3)
    store.read("a", fence=2)
    with pytest.raises(StaleFence):
        store.write("a", "late", fence=2)
    store.write("a", "four", fence=4)
    with pytest.raises(StaleFence):
        store.write("a", "late", fence=3)
    assert store.read("a", fence=4) == "four"
    store.write("b", "another name", fence=1)


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
