"""Event loops: several, other and closed ones; and calls that are cancelled in them."""

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop
from conftest import Output
from server import LIMIT, Nodes, Server
from support.clock import until
from test_asyncio import eventually

import redlock
from redlock import _calls, _native
from redlock import asyncio as aio

MANY = 100
"""More calls than it takes until a loop watches the sockets."""

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
Factory = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=LOOPS)
def factory(request: pytest.FixtureRequest) -> Factory:
    return LOOPS[request.param]


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names suffice


def test_any_loop(aclient: aio.Redlock, server: Server, name: str, factory: Factory) -> None:
    async def main() -> None:
        async with aclient.lock(name):
            assert not await aclient.lock(name).acquire(timeout=0.2)
        await asyncio.gather(*(use(aclient, name) for _ in range(8)))
        with pytest.raises(redlock.LockLost):
            async with aclient.lock(name, ttl=0.1, auto_renew=False):
                await asyncio.sleep(LIMIT)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
    until(lambda: not server.has(name))


async def use(client: aio.Redlock, name: str) -> None:
    async with client.lock(name) as lock:
        lock.check()


async def test_a_task_that_is_garbage_cleans_up_while_another_one_runs(server: Server, name: str) -> None:
    """The garbage collector closes its coroutine, which cannot wait then."""
    steps: list[str] = []

    async def forgotten() -> None:
        try:
            async with aio.Redlock(server.url) as client, client.lock(name):
                steps.append("holds")
                await asyncio.Event().wait()
        finally:
            steps.append("cleans up")

    task: Any = asyncio.create_task(forgotten())
    # asyncio says that a task was pending, as it does about any; here this is on purpose.
    task._log_destroy_pending = False
    await eventually(lambda: bool(steps))
    del task
    gc.collect()
    assert steps == ["holds", "cleans up"]
    await eventually(lambda: not server.has(name))


def test_several_loops_in_several_threads(aclient: aio.Redlock, name: str, factory: Factory) -> None:
    async def main() -> None:
        for _ in range(10):
            await use(aclient, name)

    def work() -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result(LIMIT)


async def use_often(client: aio.Redlock, name: str) -> None:
    """Make one call after the other, for long enough that the loop watches the sockets."""
    for _ in range(MANY):
        await use(client, name)


def watched() -> int:
    """Return how many sockets the running loop watches."""
    _, queue = _calls.current()
    return Path(f"/proc/self/fdinfo/{queue.sockets()}").read_text().count("tfd:")


def test_a_loop_that_makes_one_call_after_the_other_watches_the_sockets(
    one_and_five: dict[int, Nodes], name: str, factory: Factory
) -> None:
    async def main(nodes: Nodes, count: int) -> None:
        client = aio.Redlock(nodes.urls)
        assert not watched()
        # A busy machine can keep the loop from the sockets for long enough that the background takes them back.
        for _ in range(MANY * MANY):
            await use(client, name)
            if watched() == count:
                return
        pytest.fail(f"the loop has never watched all {count} at once")

    for count, nodes in one_and_five.items():
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main(nodes, count))


async def test_a_lock_is_renewed_while_the_loop_that_watches_the_sockets_is_busy(
    aclient: aio.Redlock, server: Server, name: str
) -> None:
    left: list[int] = []

    def is_renewed() -> bool:
        """Whether the server keeps it for longer than at the last look."""
        left.append(server.command("PTTL", name))
        return len(left) > 1 and left[-1] > left[-2]

    lock = aclient.lock(name, ttl=2)
    async with lock:
        await use_often(aclient, f"{name}-other")
        # It keeps the loop busy, for longer than the ttl: a renewal comes after a third of it.
        for _ in range(5):
            until(is_renewed)
        lock.check()
        await use_often(aclient, f"{name}-other")
        assert server.has(name)


def test_a_fork_while_the_loop_watches_the_sockets(output: Output, server: Server, name: str) -> None:
    program = f"""
import asyncio, os
from redlock import asyncio as aio
client = aio.Redlock(urls, ttl=60)

async def use_often(name):
    for _ in range({MANY}):
        async with client.lock(name):
            pass

async def main():
    lock = client.lock(name)
    await lock.acquire()
    await use_often(name + "-parent")
    async with aio.Redlock(urls) as other, other.lock(name + "-block"):
        pid = os.fork()
    if pid == 0:
        # It has a loop of its own.
        asyncio.run(use_often(name + "-child"))
        assert not lock.held
        os._exit(0)
    await use_often(name + "-parent")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    await use_often(name + "-parent")
    lock.check()
    await lock.release()

asyncio.run(main())
"""
    assert output(program) == ""
    assert not server.has(name)


@pytest.mark.parametrize("won", [False, True])
def test_a_closed_loop_gives_back_what_it_waited_for(
    client: redlock.Redlock,
    aclient: aio.Redlock,
    server: Server,
    name: str,
    factory: Factory,
    won: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Connections that are kept for later are open from here on.
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(use(aclient, name))
    holder = client.lock(name)
    with holder:
        assert not client.lock(name).acquire(timeout=0.5)
    before = descriptors()
    if not won:
        holder.acquire()

    def hear_nothing(_: _calls.Queue) -> None:
        """The loop's one turn may take any time."""

    monkeypatch.setattr(_calls.Queue, "_ready", hear_nothing)
    loop = factory()
    task = loop.create_task(aclient.lock(name, ttl=60).acquire())
    # asyncio says that a task was pending, as it does about any; here this is on purpose.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(asyncio.sleep(0))
    if won:
        until(lambda: server.has(name))
    loop.close()
    if not won:
        holder.release()
    until(lambda: not server.has(name))
    with client.lock(name, timeout=5):
        pass
    del task, loop
    until(lambda: descriptors() <= before)


EARLY = {
    "asyncio.run ends while a task waits": """
holder = client.lock(name)
holder.acquire()

async def main():
    task = asyncio.create_task(aclient.lock(name).acquire())
    assert not await aclient.lock(name).acquire(timeout=1)

run(main())
holder.release()
""",
    "asyncio.run ends while a task has begun to release": """
async def main():
    global lock
    lock = aclient.lock(name)
    await lock.acquire()
    task = asyncio.create_task(lock.release())
    await asyncio.sleep(0)

run(main())
assert not lock.held
""",
    "closed while it holds": """
lock = aclient.lock(name)
run(lock.acquire())
lock.check()
# Held on, for another loop to release.
gc.collect()
assert lock.held
run(lock.extend())
run(lock.release())
# A block that its loop does not leave ends with the lock.
run(lock.__aenter__())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    del lock
    gc.collect()
assert [warning.category for warning in caught] == [ResourceWarning]
""",
    "closed before the acquire is over": """
holder = client.lock(name)
holder.acquire()
loop = factory()
task = loop.create_task(aclient.lock(name).acquire())
# asyncio says that a task was pending, as it does about any; here this is on purpose.
task._log_destroy_pending = False
loop.run_until_complete(asyncio.sleep(0))
loop.close()
holder.release()
del task, loop
gc.collect()
""",
    "closed while it is told of a loss": """
lock = aclient.lock(name, ttl=0.2, auto_renew=False)
lock.on_lost(print)
run(lock.acquire())
until(lambda: not lock.held)
""",
    "closed after the program has kept a loss": """
lock, losses = aclient.lock(name, ttl=0.1, auto_renew=False), []
lock.on_lost(losses.append)

async def main():
    await lock.acquire()
    while not losses:
        await asyncio.sleep(0.01)
    return _calls.current()[1].reference

reference = run(main())
gc.collect()
assert reference() is None
""",
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("early", EARLY)
def test_a_loop_that_is_closed_early(output: Output, early: str, loop: str) -> None:
    program = f"""
import asyncio, gc, warnings
import {loop}
from redlock import _calls, asyncio as aio
factory = {loop}.new_event_loop
aclient = aio.Redlock(urls, ttl=60)

def run(coroutine):
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(coroutine)
{EARLY[early]}
until(lambda: all(node.state == "free" for node in client.inspect(name).nodes), limit_s=5)
with client.lock(name, timeout=5):
    pass
"""
    assert output(program, "-W", "error::ResourceWarning") == ""


async def test_a_thousand_are_cancelled_at_once(aclient: aio.Redlock, server: Server, name: str) -> None:
    """All locks are acquired, and no task has been notified yet."""
    names = [f"{name}-{number}" for number in range(1_000)]

    async def hold(name: str) -> None:
        async with aclient.lock(name, ttl=60):
            await asyncio.sleep(LIMIT)

    tasks = [asyncio.create_task(hold(name)) for name in names]
    await asyncio.sleep(0)
    until(lambda: server.command("EXISTS", *names) == len(names))
    server.freeze()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    server.thaw()
    await eventually(lambda: server.command("EXISTS", *names) == 0)


async def enter(lock: aio.Lock) -> None:
    async with lock:
        raise AssertionError("it was cancelled before")


@pytest.mark.parametrize("take", [aio.Lock.acquire, enter])
async def test_cancelled_after_the_result_has_come(
    aclient: aio.Redlock,
    server: Server,
    name: str,
    take: Callable[[aio.Lock], Coroutine[Any, Any, object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = _calls.Queue._ready

    def ready_and_cancelled(queue: _calls.Queue) -> None:
        ready(queue)
        task.cancel()

    monkeypatch.setattr(_calls.Queue, "_ready", ready_and_cancelled)
    lock = aclient.lock(name, ttl=20)
    task = asyncio.create_task(take(lock))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not lock.held
    await eventually(lambda: not server.has(name))
    monkeypatch.undo()


async def test_a_lock_that_came_too_late_is_acquired_again(
    aclient: aio.Redlock, server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is busy for longer than the ttl while the result is ready."""
    taken: list[object] = []
    take = _native.Queue.take_call

    def slow_once(queue: _calls.Queue, number: int) -> object:
        if not taken:
            until(lambda: not server.has(name))
        taken.append(take(queue, number))
        return taken[-1]

    monkeypatch.setattr(_calls.Queue, "take_call", slow_once, raising=False)
    lock = aclient.lock(name, ttl=2)
    for enter in (lock.__aenter__, lock.acquire):
        taken.clear()
        await enter()
        assert lock.held
        assert taken[:2] == [False, True]
        await lock.release()


async def test_a_release_goes_on_when_it_is_cancelled(aclient: aio.Redlock, server: Server, name: str) -> None:
    lock = aclient.lock(name, ttl=20)
    await lock.acquire()
    task = asyncio.create_task(lock.release())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not lock.held
    await eventually(lambda: not server.has(name))


def test_a_lock_that_the_end_of_the_process_has_dropped_is_not_entered(output: Output) -> None:
    program = """
import asyncio
from redlock import _calls, _native, asyncio as aio
aclient = aio.Redlock(urls)

async def work():
    try:
        async with aclient.lock(name):
            print("entered")
    except redlock.LockClosed as closed:
        print(closed)

async def main():
    held = client.lock(name)
    held.acquire()
    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    (future,) = _calls.current()[1].futures.values()

    def end():
        # The result is there, and the task has not taken it yet.
        if future.done():
            _native.shutdown()
        else:
            asyncio.get_running_loop().call_soon(end)

    held.release()
    end()
    await working

asyncio.run(main())
"""
    assert output(program) == "not finished: redlock is shut down in this process\n"
