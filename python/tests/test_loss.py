"""`on_lost` of the blocking face."""

import threading
from typing import Any

import pytest
from server import LIMIT, Server, until

import redlock


def test_callbacks_are_called_in_order_on_a_thread_of_ours(client: redlock.Redlock, name: str, server: Server) -> None:
    heard: list[tuple[int, str, str]] = []
    lock = client.lock(name, ttl=0.3)
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


def test_each_loss_is_told_once(client: redlock.Redlock, name: str) -> None:
    losses: list[redlock.LockLost] = []
    lock = client.lock(name, ttl=0.1, auto_renew=False)
    lock.on_lost(losses.append)
    for number in (1, 2):
        lock.acquire()
        until(lambda number=number: len(losses) == number)  # type: ignore[misc]
    with client.lock(name) as other:
        other.on_lost(losses.append)
    assert [error.reason for error in losses] == ["expired", "expired"]


def test_what_a_callback_raises_stops_nothing(
    client: redlock.Redlock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked: list[Any] = []

    def hook(args: threading.ExceptHookArgs) -> None:
        hooked.append(args.exc_value)

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


def test_a_decorators_callbacks_are_those_of_each_call(client: redlock.Redlock, name: str) -> None:
    lost = threading.Event()
    lock = client.lock(name, ttl=0.1, auto_renew=False)
    lock.on_lost(lambda _: lost.set())

    @lock
    def work() -> None:
        assert lost.wait(LIMIT)

    with pytest.raises(redlock.LockLost):
        work()


def test_only_functions(client: redlock.Redlock) -> None:
    async def coroutine(_: redlock.LockLost) -> None: ...

    for wrong in (3, coroutine):
        with pytest.raises(TypeError, match="on_lost"):
            client.lock("foo").on_lost(wrong)  # type: ignore[arg-type]
