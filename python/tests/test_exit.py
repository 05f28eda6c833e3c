"""The end of the interpreter: nothing stays held, nothing is said, nothing hangs."""

import pytest
from conftest import Run
from server import Server, until

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
threads = [threading.Thread(target=client.lock(name).acquire, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
# Behind them in the queue, so that they wait by now.
assert not client.lock(name).acquire(timeout=0.2)
""",
    "a thread works": """
import contextlib, threading
started = threading.Event()

def work():
    # Whoever asks for a lock after the farewell is told so; who waits by then never hears of it.
    with contextlib.suppress(redlock.LockUnavailable):
        while True:
            with client.lock(name):
                started.set()

threading.Thread(target=work, daemon=True).start()
started.wait()
""",
    "somebody listens": """
lock = client.lock(name, ttl=0.3)
lock.on_lost(print)
lock.acquire()
""",
    "a loop was not closed": """
import asyncio
from redlock import asyncio as aio
lock = aio.Redlock(url).lock(name)
loop = asyncio.new_event_loop()
loop.run_until_complete(lock.acquire())
loop.close()
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_an_end(run: Run, server: Server, name: str, end: str) -> None:
    done = run(ENDS[end])
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    until(lambda: not server.has(name), 1)
