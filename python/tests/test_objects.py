"""Lock objects as Python objects."""

import copy
import pickle
import subprocess
import sys
import time
import weakref
from datetime import timedelta
from unittest import mock

import pytest
from conftest import Output, Run, Start
from server import LIMIT, Server
from support.clock import until

import redlock
from redlock import asyncio as aio


def test_repr(client: redlock.Redlock, aclient: aio.Redlock) -> None:
    lock = client.lock("foo", ttl=10, timeout=None, max_hold=timedelta(hours=1))
    assert repr(lock) == "<redlock.blocking.Lock 'foo' not held ttl=10.0 timeout=None max_hold=3600.0>"
    with lock:
        assert repr(lock).startswith("<redlock.blocking.Lock 'foo' held ")
    assert repr(aclient.lock(b"foo")).startswith("<redlock.asyncio.Lock b'foo' not held")


def test_neither_pickled_nor_copied(client: redlock.Redlock, aclient: aio.Redlock) -> None:
    several, pool = client.lock_all(["a", "b"]), aclient.semaphore("foo", 2)
    elections = client.election("foo"), aclient.election(b"foo")
    assert repr(elections[1]) == "<redlock.asyncio.Election b'foo'>"
    for thing in (client, aclient, client.lock("foo"), aclient.lock("foo"), several, pool, *elections):
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="make another"):
                way(thing)


def test_a_client_is_an_object_like_any_other(client: redlock.Redlock, aclient: aio.Redlock) -> None:
    for thing in (client, aclient):
        assert weakref.WeakMethod(thing.close)() == thing.close
        with mock.patch.object(thing, "lock") as lock:
            assert thing.lock("foo") is lock.return_value


TTL = 2
STAYS: redlock.Options = {"ttl": TTL, "max_hold": 4.5}
"""A program without a reference cannot release the lock, so `max_hold` ends it here: after more than two renewals."""


def stays_held(server: Server, name: str) -> None:
    """Waits for the end of a lock whose object is gone, and fails if it was not renewed until then."""
    value = server.command("GET", name)
    begun = time.monotonic()
    until(lambda: not server.has(name))
    assert value is not None, "the collection has released it"
    assert time.monotonic() - begun > TTL, "nothing has renewed it"


def test_collected_while_held(client: redlock.Redlock, server: Server, name: str) -> None:
    lock = client.lock(name, **STAYS)
    with lock:
        pass
    lock.acquire()
    with pytest.warns(ResourceWarning, match=f"{name}.* stays held"):
        del lock
    stays_held(server, name)


def test_what_is_called_without_a_name_for_the_lock(client: redlock.Redlock, server: Server, name: str) -> None:
    with pytest.warns(ResourceWarning, match=name):
        assert client.lock(name, **STAYS).acquire(blocking=False)
    assert not client.lock(name).acquire(blocking=False), "it was lost as soon as it was acquired"
    stays_held(server, name)


def test_collected_in_its_block(client: redlock.Redlock, server: Server, name: str) -> None:
    """As after Ctrl-C between the entry and the body."""
    lock = client.lock(name, ttl=60)
    lock.acquire()
    lock.release()
    lock.__enter__()
    with pytest.warns(ResourceWarning, match=f"{name}.* releasing it"):
        del lock
    until(lambda: not server.has(name))


async def test_collected_in_its_block_in_a_loop(aclient: aio.Redlock, server: Server, name: str) -> None:
    lock = aclient.lock(name, ttl=60)
    await lock.__aenter__()
    with pytest.warns(ResourceWarning, match=f"{name}.* releasing it"):
        del lock
    until(lambda: not server.has(name))


def test_closing_its_client_releases_what_was_collected(server: Server, name: str) -> None:
    client, other = redlock.Redlock(server.url), redlock.Redlock(server.url)
    with pytest.warns(ResourceWarning, match="stays held"):
        assert client.lock(name, ttl=60).acquire()
    with other.lock(f"{name}, of another client"):
        client.close(limit=LIMIT)
        assert not server.has(name)
        assert server.has(f"{name}, of another client")


def test_the_end_of_the_process_releases_what_was_collected(run: Run, server: Server, name: str) -> None:
    assert run("client.lock(name, ttl=60).acquire()", "-W", "ignore::ResourceWarning").returncode == 0
    assert not server.has(name)


def test_importing_starts_nothing_and_a_client_starts_the_log() -> None:
    program = """
import os, sys, threading

def threads():
    return sorted(thread.name for thread in threading.enumerate()), len(os.listdir("/proc/self/task"))

import redlock, redlock.asyncio
print(*threads())
redlock.Redlock("redis://x").lock("foo")
redlock.asyncio.Redlock("redis://x").lock("foo")
print(*threads(), "multiprocessing" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['MainThread'] 1\n['MainThread', 'redlock-log'] 2 False\n"


def test_a_second_interpreter_is_refused(output: Output) -> None:
    program = """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
other = interpreters.create()
said = interpreters.run_string(other, '''
try:
    import redlock
except ImportError as error:
    assert "interpreter" in str(error), error
else:
    raise SystemError("it was let in")
''')
assert said is None, said
interpreters.destroy(other)
with client.lock(name) as lock:
    print(lock.held)
"""
    assert output(program) == "True\n"


@pytest.mark.parametrize("end", ["del lock, client", "client.close()"])
def test_a_client_that_is_gone_keeps_no_connection(start: Start, server: Server, end: str) -> None:
    def connections() -> set[bytes]:
        lines = bytes(server.command("CLIENT", "LIST")).splitlines()
        return {line.split()[0] for line in lines if b"cmd=client" not in line}

    before = connections()
    program = f"""
import sys
lock = client.lock(name)
with lock:
    assert not client.lock(name).acquire(timeout=0.2)
print("used", flush=True)
sys.stdin.readline()
{end}
sys.stdin.readline()
"""
    process = start(program)
    assert process.stdout.readline() == "used\n"
    assert connections() - before
    print(file=process.stdin, flush=True)
    until(lambda: not connections() - before)
    assert process.communicate("\n", timeout=LIMIT) == ("", "")
