"""The default clients of `redlock` and `redlock.asyncio`."""

import inspect
from typing import Any

import pytest
from conftest import Run

import redlock
from redlock import _default
from redlock import asyncio as aio
from redlock.testing import MemoryServer


@pytest.fixture(autouse=True)
def _own_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_default, "_defaults", _default.Defaults({}, None, {}))
    monkeypatch.setenv("REDLOCK_URLS", "memory://from-the-environment")


@pytest.mark.parametrize("face", [redlock, aio])
async def test_both_faces_use_what_either_has_set(face: Any, name: str) -> None:
    face.configure(["memory://1", "memory://2", "memory://3"], ttl=60, key_prefix="app:")
    with redlock.lock(name) as lock:
        assert lock.remaining > 50
        assert await aio.lock(name).locked()
        views = [redlock.inspect(name), await aio.inspect(name)]
    for view in views:
        assert [(node.node, node.key, node.state) for node in view.nodes] == [
            (f"memory://{number}", f"app:{name}", "held") for number in (1, 2, 3)
        ]


async def test_what_was_made_before_stays_as_it_was(name: str) -> None:
    before, abefore = redlock.lock(name), aio.lock(name)
    redlock.configure("memory://configured")
    with before, redlock.lock(name):
        assert not await abefore.acquire(timeout=0)
    redlock.configure()
    with redlock.lock(name):
        assert not before.acquire(timeout=0), "without nodes, they come from the environment again"


async def test_decorated_functions_use_the_default_client_of_each_call(name: str) -> None:
    """They are decorated when their module is imported, before a program can configure anything."""

    def held() -> bool:
        return redlock.inspect(name).state == "held"

    def of_slot() -> bool:
        return redlock.inspect_semaphore(name, 1)[0].state == "held"

    def remaining(lock: Any) -> bool:
        return 15 < lock.remaining <= 20 and held()

    async def aheld() -> bool:
        return held()

    async def aremaining(lock: Any) -> bool:
        return remaining(lock)

    calls: list[Any] = [
        redlock.lock(name)(held),
        redlock.lock_all([f"{name}-2", name])(held),
        redlock.semaphore(name, 1)(of_slot),
        redlock.locked(lambda: name, ttl=20, skip_if_held=True, pass_lock=True)(remaining),
        aio.lock(name)(aheld),
        aio.locked(lambda: name, ttl=20, skip_if_held=True, pass_lock=True)(aremaining),
    ]
    former = redlock.lock(name)
    for nodes in ("memory://first", "memory://second"):
        redlock.configure(nodes, ttl=30)
        with former:
            for call in calls:
                seen = call()
                assert (await seen) if inspect.isawaitable(seen) else seen, "its own options stay"


def test_wrong_ones_change_nothing(name: str) -> None:
    redlock.configure("memory://right", ttl=60)
    for nodes, options in (("http://wrong", {}), ("memory://wrong", {"ttl": -1}), ("memory://wrong", {"tll": 1})):
        wrong: dict[str, Any] = options
        with pytest.raises(redlock.LockInvalidArgument):
            redlock.configure(nodes, **wrong)
    with redlock.lock(name) as lock:
        assert lock.remaining > 50
        assert redlock.inspect(name).nodes[0].node == "memory://right"


def test_what_concerns_other_nodes_stays_away_from_a_server_in_memory(name: str) -> None:
    redlock.configure("rediss://a", tls_server_name="b", credentials=lambda: ("user", "password"), ttl=60)
    with _default.instead(MemoryServer().url), redlock.lock(name) as lock:
        assert lock.remaining > 50


def test_without_it_wrong_addresses_are_refused_at_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDLOCK_URLS", "http://wrong")
    for face in (redlock, aio):
        with pytest.raises(redlock.LockInvalidArgument, match="http") as refused:
            face.lock("job")
        assert refused.value.__context__ is None


def test_asyncio_is_there_after_the_bare_import(run: Run) -> None:
    program = """
import asyncio, sys
assert "redlock.asyncio" not in sys.modules

async def main():
    async with redlock.asyncio.lock(name) as lock:
        print(lock.held)

asyncio.run(main())
try:
    redlock.nothing
except AttributeError as error:
    print(error)
"""
    assert run(program).stdout == "True\nmodule 'redlock' has no attribute 'nothing'\n"
