"""Slots of a cluster that are open, or that a server moves by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.conftest import Drivers, under_test
from conformance.driver import FACES
from conformance.history import SLACK_MS
from conformance.story import Asked
from support.servers import Server, version
from support.shards import Shards

TTL_MS = 2500
"""So short that a lock is lost soon if its renewals do not find it, and longer than a busy machine stands still."""
PATIENT_MS = 2000
"""A node_timeout that servers keep while they move keys."""
WAIT_MS = 15_000
KEYS = 2_000
"""How many keys of others move along."""


@pytest.fixture
def shards(start_shards: Callable[..., Shards]) -> Shards:
    """Three primaries, of this test case alone."""
    return start_shards(3).without_deaths()


def has_moves(program: Path) -> bool:
    """Whether the servers of a cluster move slots by themselves."""
    kind, _, number = version(program).partition("-")
    return kind == "valkey" and int(number.partition(".")[0]) >= 9


@pytest.fixture
def moving(pytestconfig: pytest.Config, start_shards: Callable[..., Shards]) -> Shards:
    """Three primaries that move slots by themselves, of this test case alone."""
    if not (able := [program for program in under_test(pytestconfig) if has_moves(program)]):
        pytest.skip("no server under test moves slots by itself")
    return start_shards(3, program=able[0]).without_deaths()


def fill(server: Server, key: str, count: int) -> None:
    """Makes so many keys whose names begin with a key, and are in its slot."""
    server.command("EVAL", "for i = 1, ARGV[1] do redis.call('SET', KEYS[1] .. i, i) end", 1, key, count)


def is_on_its_way(key: str, target: Server) -> bool:
    """Whether a key of an open slot has arrived at the server to which it moves, and is there."""
    with target.connect() as connection:
        connection.ask("ASKING")
        return connection.ask("EXISTS", key) == 1


@pytest.mark.parametrize("face", FACES)
def test_a_slot_that_a_server_moves_by_itself(drivers: Drivers, moving: Shards, face: str, name: str) -> None:
    """Held locks stay held, a waiter gets its turn, and releases find the keys at the new server."""
    key = f"{{{name}}}"
    source, target = moving.owner(key), moving.other(key)
    fill(source, key, KEYS)
    client = drivers.start(face).client([moving.url], ttl_ms=TTL_MS, node_timeout_ms=PATIENT_MS)
    holder, kept = client.lock(key), client.lock(f"{key}, kept")
    fence = holder.acquire()["fence"]
    kept.acquire()
    waiter = drivers.start(face).client([moving.url], ttl_ms=TTL_MS, node_timeout_ms=PATIENT_MS).lock(key)
    asked = Asked([source])
    waiting = waiter.start_acquire(timeout_ms=WAIT_MS)
    asked.wait()
    moving.hand_over(key, source, target)
    lost = [lock.start_wait_lost(limit_ms=TTL_MS + SLACK_MS // 2) for lock in (holder, kept)]
    assert [each.result()["lost"] for each in lost] == [None, None]
    kept.release()
    assert not target.has(kept.name)
    assert waiting.pending
    holder.release()
    assert waiting.result()["fence"] > fence
    assert target.has(key)
    waiter.release()
    assert not target.has(key)
    assert len(target.keys()) >= KEYS


@pytest.mark.parametrize("face", FACES)
def test_inspection_of_an_open_slot(drivers: Drivers, shards: Shards, face: str, name: str) -> None:
    """The lock is found wherever it is. Servers refuse keys of which only some are there, so the count is not read."""
    key = f"{{{name}}}"
    source, target = shards.owner(key), shards.other(key)
    client = drivers.start(face).client([shards.url], ttl_ms=WAIT_MS)
    lock = client.lock(key, auto_renew=False)
    lock.acquire()
    for step, waiting in ((None, 0), (shards.open, None), (shards.move_all, None), (shards.close, 0)):
        if step is not None:
            step(key, source, target)
        view = client.inspect(key)
        assert (view["state"], view["fence"], view["waiting"]) == ("held", lock.fence, waiting)
    lock.release()
    assert client.inspect(key)["state"] == "free"
