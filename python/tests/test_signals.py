import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest
from conftest import Run
from server import LIMIT, Server, until

import redlock

WAITERS = {
    "with": "with client.lock(name): pass",
    "acquire": "client.lock(name).acquire(timeout=60)",
    "hung": "redlock.Redlock(hung, node_timeout=4).lock('foo').acquire(timeout=60)",
    "inspect": "redlock.Redlock(hung, node_timeout=4).inspect('foo')",
}


@pytest.fixture
def hung() -> Iterator[str]:
    """A node that takes connections and never says a word."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        path = f"{directory}/s"
        listener.bind(path)
        listener.listen()
        yield f"unix://{path}"


@pytest.mark.parametrize("waiter", WAITERS)
def test_ctrl_c_ends_a_wait(client: redlock.Redlock, server: Server, name: str, hung: str, waiter: str) -> None:
    program = f"""
import signal
import redlock
# Whoever runs the tests in the background of a shell has it ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
client, name, hung = redlock.Redlock({server.url!r}, ttl=60), {name!r}, {hung!r}
try:
    print("here", flush=True)
    {WAITERS[waiter]}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with client.lock(name) as lock:
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            # Interrupts a wait that has begun, or one that is about to: both must end.
            before = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            assert time.monotonic() - before < 1
            assert process.wait(LIMIT) == 0
        lock.check()
    assert not server.has(name)


def test_ctrl_c_at_any_moment_leaves_no_key(run: Run, server: Server, name: str) -> None:
    program = """
import random, signal, sys

client = redlock.Redlock(url, ttl=600)

def alarm(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, alarm)
other = redlock.Redlock(url, ttl=600).lock(name)
for number in range(100):
    contended = number % 4 == 0 and other.acquire(timeout=5)
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 4e-3))
        while True:
            with client.lock(name):
                pass
    except KeyboardInterrupt:
        pass
    if contended:
        other.release()
    until(lambda: client.inspect(name)[0].state == "free", 5)
print("done")
"""
    done = run(program)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
    assert not server.has(name)


def test_a_handler_runs_while_the_main_thread_waits(client: redlock.Redlock, name: str) -> None:
    heard: list[int] = []
    former = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with client.lock(name):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert not client.lock(name).acquire(timeout=0.2)
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_an_exception_of_a_handler_comes_out(client: redlock.Redlock, name: str) -> None:
    def fail(*_: object) -> None:
        raise KeyError

    former = signal.signal(signal.SIGALRM, fail)
    try:
        with client.lock(name):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyError):
                client.lock(name).acquire(timeout=20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    until(lambda: client.inspect(name)[0].state == "free")
