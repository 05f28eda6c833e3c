"""anyio, over asyncio and over trio, and trio by itself."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.to_thread
import pytest
import trio
from conftest import Run
from server import LIMIT, Server
from support.clock import until

import redlock
from redlock import asyncio as aio


def test_a_task_group_over_asyncio(aclient: aio.Redlock, server: Server, name: str) -> None:
    order: list[str] = []

    async def hold(which: str) -> None:
        async with aclient.lock(name) as lock:
            order.append(which)
            await anyio.sleep(0.05)
            lock.check()
            order.append(which)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for which in ("a", "b", "c"):
                tasks.start_soon(hold, which)

    anyio.run(main)
    assert order[::2] == order[1::2]
    assert not server.has(name)


def test_a_cancelled_scope_leaves_no_key(aclient: aio.Redlock, server: Server, name: str) -> None:
    async def main() -> None:
        async with aclient.lock(name):
            with anyio.move_on_after(0.1) as waiting:
                await aclient.lock(name).acquire()
            assert waiting.cancelled_caught
            with anyio.fail_after(LIMIT):
                assert not await aclient.lock(name).acquire(timeout=0)
        with anyio.move_on_after(0.1) as holding:
            async with aclient.lock(name):
                await anyio.sleep(LIMIT)
        assert holding.cancelled_caught

    anyio.run(main)
    until(lambda: not server.has(name))


def test_a_loss_ends_the_tasks_of_the_body(aclient: aio.Redlock, name: str) -> None:
    ended: list[BaseException] = []

    async def work() -> None:
        try:
            await anyio.sleep(LIMIT)
        except BaseException as error:
            ended.append(error)
            raise

    async def main() -> None:
        async with aclient.lock(name, ttl=0.1, auto_renew=False), anyio.create_task_group() as tasks:
            tasks.start_soon(work)

    with pytest.raises(redlock.LockLost):
        anyio.run(main)
    assert len(ended) == 1


def test_a_cancelled_scope_ends_an_election(aclient: aio.Redlock, server: Server, name: str) -> None:
    ended: list[str] = []

    def leads(end: Callable[[], None]) -> Callable[[aio.Lock], Coroutine[Any, Any, str]]:
        async def work(_: aio.Lock) -> None:
            # The end comes when this body waits.
            asyncio.get_running_loop().call_soon(end)
            try:
                await anyio.sleep(LIMIT)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.01)
                ended.append("work")

        async def lead(lock: aio.Lock) -> str:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work, lock)
            return "led"

        return lead

    async def main() -> None:
        election = aclient.election(name)
        with anyio.CancelScope() as scope:
            await election.run(leads(scope.cancel))
        assert scope.cancelled_caught
        assert await election.run(leads(election.stop)) is None

    anyio.run(main)
    assert ended == ["work"] * 2
    until(lambda: not server.has(name))


def test_trio_is_refused_at_once(run: Run) -> None:
    program = """
import trio

async def main():
    async def block():
        async with redlock.asyncio.lock(name):
            pass

    async def lead(lock):
        pass

    calls = [block, redlock.asyncio.lock(name).acquire, lambda: redlock.asyncio.inspect(name)]
    for call in [*calls, lambda: redlock.asyncio.election(name).run(lead)]:
        try:
            await call()
        except RuntimeError as error:
            print(error)

trio.run(main)
"""
    message = (
        "redlock.asyncio needs an event loop of asyncio, and this is trio; use a blocking lock there, in a thread: "
        "await trio.to_thread.run_sync(lock.acquire)\n"
    )
    done = run(program)
    assert (done.stdout, done.stderr) == (4 * message, "")


def test_without_a_loop_the_error_is_that_of_asyncio(aclient: aio.Redlock) -> None:
    call = aclient.lock("job").acquire()
    with pytest.raises(RuntimeError, match="no running event loop"):
        call.send(None)
    assert trio.__name__ == "trio", "the message for trio depends on the call, and not on the import"
