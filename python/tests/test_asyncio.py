import asyncio
import contextlib
import threading
from collections.abc import Callable

import pytest
from server import LIMIT, SLACK, Server
from support.clock import until

import redlock
from redlock import asyncio as aio
from redlock.testing import lose


async def eventually(holds: Callable[[], object], limit: float = LIMIT) -> None:
    """Wait for a state, with a limit, and let the loop run."""
    async with asyncio.timeout(limit):
        while not holds():
            await asyncio.sleep(0.002)


async def test_a_call_that_nobody_awaits_does_nothing(aclient: aio.Redlock, server: Server, name: str) -> None:
    lock = aclient.lock(name)
    with pytest.warns(RuntimeWarning, match="never awaited"):
        lock.acquire()  # type: ignore[unused-coroutine] # pyright: ignore[reportUnusedCoroutine]
    lock.acquire().close()
    assert lock.remaining == 0.0
    assert await lock.acquire(timeout=0), "it was not begun either"
    with pytest.warns(RuntimeWarning, match="never awaited"):
        lock.release()  # type: ignore[unused-coroutine] # pyright: ignore[reportUnusedCoroutine]
    assert lock.held
    assert server.has(name)
    await lock.release()


async def test_a_blocking_acquire_that_waits_in_a_loop_warns(
    client: redlock.Redlock, server: Server, name: str
) -> None:
    election = client.election(name)

    def stop() -> None:
        until(lambda: len(warned) > 0, "it waits")
        election.stop()

    def lead() -> None:
        threading.Thread(target=stop).start()
        election.run(lambda _: None)

    with client.lock(name):
        lock = client.lock(name)
        waits: list[Callable[[], object]] = [
            lambda: lock.acquire(timeout=0.2),
            lambda: client.lock(name, timeout=0.2).__enter__(),
            client.lock(name, timeout=0.2)(lambda: None),
            client.locked(lambda: name, timeout=0.2)(lambda: None),
            lead,
        ]
        for wait in waits:
            with (
                pytest.warns(RuntimeWarning, match="use redlock.asyncio") as warned,
                contextlib.suppress(redlock.LockTimeout),
            ):
                wait()
            assert [warning.filename for warning in warned] == [__file__]
        # These do not wait.
        assert not lock.acquire(timeout=0)
        assert not await asyncio.to_thread(lock.acquire, timeout=0.2)
    # Nor does a process that leaves its lock to others of which it has heard, for a moment.
    assert lock.acquire()
    server.command("SET", f"redlock:waiters:{{{name}}}", "1")
    lock.release()
    with lock:
        pass
    # As an error, it ends the call, which leaves nothing behind.
    other = client.lock(f"{name}, another")
    with client.lock(other.name), pytest.raises(RuntimeWarning):
        other.acquire()
    assert other.acquire()
    other.release()


@pytest.mark.parametrize("end", ["close", "aclose", "leave"])
async def test_tasks_that_wait_end_when_their_client_is_closed(server: Server, name: str, end: str) -> None:
    client = aio.Redlock(server.url)
    held = client.lock(f"{name}:held")
    await held.acquire()
    server.command("SET", name, "theirs")
    tasks = [asyncio.create_task(client.lock(name, timeout=timeout).acquire()) for timeout in (None, 60.0)]
    # This call queues behind them, so they wait by now.
    assert not await client.lock(name).acquire(timeout=0.3)
    match end:
        case "close":
            client.close()
        case "aclose":
            await client.aclose()
        case _:
            async with client:
                pass
    async with asyncio.timeout(SLACK):
        errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(error) for error in errors] == [redlock.LockClosed] * 2
    assert not held.held


async def test_a_loss_cancels_the_body(aclient: aio.Redlock, server: Server, name: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    lock = aclient.lock(name)
    with pytest.raises(redlock.LockLost) as raised:
        async with lock:
            server.command("DEL", name)
            await asyncio.sleep(LIMIT)
    assert raised.value.reason == "deleted"
    assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    assert task.cancelling() == 0
    async with lock:
        await asyncio.sleep(0)


async def test_a_loss_while_others_cancel_is_a_cancellation(aclient: aio.Redlock, name: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    lock = aclient.lock(name, ttl=0.1, auto_renew=False)
    lock.on_lost(lambda _: task.cancel())
    with pytest.raises(asyncio.CancelledError):
        async with lock:
            await asyncio.sleep(LIMIT)
    assert task.uncancel() == 0


async def test_a_loss_does_not_hide_what_the_body_raises(aclient: aio.Redlock, name: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(KeyError) as raised:
        async with aclient.lock(name, ttl=0.1, auto_renew=False):
            try:
                await asyncio.sleep(LIMIT)
            except asyncio.CancelledError:
                raise KeyError from None
    assert task.cancelling() == 0
    (note,) = raised.value.__notes__
    assert "expired while it was held" in note
    assert " before its release" in note
    # Nor does the end of its client.
    client = aio.Redlock("memory://closed")
    with pytest.raises(KeyError):
        async with client.lock(name):
            await client.aclose()
            raise KeyError


async def test_a_loss_that_the_body_ignores_is_told_at_its_end(aclient: aio.Redlock, name: str) -> None:
    with pytest.raises(redlock.LockLost):
        async with aclient.lock(name, ttl=0.1, auto_renew=False):
            try:  # noqa: SIM105 - what is shown here
                await asyncio.sleep(LIMIT)
            except asyncio.CancelledError:
                pass


async def test_a_body_that_lost_the_lock_ends_before_its_object_acquires_again(aclient: aio.Redlock, name: str) -> None:
    lock = aclient.lock(name)
    with pytest.raises(redlock.LockLost):
        async with lock:
            lose(lock, "taken")
            with pytest.raises(redlock.LockAlreadyHeld, match="its block has not ended"):
                await lock.__aenter__()
            await asyncio.sleep(LIMIT)
    async with lock:
        assert lock.held


async def test_a_loss_inside_a_timeout(aclient: aio.Redlock, name: str) -> None:
    with pytest.raises(redlock.LockLost):
        async with asyncio.timeout(LIMIT), aclient.lock(name, ttl=0.1, auto_renew=False):
            await asyncio.sleep(LIMIT)
    with pytest.raises(TimeoutError):
        async with aclient.lock(name), asyncio.timeout(0.05):
            await asyncio.sleep(LIMIT)


async def test_callbacks_run_in_the_loop(aclient: aio.Redlock, name: str) -> None:
    heard: list[threading.Thread] = []
    problems: list[object] = []
    error = KeyError("on purpose")

    def fail(_: redlock.LockLost) -> None:
        raise error

    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["exception"]))
    lock = aclient.lock(name, ttl=0.1, auto_renew=False)
    lock.on_lost(fail)
    lock.on_lost(lambda _: heard.append(threading.current_thread()))
    for count in (1, 2):
        await lock.acquire()
        await eventually(lambda count=count: len(heard) == count)  # type: ignore[misc]
    assert heard == [threading.current_thread()] * 2
    assert problems == [error] * 2


async def test_a_callback_hears_of_the_loss_before_the_next_acquire(aclient: aio.Redlock, name: str) -> None:
    lock = aclient.lock(name, ttl=0.1, auto_renew=False)
    losses: list[redlock.LockLost] = []
    await lock.acquire()
    await eventually(lambda: not lock.held)
    lock.on_lost(losses.append)
    acquiring = asyncio.ensure_future(lock.acquire())
    await asyncio.sleep(0)
    assert len(losses) == 1
    await acquiring
    await eventually(lambda: len(losses) == 2)


async def test_a_lock_that_was_attached_is_released_if_its_block_is_not_entered(
    aclient: aio.Redlock, server: Server, name: str
) -> None:
    lock = aclient.lock(name)
    await lock.acquire()
    attached = await aclient.attach(await lock.detach())
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with attached:
            pytest.fail("it was entered")
    task.uncancel()
    assert not attached.held
    await eventually(lambda: not server.has(name))
