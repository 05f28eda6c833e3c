"""Forks: the parent keeps its locks, and the child starts with none."""

from textwrap import indent

import pytest
from conftest import Output, Run, Start
from server import LIMIT, Nodes, Server
from support.clock import until

EXITS = {"os._exit": "os._exit(0)", "sys.exit": "sys.exit(0)"}

PARENT = """
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
lock.check()
lock.extend()
with client.lock(name + "-again"):
    pass
lock.release()
print("parent")
"""


@pytest.mark.parametrize("way", EXITS)
def test_the_child_does_not_hold_and_works_anew(output: Output, server: Server, name: str, way: str) -> None:
    program = f"""
import os, sys
lock = client.lock(name)
with lock:
    pid = os.fork()
    if pid == 0:
        assert not lock.held and lock.remaining == 0.0
        for call in (lock.check, lock.extend, lock.release):
            try:
                call()
            except redlock.LockNotHeld:
                continue
            raise SystemExit(f"{{call}} found it held")
        assert not lock.acquire(timeout=0.5)
    else:
        # In the block, so that the parent holds the lock until the child has ended.
{indent(PARENT, 8 * " ")}
if pid == 0:
    with client.lock(name + "-child") as other, redlock.lock(name + "-default"):
        other.check()
    {EXITS[way]}
"""
    assert output(program, "-W", "error::ResourceWarning") == "parent\n"
    assert not server.has(name)


def test_a_child_closes_all_descriptors_as_daemons_do(output: Output, server: Server, name: str) -> None:
    """What has their numbers then is not the library's."""
    program = """
import os, socket, threading
told = threading.Event()
lost = client.lock(name + "-lost", ttl=0.1, auto_renew=False)
lost.on_lost(lambda _: told.set())
with lost:
    pass
pid = os.fork()
if pid:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
else:
    os.closerange(3, 256)
    ends = [end for _ in range(32) for end in socket.socketpair()]
    for end in ends:
        end.send(b"x")
        end.setblocking(False)
    with redlock.Redlock(urls).lock(name, timeout=2) as lock:
        lock.extend()
    lost.acquire()
    assert told.wait(5)
    assert all(end.recv(2) == b"x" for end in ends)
    os._exit(0)
"""
    assert output(program) == "0\n"
    assert not server.has(name)


def test_a_child_that_drops_a_client_leaves_the_parents_connections(start: Start, server: Server, name: str) -> None:
    def connections() -> set[bytes]:
        lines = bytes(server.command("CLIENT", "LIST")).splitlines()
        return {line.split()[0] for line in lines if b"cmd=client" not in line}

    before = connections()
    program = """
import gc, os, sys
# No renewal comes meanwhile, which would make a connection of its own.
other = client.lock(name + "-other", ttl=60)
with other:
    lock = client.lock(name, ttl=60)
    lock.acquire()
print("held", flush=True)
sys.stdin.readline()
pid = os.fork()
if pid == 0:
    del lock, other, client
    gc.collect()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print("forked", flush=True)
sys.stdin.readline()
lock.extend()
lock.release()
"""
    process = start(program)
    assert process.stdout.readline() == "held\n"
    opened = connections() - before
    print(file=process.stdin, flush=True)
    assert process.stdout.readline() == "forked\n"
    assert connections() - before == opened != set()
    assert process.communicate("\n", timeout=LIMIT) == ("", "")
    assert not server.has(name)


def test_a_child_can_acquire_what_it_inherits(output: Output) -> None:
    program = """
import os, sys, threading
lock = client.lock(name)
with lock:
    pass
losses = []
lock.on_lost(losses.append)
idle = redlock.Redlock(urls).lock(name + "-short", ttl=0.1, auto_renew=False)
heard = threading.Event()
idle.on_lost(lambda error: heard.set())
pid = os.fork()
if pid == 0:
    with lock:
        lock.check()
    idle.acquire()
    assert heard.wait(5), "a loss in the child is heard there"
    sys.exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
lock.acquire()
"""
    assert output(program + PARENT) == "parent\n"


def test_parent_and_children_never_have_the_same_token(run: Run, nodes: Nodes, name: str) -> None:
    program = """
import os
# Whatever randomness the parent has drawn, its children inherit.
with client.lock(name):
    pass
locks = [client.lock(f"{name}-{number}") for number in range(9)]
for lock in locks[1:]:
    pid = os.fork()
    if pid == 0:
        lock.acquire()
        # Which leaves it to its ttl.
        os._exit(0)
    os.waitpid(pid, 0)
locks[0].acquire()
os._exit(0)
"""
    assert run(program, nodes=nodes).returncode == 0
    for server in nodes.servers:
        values = [server.command("GET", f"{name}-{number}") for number in range(9)]
        tokens = [value.partition(b":")[0] for value in values if value is not None]
        assert len(set(tokens)) == len(tokens) > 0


def test_asyncio_in_parent_and_child(output: Output) -> None:
    program = """
import asyncio, os, sys
from redlock import asyncio as aio
aclient = aio.Redlock(urls, ttl=5)

async def use(name):
    async with aclient.lock(name) as lock:
        lock.check()

lock = client.lock(name)
lock.acquire()
asyncio.run(use(name + "-a"))
loop = asyncio.new_event_loop()
loop.run_until_complete(use(name + "-b"))
pid = os.fork()
if pid == 0:
    # The loop used last, before another one.
    loop.run_until_complete(use(name + "-b"))
    asyncio.run(use(name + "-a"))
    loop.run_until_complete(use(name + "-b"))
    sys.exit(0)
"""
    # They do not wait at the same time: both poll the same descriptor, and either takes the other's wake-ups.
    after = """
loop.run_until_complete(use(name + "-b"))
loop.close()
"""
    assert output(program + PARENT + after) == "parent\n"


def test_many_forks_at_any_moment(output: Output, nodes: Nodes, name: str) -> None:
    program = """
import children, os, sys
busy = children.Busy(urls, name)
for number in range(10):
    pid = os.fork()
    if pid == 0:
        assert not any(lock.held for lock in busy.held)
        children.use(client, f"{name}-child")
        os._exit(0) if number % 5 else sys.exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, status
busy.end()
print("parent")
"""
    assert output(program, "-W", "error::ResourceWarning", nodes=nodes) == "parent\n"
    keys = [f"{name}-{which}" for which in ("held-0", "held-89", "busy", "loop", "child")]
    until(lambda: not any(nodes.having(key) for key in keys))


def test_a_child_keeps_no_lock_of_a_dead_parent_alive(start: Start, nodes: Nodes, name: str) -> None:
    program = """
import asyncio, os, signal, sys
from redlock import asyncio as aio
lock, alock = client.lock(name, ttl=2), aio.Redlock(urls).lock(name + "-aio", ttl=2)
lock.acquire()
loop = asyncio.new_event_loop()
loop.run_until_complete(alock.acquire())
parent = os.getpid()
if os.fork() == 0:
    os.kill(parent, signal.SIGKILL)
    # Renews what is its own before the others end, so that it could renew those too.
    with client.lock(name + "-child", ttl=4):
        sys.stdin.read()
    sys.exit(0)
signal.pause()
"""
    parent = start(program, nodes=nodes)
    parent.wait(LIMIT)
    until(lambda: nodes.having(f"{name}-child"))
    until(lambda: not nodes.having(name) and not nodes.having(f"{name}-aio"))
    # The child has lived and renewed meanwhile.
    assert nodes.having(f"{name}-child")
    assert parent.communicate(timeout=LIMIT) == ("", "")
    until(lambda: not nodes.having(f"{name}-child"))
