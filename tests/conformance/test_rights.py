"""The user of .github/SECURITY.md can use the whole library and does not have a right too many."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

import pytest

from conformance.conftest import Drivers
from conformance.driver import FACES, Client, LockError
from support.rights import all_refused, fewest, refused
from support.servers import Cluster

ASKS_AGAIN_MS = 3_000
"""More than the 2 s after which a waiter that is not notified asks again."""

KEPT_MS = 500
"""For how long a released lock is kept."""

RIGHTS = [rule for rule in fewest().rules if rule.startswith(("+", "~"))]


def use(client: Client, name: str) -> None:
    """Makes every kind of request that the library sends."""
    lock, other = client.lock(name), client.lock(name, timeout_ms=0)
    lock.acquire()
    assert client.inspect(name)["state"] == "held"
    assert not other.try_acquire()
    # This gives the extension something to do.
    lock.extend(ttl_ms=60_000)
    lock.release()
    both, kept = client.lock_all([name, f"{name}, too"]), client.lock(f"{name}, kept", at_least_ms=KEPT_MS)
    for each in (both, kept):
        each.acquire()
        each.extend(ttl_ms=60_000)
        each.release()
    read = f"{name}, read"
    readers = [client.lock(read, shared=True) for _ in range(2)]
    for reader in readers:
        reader.acquire()
        reader.extend(ttl_ms=60_000)
    assert client.inspect(read)["state"] == "shared"
    # By now the servers have the scripts. A waiter is denied twice in the background, the second time with a position.
    slot = client.semaphore(name, 1)
    lock.acquire()
    slot.acquire()
    assert client.inspect_semaphore(name, 1)[0]["state"] == "held"
    waiters = [
        client.lock(read, timeout_ms=ASKS_AGAIN_MS),
        client.lock(name, timeout_ms=ASKS_AGAIN_MS),
        client.lock_all([f"{name}, too", name], timeout_ms=ASKS_AGAIN_MS),
        client.semaphore(name, 1, timeout_ms=ASKS_AGAIN_MS),
    ]
    waiting = [(waiter, waiter.start_acquire()) for waiter in waiters]
    assert all(waiter.denied(call) for waiter, call in waiting)
    for each in (*readers, lock, slot):
        each.release()


def tagged(name: str) -> str:
    """A name that the user may lock; in a cluster, it is on the server that has `name`."""
    return f"lock:{{{name}}}"


@pytest.mark.parametrize("face", FACES)
def test_fewest_rights(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str) -> None:
    (server,) = start_nodes(1, user=fewest())
    client = drivers.start(face).client([server.url])
    use(client, tagged(name))
    assert not refused(server)
    with pytest.raises(LockError) as outside:
        client.lock(name).acquire()
    assert outside.value.code == "forbidden"


@pytest.mark.parametrize("right", RIGHTS)
def test_every_right_is_needed(drivers: Drivers, start_nodes: Callable[..., Cluster], right: str, name: str) -> None:
    """Without the right a request is refused, even if the library can do without it."""
    user = fewest()
    fewer = dataclasses.replace(user, rules=tuple(rule for rule in user.rules if rule != right))
    (server,) = start_nodes(1, user=fewer)
    client = drivers.start("rust").client([server.url], timeout_ms=0)
    with contextlib.suppress(LockError, AssertionError):
        use(client, tagged(name))
    # Servers name the command (Redis 6.2 does not name subcommands), the lock's key, or a key beside it.
    lacking = right[1:].rstrip("*")
    assert any(each.startswith(lacking) or each == lacking.partition("|")[0] for each in all_refused(server))
