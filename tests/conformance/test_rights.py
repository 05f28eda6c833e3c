"""The user of .github/SECURITY.md can do everything and has no right too many."""

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
"""More than the 2 s after which who waits and hears nothing asks again."""

RIGHTS = [rule for rule in fewest().rules if rule.startswith(("+", "~"))]


def use(client: Client, name: str) -> None:
    """All that the library asks servers for."""
    lock, other = client.lock(name), client.lock(name, timeout_ms=0)
    lock.acquire()
    assert client.inspect(name)[0]["state"] == "held"
    assert not other.try_acquire()
    # So that there is something to extend.
    lock.extend(ttl_ms=60_000)
    lock.release()
    # By now the servers know the scripts. Who waits is denied twice in the background, and has a place the second time.
    lock.acquire()
    waiting = client.lock(name, timeout_ms=ASKS_AGAIN_MS)
    assert waiting.denied(waiting.start_acquire())
    lock.release()


@pytest.mark.parametrize("face", FACES)
def test_fewest_rights(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str) -> None:
    (server,) = start_nodes(1, user=fewest())
    client = drivers.start(face).client([server.url])
    use(client, f"lock:{name}")
    assert not refused(server)
    with pytest.raises(LockError) as outside:
        client.lock(name).acquire()
    assert outside.value.code == "forbidden"


@pytest.mark.parametrize("right", RIGHTS)
def test_every_right_is_needed(drivers: Drivers, start_nodes: Callable[..., Cluster], right: str, name: str) -> None:
    """Without it something is refused, even if the library can do without."""
    user = fewest()
    fewer = dataclasses.replace(user, rules=tuple(rule for rule in user.rules if rule != right))
    (server,) = start_nodes(1, user=fewer)
    client = drivers.start("rust").client([server.url], timeout_ms=0)
    with contextlib.suppress(LockError, AssertionError):
        use(client, f"lock:{name}")
    # The command, of which Redis 6.2 tells no subcommand, or the lock's key or one beside it.
    lacking = right[1:].rstrip("*")
    assert any(each.startswith(lacking) or each == lacking.partition("|")[0] for each in all_refused(server))
