"""anyio, over asyncio and over trio, and trio by itself."""

import anyio
import anyio.to_thread
from conftest import Run
from server import LIMIT, Server
from support.clock import until

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
