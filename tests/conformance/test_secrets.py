"""No output of a driver has a password or a token, on every face."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import Client, Driver, LockError
from conformance.story import heard
from support.servers import Cluster, Server, User

USER, PASSWORD, WRONG = "worker", "S3CR3T-right", "S3CR3T-wrong"
TOKEN_LENGTH = 32
RENEWED_TTL_MS = 3_000
"""A ttl of locks that stay held on a slow machine."""


@pytest.fixture
def guarded(start_nodes: Callable[..., Cluster]) -> Server:
    """A node with a user; the test case itself needs no password."""
    return start_nodes(1, user=User(USER, PASSWORD, ("~*", "&*", "+@all")))[0]


def clients(driver: Driver, server: Server) -> tuple[Client, Client]:
    """A client with the password, and one with a wrong password."""
    right, wrong = (driver.client([url], timeout_ms=0) for url in (server.url, server.url.replace(PASSWORD, WRONG)))
    return right, wrong


def token_of(server: Server, name: str) -> str:
    """The first half of the holder's token, because an inspection tells owners apart by that much."""
    value = server.get(name)
    assert value
    return value[: TOKEN_LENGTH // 2].decode()


@every_face
def test_secrets_are_not_told(drivers: Drivers, guarded: Server, face: str, name: str) -> None:
    driver = drivers.fresh(face)
    client, stranger = clients(driver, guarded)
    lock = client.lock(name, ttl_ms=RENEWED_TTL_MS)
    lock.acquire()
    token = token_of(guarded, name)
    assert client.inspect(name)["state"] == "held"
    assert not client.lock(name).try_acquire()
    with pytest.raises(LockError) as refused:
        stranger.lock(name).acquire()
    assert refused.value.code == "forbidden"
    guarded.command("SET", name, "another library's token")
    heard(driver, "lock_lost", name=name)
    with pytest.raises(LockError) as lost:
        lock.release()
    assert lost.value.code == "lost"
    assert driver.stats()["redlock_node_up"]["points"][0]["labels"] == {"node": guarded.address}
    guarded.kill()
    with pytest.raises(LockError) as gone:
        client.lock(name).acquire()
    assert gone.value.code == "unavailable"
    heard(driver, "node_unreachable", node=guarded.address)
    # The answers to `events` and `stats` are in it.
    said = driver.said()
    assert "redlock_node_duration_seconds" in said
    hidden = {"the password": PASSWORD, "the wrong password": WRONG, "the token": token}
    assert [what for what, secret in hidden.items() if secret in said] == []
