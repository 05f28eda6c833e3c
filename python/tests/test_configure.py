"""The default clients of `redlock` and `redlock.asyncio`."""

import inspect
from typing import Any

import pytest
from conftest import Run
from support.clock import until

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

    def of_name() -> tuple[float, str]:
        view = redlock.inspect(name)
        return view.ttl_left or 0, view.state

    @redlock.locked(lambda: name, ttl=20, skip_if_held=True, pass_lock=True)
    def by_decorator(lock: redlock.Lock) -> tuple[float, str]:
        return lock.remaining, redlock.inspect(name).state

    @aio.lock(name, ttl=20)
    async def by_alock() -> tuple[float, str]:
        view = await aio.inspect(name)
        return view.ttl_left or 0, view.state

    @aio.locked(lambda: name, ttl=20, skip_if_held=True, pass_lock=True)
    async def by_adecorator(lock: aio.Lock) -> tuple[float, str]:
        return lock.remaining, (await aio.inspect(name)).state

    def of_slot() -> tuple[float, str]:
        view = redlock.inspect_semaphore(name, 1)[0]
        return view.ttl_left or 0, view.state

    several: list[Any] = [redlock.lock(name, ttl=20)(of_name), redlock.lock_all([f"{name}-2", name], ttl=20)(of_name)]
    several += [redlock.semaphore(name, 1, ttl=20)(of_slot), redlock.locked(name, permits=1, ttl=20)(of_slot)]
    former = redlock.lock(name)
    for nodes in ("memory://first", "memory://second"):
        redlock.configure(nodes, ttl=30)
        with former:
            for call in (*several, by_decorator, by_alock, by_adecorator):
                result: Any = call()
                seen: tuple[float, str] = await result if inspect.isawaitable(result) else result
                remaining, state = seen
                assert 15 < remaining <= 20, "its own options stay"
                assert state == "held"


def test_callbacks_of_a_lock_that_decorates_stay(name: str) -> None:
    told: list[redlock.LostReason] = []
    lock = redlock.lock(name)
    lock.on_lost(lambda loss: told.append(loss.reason))

    @lock
    def work() -> None:
        server.hold(name)
        until(lambda: told == ["taken"])

    server = MemoryServer()
    redlock.configure(server.url, ttl=0.3)
    with pytest.raises(redlock.LockLost):
        work()


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
        with pytest.raises(redlock.LockInvalidArgument, match="http"):
            face.lock("job")


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
