"""A held lock stays held whatever Python does, and a lock that has ended is not renewed any more."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from conftest import Start
from server import LIMIT, Nodes
from test_asyncio import eventually

import redlock
from redlock import asyncio as aio

FROZEN = """
import asyncio, ctypes, sys
from redlock import asyncio as aio
lock, alock = client.lock(name, ttl=2), aio.Redlock(urls).lock(name + "-aio", ttl=2)
lock.acquire()
loop = asyncio.new_event_loop()
loop.run_until_complete(alock.acquire())
print(lock.fence, alock.fence, flush=True)
# Unlike every other way to sleep, this one keeps the interpreter to itself.
ctypes.PyDLL(None).usleep(4_000_000)
lock.check()
alock.check()
print(lock.fence, alock.fence, flush=True)
sys.stdin.read()
lock.release()
loop.run_until_complete(alock.release())
loop.close()
"""


def test_nobody_finds_it_free_while_python_is_frozen(start: Start, nodes: Nodes, name: str) -> None:
    process = start(FROZEN, nodes=nodes)
    assert process.stdout is not None
    fences = process.stdout.readline()
    tries = 0
    with redlock.Redlock(nodes.urls, node_timeout=5) as others, ThreadPoolExecutor(1) as executor:
        thawed = executor.submit(process.stdout.readline)
        while not thawed.done():
            for each in (name, f"{name}-aio"):
                assert not others.lock(each).acquire(blocking=False), f"{each} was free"
            tries += 1
    assert thawed.result() == fences
    assert tries > 1
    assert process.communicate(timeout=LIMIT) == ("", "")
    assert process.returncode == 0


Lock = redlock.Lock | aio.Lock
End = Callable[[list[Lock], Nodes], Awaitable[object]]


async def acquire(lock: Lock) -> None:
    acquired = lock.acquire()
    assert await acquired if inspect.isawaitable(acquired) else acquired


async def release(locks: list[Lock], _: Nodes) -> None:
    released = locks.pop().release()
    if inspect.isawaitable(released):
        await released


async def lose(locks: list[Lock], nodes: Nodes) -> None:
    for server in nodes.servers:
        server.command("DEL", str(locks[0].name))
    await eventually(lambda: not locks[0].held)


async def outlast(locks: list[Lock], _: Nodes) -> None:
    await eventually(lambda: not locks[0].held)


ENDS: dict[str, End] = {"release": release, "loss": lose, "max_hold": outlast}


async def end_it(lock: Lock, end: str, nodes: Nodes) -> None:
    """End a hold, and restore its key as if the end had not reached the nodes. A remaining renewal would extend it."""
    name = str(lock.name)
    await acquire(lock)
    await eventually(lambda: len(nodes.having(name)) == len(nodes.servers))
    values = [server.command("GET", name) for server in nodes.servers]
    locks = [lock]
    del lock
    await ENDS[end](locks, nodes)
    await eventually(lambda: not nodes.having(name))
    left = [2_000] * len(values)
    for server, value, ttl in zip(nodes.servers, values, left, strict=True):
        server.command("SET", name, value, "PX", str(ttl))
    while any(ttl > 0 for ttl in left):
        before, left = left, [server.command("PTTL", name) for server in nodes.servers]
        assert all(now <= then for now, then in zip(left, before, strict=True)), f"{name} is renewed"
        await asyncio.sleep(0.05)


async def test_an_end_ends_the_renewal(nodes: Nodes, name: str) -> None:
    client, aclient = redlock.Redlock(nodes.urls, ttl=3), aio.Redlock(nodes.urls, ttl=3)
    async with asyncio.TaskGroup() as ends:
        for end in ENDS:
            options: redlock.Options = {"max_hold": 3} if end == "max_hold" else {}
            ends.create_task(end_it(client.lock(f"{name}-{end}", **options), end, nodes))
            ends.create_task(end_it(aclient.lock(f"{name}-{end}-aio", **options), end, nodes))
