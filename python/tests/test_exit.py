"""The end of the interpreter: no lock stays held, nothing is printed, nothing hangs."""

import pytest
from conftest import Run
from server import SLACK, Nodes
from support.clock import until

ENDS = {
    "held": "lock = client.lock(name); lock.acquire()",
    "held in a block": "with client.lock(name): raise SystemExit(0)",
    "held by a thread": """
import threading
held = threading.Event()

def hold():
    with client.lock(name):
        held.set()
        threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
""",
    "threads wait": """
import threading
lock = client.lock(name)
lock.acquire()
acquires = [client.lock(name).acquire for _ in range(3)]
for wait in (*acquires, lambda: client.wait_free(name), lambda: print(lock.wait_lost())):
    threading.Thread(target=wait, daemon=True).start()
# Behind them in the queue, so that they wait by now.
assert not client.lock(name).acquire(timeout=0.5)
""",
    "a thread works": """
import contextlib, threading
started = threading.Event()

def work():
    # Whoever asks for a lock after the shutdown is told so; who waits by then never hears of it.
    with contextlib.suppress(redlock.LockUnavailable):
        while True:
            with client.lock(name):
                started.set()

threading.Thread(target=work, daemon=True).start()
started.wait()
""",
    "threads ask": """
import threading
# It answers at once, so calls return at any moment.
memory = redlock.Redlock("memory://asked")

def ask():
    while True:
        memory.inspect(name)

for _ in range(4):
    threading.Thread(target=ask, daemon=True).start()
for _ in range(100):
    memory.inspect(name)
""",
    "somebody listens": """
lock = client.lock(name, ttl=2)
lock.on_lost(print)
lock.acquire()
""",
    "an object asks at its own end": """
class Late:
    def __init__(self):
        self.lock, self.error = client.lock(name), redlock.LockClosed

    def __del__(self):
        # By now, nothing can be imported.
        try:
            self.lock.acquire(timeout=1)
        except self.error:
            pass

late = Late()
""",
    "a loop was closed": """
import asyncio
from redlock import asyncio as aio
lock = aio.Redlock(urls).lock(name)
loop = asyncio.new_event_loop()
loop.run_until_complete(lock.acquire())
loop.close()
""",
    "tasks hold and wait": """
import asyncio
from redlock import asyncio as aio
client = aio.Redlock(urls)

async def main():
    lock = client.lock(name)
    await lock.acquire()
    tasks = [asyncio.create_task(client.lock(name).acquire()) for _ in range(3)]
    assert not await client.lock(name).acquire(timeout=0.5)
    # Somebody else keeps it, as applications do.
    asyncio.lock = lock

asyncio.run(main())
""",
    "a thread's loop goes on": """
import asyncio, threading
from redlock import asyncio as aio
client = aio.Redlock(urls)
held = threading.Event()

async def main():
    async with client.lock(name):
        waiter = asyncio.create_task(client.lock(name).acquire())
        # Behind it in the queue, so that it waits by now.
        assert not await client.lock(name).acquire(timeout=0.5)
        held.set()
        await waiter

threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
held.wait()
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_an_end(run: Run, nodes: Nodes, name: str, end: str) -> None:
    done = run(ENDS[end], nodes=nodes)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    until(lambda: not nodes.having(name), limit_s=SLACK)
