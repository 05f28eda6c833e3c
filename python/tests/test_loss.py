"""Losses are reported in time and with their reason, whatever the nodes do; and the `on_lost` of the blocking face."""

import asyncio
import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from server import LIMIT, Server
from support.clock import until
from test_asyncio import eventually

import redlock
from redlock import asyncio as aio
from redlock.testing import lose


def test_callbacks_are_called_in_order_on_a_thread_of_ours(client: redlock.Redlock, name: str, server: Server) -> None:
    heard: list[tuple[int, str, str]] = []
    lock = client.lock(name)
    for number in range(3):

        def callback(error: redlock.LockLost, number: int = number) -> None:
            heard.append((number, error.reason, threading.current_thread().name))

        lock.on_lost(callback)
    lock.acquire()
    server.command("DEL", name)
    until(lambda: len(heard) == 3)
    assert heard == [(number, "deleted", "redlock-on-lost") for number in range(3)]
    with pytest.raises(redlock.LockLost):
        lock.release()


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("face", [redlock, aio])
async def test_a_callback_set_after_the_loss_is_told_of_it(
    face: Any, server: Server, name: str, *, early: bool
) -> None:
    lock = face.Redlock(server.url).lock(name, ttl=1, node_timeout=0.9, auto_renew=False)

    async def of(call: Any) -> None:
        if inspect.isawaitable(call):
            await call

    told: dict[str, list[redlock.LockLost]] = {}

    async def losses(**expected: int) -> None:
        await eventually(lambda: all(len(told[callback]) >= number for callback, number in expected.items()))
        assert {callback: len(losses) for callback, losses in told.items()} == expected
        assert {loss.reason for losses in told.values() for loss in losses} <= {"expired"}

    def listen(callback: str) -> None:
        lock.on_lost(told.setdefault(callback, []).append)

    if early:
        listen("early")
    before = {"early": 1} if early else {}
    await of(lock.acquire())
    await eventually(lambda: not lock.held)
    listen("first")
    await losses(first=1, **before)
    listen("second")
    await losses(first=1, second=1, **before)
    # Each loss is reported to all callbacks, once.
    await of(lock.acquire())
    before = dict.fromkeys(before, 2)
    await losses(first=2, second=2, **before)
    with pytest.raises(redlock.LockLost):
        await of(lock.release())
    # No lock is held that could be lost.
    listen("third")
    await of(lock.acquire())
    before = dict.fromkeys(before, 3)
    await losses(first=3, second=3, third=1, **before)


def test_what_a_callback_raises_stops_nothing(
    client: redlock.Redlock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked: list[Any] = []

    def hook(args: threading.ExceptHookArgs) -> None:
        hooked.append(args.exc_value)
        raise SystemExit

    monkeypatch.setattr(threading, "excepthook", hook)
    error, called = KeyError("on purpose"), threading.Event()

    def fail(_: redlock.LockLost) -> None:
        raise error

    lock = client.lock(name, ttl=0.1, auto_renew=False)
    lock.on_lost(fail)
    lock.on_lost(lambda _: called.set())
    lock.acquire()
    assert called.wait(LIMIT)
    assert hooked == [error]


def test_only_functions_that_take_a_loss(client: redlock.Redlock, aclient: aio.Redlock) -> None:
    async def coroutine(_: redlock.LockLost) -> None: ...

    wrong: Any
    for wrong in (3, coroutine, threading.Event().set, lambda _loss, _more: None):
        for lock in (client.lock("foo"), aclient.lock("foo")):
            with pytest.raises(TypeError, match=r"on_lost[^@]*$"):
                lock.on_lost(wrong)
    # A function that is written in C may not tell what it takes.
    client.lock("foo").on_lost(type)


# --- waiting for a loss ---


def test_waiting_for_a_loss(client: redlock.Redlock, name: str) -> None:
    lock = client.lock(name)
    with pytest.raises(redlock.LockNotHeld):
        lock.wait_lost(timeout=0)
    lock.acquire()
    assert lock.wait_lost(timeout=0.01) is None
    lose(lock, "taken")
    for _ in range(2):
        loss = lock.wait_lost(timeout=LIMIT)
        assert loss is not None
        assert (loss.reason, loss.name) == ("taken", name)
    assert lock.acquire(timeout=LIMIT)
    assert lock.wait_lost(timeout=0.01) is None, "the loss is that of the hold before"
    lock.release()
    with pytest.raises(redlock.LockInvalidArgument, match="timeout"):
        lock.wait_lost(timeout="1")  # type: ignore[arg-type]


def test_a_release_ends_the_wait_for_a_loss(client: redlock.Redlock, name: str) -> None:
    lock = client.lock(name)
    lock.acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.wait_lost)
        time.sleep(0.05)
        assert not waiting.done()
        lock.release()
        assert waiting.result(LIMIT) is None


async def test_waiting_for_a_loss_in_asyncio(aclient: aio.Redlock, name: str) -> None:
    lock = aclient.lock(name)
    with pytest.raises(redlock.LockNotHeld):
        await lock.wait_lost()
    await lock.acquire()
    assert await lock.wait_lost(timeout=0.01) is None
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(lock.wait_lost(), 0.01)
    lose(lock, "taken")
    loss = await lock.wait_lost(timeout=LIMIT)
    assert loss is not None
    assert loss.reason == "taken"
    await lock.acquire()
    waiting = asyncio.create_task(lock.wait_lost())
    await asyncio.sleep(0.01)
    await lock.release()
    assert await waiting is None
