"""The prefix of a client's keys, on every face."""

from __future__ import annotations

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import LockError
from conformance.story import fence_key, several, slot_key
from support.servers import Cluster


@every_face
def test_the_key_is_the_prefix_and_the_name(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """So two clients with one prefix exclude each other, and a client without one is excluded by the whole."""
    driver = drivers.start(face)
    client = driver.client(nodes.urls, key_prefix="app:")
    lock = client.lock(name)
    lock.acquire()
    assert nodes.has(f"app:{name}")
    assert nodes.has(fence_key(f"app:{name}"))
    assert not nodes.has(name)
    assert not nodes.has(fence_key(name))
    same = driver.client(nodes.urls, key_prefix="app:").lock(name)
    whole, other = (driver.client(nodes.urls).lock(key) for key in (f"app:{name}", name))
    assert not same.try_acquire()
    assert not whole.try_acquire()
    assert other.try_acquire()
    other.release()
    view = client.inspect(name)
    assert (view["name"], view["key"], view["state"]) == (name, f"app:{name}", "held")
    assert {node["key"] for node in view["nodes"]} == {f"app:{name}"}
    lock.release()
    slot = client.semaphore(name, 1)
    slot.acquire()
    assert slot.shown_names() == {"name": name, "names": [name]}
    assert nodes.has(slot_key(f"app:{name}", 0))
    (view,) = client.inspect_semaphore(name, 1)
    assert (view["name"], view["key"], view["state"]) == (name, slot_key(f"app:{name}", 0), "held")
    slot.release()
    names = several(name)
    both = client.lock_all(names)
    both.acquire()
    assert both.shown_names()["names"] == names
    assert all(nodes.has(f"app:{each}") and not nodes.has(each) for each in names)
    both.release()


@every_face
def test_errors_show_the_whole_key(drivers: Drivers, face: str, name: str) -> None:
    lock = drivers.start(face).client(["unix:///nowhere/at/all"], key_prefix="app:").lock(name)
    with pytest.raises(LockError) as raised:
        lock.acquire(timeout_ms=0)
    assert raised.value.name == f"app:{name}"


@every_face
def test_limits_are_for_the_whole_key(drivers: Drivers, face: str) -> None:
    """A name is never empty, however long its prefix."""
    driver = drivers.start(face)
    long = driver.client(["memory://long"], key_prefix="p" * 510)
    assert long.lock("na").try_acquire()
    begun = driver.client(["memory://begun"], key_prefix="redlock:")
    assert begun.lock("job").try_acquire()
    for client, name in ((long, "nam"), (long, ""), (begun, "fence:job"), (begun, "waiters:job")):
        with pytest.raises(LockError) as raised:
            client.lock(name).try_acquire()
        assert raised.value.code == "invalid_argument"
        assert raised.value.option == "name"
