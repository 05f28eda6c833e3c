"""A held lock stays held whatever Python does, and a lock that has ended is not renewed any more."""

from concurrent.futures import ThreadPoolExecutor, wait

from conftest import Start
from server import LIMIT, Nodes

import redlock

FROZEN = """
import asyncio, ctypes, sys
from redlock import asyncio as aio
lock, alock = client.lock(name, ttl=2), aio.Redlock(urls).lock(name + "-aio", ttl=2)
lock.acquire()
loop = asyncio.new_event_loop()
loop.run_until_complete(alock.acquire())
print(lock.fence, alock.fence, flush=True)
# Unlike every other way to sleep, this one keeps the interpreter to itself.
ctypes.PyDLL(None).usleep(3_000_000)
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
    fences = process.stdout.readline()
    tries = 0
    with redlock.Redlock(nodes.urls, node_timeout=5) as others, ThreadPoolExecutor(1) as executor:
        thawed = executor.submit(process.stdout.readline)
        while not wait([thawed], 0.01).done:
            for each in (name, f"{name}-aio"):
                assert not others.lock(each).acquire(blocking=False), f"{each} was free"
            tries += 1
    assert thawed.result() == fences
    assert tries > 1
    assert process.communicate(timeout=LIMIT) == ("", "")
    assert process.returncode == 0
