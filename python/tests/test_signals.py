import contextlib
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from conftest import Output, Start
from server import LIMIT, SLACK, Nodes, Server
from support.clock import until

import redlock

WAITERS = [
    "with client.lock(name): pass",
    "client.lock(name).acquire(timeout=60)",
    "redlock.Redlock(hung, connect_timeout=20).lock('foo').acquire(timeout=60)",
    "redlock.Redlock(hung, connect_timeout=20).inspect('foo')",
    "redlock.Redlock(hung, connect_timeout=20).inspect_semaphore('foo', 2)",
    "client.lock_all([name + '-free', name]).acquire()",
    "redlock.Redlock(hung, connect_timeout=20).semaphore('foo', 2).acquire(timeout=60)",
    "client.election(name).run(print)",
    "with client.lock(name + '-own') as own: own.wait_lost()",
]


@pytest.fixture
def hung() -> Iterator[str]:
    """A node that accepts connections and never answers."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        path = f"{directory}/s"
        listener.bind(path)
        listener.listen()
        yield f"unix://{path}"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["main thread", "another thread"])
def test_ctrl_c_ends_a_wait(
    start: Start, client: redlock.Redlock, server: Server, name: str, hung: str, *, elsewhere: bool
) -> None:
    """Also if it interrupts no system call, as one that comes just before: then the system gives it to another thread.

    In the main thread, the wait has begun or is about to begin: both must end.
    """
    program = f"""
import signal, threading
# Whoever runs the tests in the background of a shell has it ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
client, hung = redlock.Redlock(urls, ttl=60), {hung!r}
if {elsewhere}:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])

def tell():
    print("here", flush=True)

# An interrupt of a text that is executed would also be the end of the process.
for waiter in {WAITERS!r}:
    try:
        # It waits by the time that the signal comes.
        threading.Timer(0.3, tell).start() if {elsewhere} else tell()
        exec(compile(waiter, "waiter", "exec"))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
    with client.lock(name) as lock:
        process = start(program)
        for waiter in WAITERS:
            assert process.stdout.readline() == "here\n"
            before = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n", waiter
            assert time.monotonic() - before < (0.3 if elsewhere else 0.05) + SLACK, waiter
        assert process.wait(LIMIT) == 0
        lock.check()
    until(lambda: not any(server.has(name + suffix) for suffix in ("", "-free", "-own")))


CALLS = {
    "try": "other.acquire(blocking=False)",
    "acquire": "other.acquire()",
    "enter": "other.__enter__()",
    "extend": "lock.extend()",
    "release": "lock.release()",
    "leave": "lock.__exit__(None, None, None)",
    "inspect": "client.inspect(name)",
}


def test_ctrl_c_ends_every_call_to_frozen_nodes(start: Start, nodes: Nodes, name: str) -> None:
    program = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
client = redlock.Redlock(urls, ttl=60, node_timeout=10)
for call in {[*CALLS.values()]!r}:
    lock, other = client.lock(name), client.lock(name + "-other")
    lock.acquire()
    print("frozen?", flush=True)
    sys.stdin.readline()
    try:
        print("calls", flush=True)
        exec(compile(call, "call", "exec"))
    except KeyboardInterrupt:
        print(lock.held, other.held, flush=True)
    sys.stdin.readline()
    if lock.held:
        lock.extend()
        lock.release()
    with lock, other:
        pass
"""
    process = start(program, nodes=nodes)
    for call in CALLS:
        assert process.stdout.readline() == "frozen?\n"
        with nodes.frozen():
            print(file=process.stdin, flush=True)
            assert process.stdout.readline() == "calls\n"
            until(lambda: sleeps(process.pid))
            before = time.monotonic()
            process.send_signal(signal.SIGINT)
            held = call not in ("release", "leave")
            assert process.stdout.readline() == f"{held} False\n", call
            assert time.monotonic() - before < 0.05 + SLACK, call
        print(file=process.stdin, flush=True)
    assert process.communicate(timeout=2 * LIMIT) == ("", "")
    assert process.returncode == 0
    until(lambda: not nodes.having(name) and not nodes.having(f"{name}-other"))


def sleeps(pid: int) -> bool:
    """Whether the process waits: for the call that it has just begun, if it has nothing else to wait for."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("S")


HANDLERS = {
    "sys.exit, held": """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with client.lock(name, ttl=60):
    print("ready", flush=True)
    time.sleep(60)
""",
    "sys.exit, waiting": """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
lock = client.lock(name, ttl=60)
lock.acquire()
threading.Thread(target=client.lock(name).acquire, daemon=True).start()
print("ready", flush=True)
with client.lock(name):
    pass
""",
    "loop.add_signal_handler": """
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    async with client.lock(name, ttl=60):
        # Another task, which is left to asyncio.run.
        waiter = asyncio.create_task(client.lock(name, ttl=60).acquire())
        print("ready", flush=True)
        await asyncio.Event().wait()

from redlock import asyncio as aio
client = aio.Redlock(urls)
try:
    asyncio.run(main())
except asyncio.CancelledError:
    sys.exit(143)
""",
}


@pytest.mark.parametrize("handler", HANDLERS)
def test_sigterm_with_a_handler_gives_back(start: Start, nodes: Nodes, name: str, handler: str) -> None:
    process = start("import asyncio, signal, sys, threading, time\n" + HANDLERS[handler], nodes=nodes)
    assert process.stdout.readline() == "ready\n"
    until(lambda: nodes.having(name))
    # Python handles a signal that comes right before a sleep only after it.
    until(lambda: sleeps(process.pid))
    process.terminate()
    assert process.communicate(timeout=LIMIT) == ("", "")
    assert process.returncode == 143
    # Long before the ttl is over.
    until(lambda: not nodes.having(name))


def test_sigterm_without_a_handler_leaves_it_to_the_ttl(start: Start, nodes: Nodes, name: str) -> None:
    program = "lock = client.lock(name, ttl=1)\nlock.acquire()\nprint('ready', flush=True)\nimport time; time.sleep(60)"
    process = start(program, nodes=nodes)
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait(LIMIT) == -signal.SIGTERM
    until(lambda: not nodes.having(name), limit_s=1 + SLACK)


def test_ctrl_c_at_any_moment_leaves_no_key(output: Output, server: Server, name: str) -> None:
    program = """
import random, signal, sys

client = redlock.Redlock(urls, ttl=600)

def alarm(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, alarm)
# It is not interrupted, and a busy machine may answer it late.
patient = redlock.Redlock(urls, ttl=600, node_timeout=10)
other = patient.lock(name)
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
    until(lambda: patient.inspect(name).state == "free", limit_s=5)
print("done")
"""
    assert output(program) == "done\n"
    assert not server.has(name)


@contextlib.contextmanager
def alarm(handler: Callable[..., object], delay: float = 0.3) -> Generator[None]:
    former = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize("call", CALLS)
def test_a_handler_uses_locks_while_a_call_waits_for_nodes(
    one_and_five: dict[int, Nodes], client: redlock.Redlock, name: str, call: str
) -> None:
    nodes = one_and_five[5]
    heard: list[str] = []
    slow = redlock.Redlock(nodes.urls, ttl=60, node_timeout=10)
    lock, other = slow.lock(name), slow.lock(name + "-other")
    lock.acquire()

    def use(*_: object) -> None:
        with client.lock(name) as nested:
            nested.extend()
            assert not client.lock(name).acquire(timeout=0.2)
            assert client.inspect(name).state == "held"
        if call in ("try", "acquire", "enter"):
            with pytest.raises(redlock.LockAlreadyHeld):
                other.acquire()
        heard.append(call)
        for server in nodes.servers:
            server.thaw()

    with nodes.frozen(), alarm(use):
        exec(CALLS[call], {"client": slow, "lock": lock, "other": other, "name": name})
    assert heard == [call]
    assert lock.held == (call not in ("release", "leave"))
    assert other.held == (call in ("try", "acquire", "enter"))
    for each in (lock, other):
        if each.held:
            each.release()
    until(lambda: not nodes.having(name) and not nodes.having(f"{name}-other"))


def test_a_handler_releases_what_the_call_waits_for(client: redlock.Redlock, name: str) -> None:
    holder, waiter = client.lock(name), client.lock(name)
    holder.acquire()

    def use(*_: object) -> None:
        assert not client.lock(name).acquire(blocking=False)
        with pytest.raises(redlock.LockAlreadyHeld):
            waiter.acquire()
        holder.release()

    with alarm(use):
        assert waiter.acquire(timeout=20)
    waiter.release()


def test_an_exception_under_a_lock_of_a_handler_comes_out(client: redlock.Redlock, server: Server, name: str) -> None:
    def fail(*_: object) -> None:
        with client.lock(name + "-handler"):
            raise KeyError

    with client.lock(name), alarm(fail), pytest.raises(KeyError):
        client.lock(name).acquire(timeout=20)
    until(lambda: not server.has(name) and not server.has(f"{name}-handler"))


CHILDREN = {"goes on": "", "ends": "sys.exit(0)"}


@pytest.mark.parametrize("child", CHILDREN)
@pytest.mark.parametrize("call", ["wait", "acquire", "release"])
def test_a_handler_forks_while_a_call_waits(
    start: Start, one_and_five: dict[int, Nodes], name: str, call: str, child: str
) -> None:
    nodes = one_and_five[5]
    calls = {**CALLS, "wait": "client.lock(name).acquire(timeout=20)"}
    program = f"""
import os, signal, sys
client = redlock.Redlock(urls, ttl=60, node_timeout=10)
lock, other = client.lock(name), client.lock(name + "-other")
lock.acquire()
wait, go = os.pipe()

def fork(*_):
    global pid
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        {CHILDREN[child]}
    else:
        print("forked", flush=True)
        {"lock.release()" if call == "wait" else ""}

signal.signal(signal.SIGUSR1, fork)
print("frozen?", flush=True)
sys.stdin.readline()
try:
    print("calls", flush=True)
    {calls[call]}
except redlock.LockUnavailable as error:
    assert pid == 0 and "forked" in str(error), error
    # The parent first: it has not lost anything.
    os.read(wait, 1)
    with client.lock(name + "-child"), other:
        assert not lock.held
    sys.exit(0)
assert pid != 0
print("parent", lock.held, other.held)
if lock.held:
    lock.extend()
    lock.release()
if other.held:
    other.release()
os.write(go, b"!")
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    process = start(program, nodes=nodes)
    assert process.stdout.readline() == "frozen?\n"
    with nodes.frozen() if call != "wait" else contextlib.nullcontext():
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "calls\n"
        until(lambda: sleeps(process.pid))
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "forked\n"
    held = {"wait": "False False", "acquire": "True True", "release": "False False"}[call]
    # A read that takes this line along with the one before would keep it from `communicate`.
    assert process.stdout.readline() == f"parent {held}\n"
    assert process.communicate(timeout=2 * LIMIT) == ("", "")
    assert process.returncode == 0
    until(lambda: not any(nodes.having(name + suffix) for suffix in ("", "-other", "-child")))
