"""The example of a resource that checks fences, tests/examples/fenced_store.py."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance.conftest import Drivers
from conformance.history import SLACK_MS, History
from examples.fenced_store import FencedStore, StaleFence
from support.servers import LIMIT_S, Cluster

TTL_MS = 500


@pytest.fixture
def store(tmp_path: Path) -> FencedStore:
    """A store of this test alone."""
    return FencedStore(str(tmp_path / "store.db"))


def test_larger_fences_only(store: FencedStore) -> None:
    assert store.read("a", fence=5) is None
    store.write("a", "five", fence=5)
    store.write("a", "five again", fence=5)
    assert store.read("a", fence=7) == "five again"
    for late in (4, 5, 6):
        with pytest.raises(StaleFence):
            store.write("a", "late", fence=late)
        with pytest.raises(StaleFence):
            store.read("a", fence=late)
    assert store.read("a", fence=7) == "five again"
    store.write("b", "another name", fence=1)


def test_nobody_fits_between_comparing_and_writing(tmp_path: Path) -> None:
    """A late writer has begun while a later holder's write is on its way, and must not come after it."""
    path = str(tmp_path / "store.db")
    FencedStore(path).write("a", "before", fence=1)
    writing = threading.Event()

    def write_late() -> None:
        store = FencedStore(path)
        store.db.set_trace_callback(lambda sql: writing.set() if sql.startswith(("INSERT", "UPDATE")) else None)
        store.write("a", "late", fence=2)

    with ThreadPoolExecutor() as threads:
        later = FencedStore(path)
        later.db.execute("BEGIN IMMEDIATE")
        late = threads.submit(write_late)
        assert writing.wait(LIMIT_S)
        later.write("a", "later", fence=3)
        with pytest.raises(StaleFence):
            late.result(LIMIT_S)
    assert later.read("a", fence=3) == "later"


@pytest.mark.parametrize("face", ["rust", "python", "node"])
def test_paused_holder_writes_too_late(
    drivers: Drivers, history: History, store: FencedStore, node: Cluster, face: str, name: str
) -> None:
    """A holder stands still between its read and its write for longer than its ttl, and another takes over."""
    # Only the holder itself knows how far its last renewal reached.
    history.rule("--no-exclusion")
    paused = drivers.start(face).client(node.urls).lock(name, ttl_ms=TTL_MS)
    other = drivers.start("rust").client(node.urls).lock(name)

    paused_fence = paused.acquire()["fence"]
    store.write("balance", "100", fence=paused_fence)
    paused.driver.freeze()
    fence = other.acquire(timeout_ms=TTL_MS + SLACK_MS)["fence"]
    assert store.read("balance", fence=fence) == "100"
    paused.driver.thaw()

    with pytest.raises(StaleFence):
        store.write("balance", "101, says who was paused", fence=paused_fence)
    store.write("balance", "101", fence=fence)
    assert store.read("balance", fence=fence) == "101"
