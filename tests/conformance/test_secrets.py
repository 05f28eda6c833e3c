"""No output of a driver has a password or a token, on every face."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Drivers
from conformance.driver import FACES, LockError
from conformance.story import heard
from support.servers import Cluster, Server, User

USER, PASSWORD, WRONG = "worker", "S3CR3T-right", "S3CR3T-wrong"
TOKEN_LENGTH = 32
SHORT_TTL_MS = 1_000


@pytest.fixture
def guarded(start_nodes: Callable[..., Cluster]) -> Server:
    """A node with a user; the test case itself needs no password."""
    return start_nodes(1, user=User(USER, PASSWORD, ("~*", "&*", "+@all")))[0]


@pytest.mark.parametrize("face", FACES)
def test_secrets_are_not_told(drivers: Drivers, guarded: Server, face: str, name: str) -> None:
    driver = drivers.start(face)
    client, stranger = (
        driver.client([url], timeout_ms=0) for url in (guarded.url, guarded.url.replace(PASSWORD, WRONG))
    )
    lock = client.lock(name)
    lock.acquire()
    value = guarded.get(name)
    assert value
    token = value[:TOKEN_LENGTH].decode()
    assert client.inspect(name)["state"] == "held"
    assert not client.lock(name).try_acquire()

    with pytest.raises(LockError) as refused:
        stranger.lock(name).acquire()
    assert refused.value.code == "forbidden"
    guarded.command("SET", name, "another library's token")
    with pytest.raises(LockError) as lost:
        lock.release()
    assert lost.value.code == "lost"
    kept = client.lock(f"{name}-kept", ttl_ms=SHORT_TTL_MS)
    kept.acquire()
    kept_value = guarded.get(f"{name}-kept")
    assert kept_value
    guarded.command("DEL", f"{name}-kept")
    heard(driver, "lock_lost", name=f"{name}-kept")
    assert driver.stats()["redlock_node_up"]["points"][0]["labels"] == {"node": guarded.address}
    guarded.kill()
    with pytest.raises(LockError) as gone:
        client.lock(name).acquire()
    assert gone.value.code == "unavailable"

    heard(driver, "node_unreachable", node=guarded.address)
    # The answers of `events` and `stats` are in it, too.
    said = driver.said()
    assert "forbidden" in said
    assert "redlock_node_duration_seconds" in said
    # An inspection tells owners apart by half of their tokens.
    hidden = {"the password": PASSWORD, "the wrong password": WRONG, "the token": token[: TOKEN_LENGTH // 2]}
    hidden["the token of the lost lock"] = kept_value[: TOKEN_LENGTH // 2].decode()
    told = [what for what, secret in hidden.items() if secret in said]
    assert not told, f"told: {', '.join(told)}"
