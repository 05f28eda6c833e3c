"""What every language offers to the tests of programs: servers in memory that do what a test says, losses at will."""

from __future__ import annotations

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, Client, Lock, LockError, MemoryServer, table
from support.clock import until

LONG_TTL_MS = 60_000
RENEWED_TTL_MS = 3_000
"""A ttl of locks that stay held on a slow machine."""


def one(drivers: Drivers, face: str) -> tuple[MemoryServer, Client]:
    driver = drivers.start(face)
    server = MemoryServer(driver)
    return server, driver.client([server.url], ttl_ms=LONG_TTL_MS)


def lost(lock: Lock) -> str:
    """The reason of the loss that a lock is told of."""
    reason: str = lock.start_wait_lost(10_000).result()["lost"]["reason"]
    return reason


@every_face
def test_each_server_is_new(drivers: Drivers, face: str, name: str) -> None:
    driver = drivers.start(face)
    servers = [MemoryServer(driver) for _ in range(2)]
    assert servers[0].url.startswith("memory://")
    assert servers[0].url != servers[1].url
    for number, server in enumerate(servers):
        # Names of the history are unique, and the judge does not know of servers.
        assert driver.client([server.url]).lock(f"{name}-{number}").try_acquire()
    assert driver.client([servers[1].url]).inspect(f"{name}-0")["state"] == "free"


@every_face
@pytest.mark.parametrize("end", ["release", "advance", "wipe"])
def test_somebody_else_holds_a_name(drivers: Drivers, face: str, end: str, name: str) -> None:
    server, client = one(drivers, face)
    lock = client.lock(name)
    server.hold(name, ttl_ms=LONG_TTL_MS)
    view = client.inspect(name)
    assert (view["state"], view["label"]) == ("held", "somebody else")
    assert lock.is_locked()
    server.advance(LONG_TTL_MS / 2)
    assert not lock.try_acquire()
    waiting = lock.start_acquire(timeout_ms=None)
    match end:
        case "release":
            server.release(name)
        case "advance":
            server.advance(LONG_TTL_MS / 2)
        case _:
            server.wipe()
    waiting.result()
    server.release(name)
    lock.extend()
    lock.release()


@every_face
def test_somebody_else_takes_a_lock(drivers: Drivers, face: str, name: str) -> None:
    server, client = one(drivers, face)
    lock, short = client.lock(name), client.lock(f"{name}, renewed soon", ttl_ms=RENEWED_TTL_MS)
    lock.acquire()
    server.hold(name)
    with pytest.raises(LockError) as raised:
        lock.extend()
    assert (raised.value.code, raised.value.reason) == ("lost", "taken")
    short.acquire()
    server.hold(f"{name}, renewed soon")
    assert lost(short) == "taken"


@every_face
def test_an_unavailable_server(drivers: Drivers, face: str, name: str) -> None:
    server, client = one(drivers, face)
    lock, short = client.lock(name), client.lock(f"{name}, short", ttl_ms=RENEWED_TTL_MS)
    short.acquire()
    for _ in range(2):
        server.set_available(False)
        with pytest.raises(LockError) as raised:
            lock.acquire(timeout_ms=0)
        assert raised.value.code == "unavailable"
        assert "a test has made this server unavailable" in raised.value.message
        server.set_available(True)
        assert lock.try_acquire(), "it is back at once"
        lock.release()
    server.set_available(False)
    assert lost(short) == "unreachable"


@every_face
@pytest.mark.parametrize("reason", table("errors")["lost_reasons"])
def test_a_lock_is_lost_at_will(drivers: Drivers, face: str, name: str, reason: str) -> None:
    _, client = one(drivers, face)
    lock, next_one = client.lock(name, margin_ms=1), client.lock(name)
    if FACES[face].lock_objects:
        with pytest.raises(LockError) as raised:
            lock.lose(reason)
        assert raised.value.code == "not_held"
    lock.acquire()
    lock.lose(reason)
    lock.lose("expired")
    assert lost(lock) == reason
    until(next_one.try_acquire, "its keys are deleted")
    for report in (lock.check, lock.extend, lock.release):
        with pytest.raises(LockError) as raised:
            report()
        assert (raised.value.code, raised.value.reason) == ("lost", reason)
