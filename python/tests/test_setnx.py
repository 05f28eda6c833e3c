"""The older SETNX protocol, for a key that is shared with code that still uses it."""

import asyncio
from typing import Any

import pytest
from conftest import Run
from server import Server
from support.clock import until
from test_asyncio import eventually

import redlock
from redlock import asyncio as aio


def test_a_lock_without_fence_and_renewal(client: redlock.Redlock, server: Server, name: str) -> None:
    lock = client.lock(name, protocol="setnx", ttl=2)
    with pytest.raises(redlock.LockInvalidArgument, match="setnx"):
        _ = lock.fence
    with pytest.raises(redlock.LockInvalidArgument, match="setnx"):
        lock.extend()
    with lock:
        expiry = int(server.command("GET", name))
        now = int(server.command("TIME")[0])
        assert now <= expiry - 2 <= now + 1 + 2
        lock.check()
        assert lock.held
        assert 0 < lock.remaining < 2
        with pytest.raises(redlock.LockInvalidArgument, match="setnx"):
            _ = lock.fence
        with pytest.raises(redlock.LockInvalidArgument, match="setnx"):
            lock.extend(5)
        assert not client.lock(name, protocol="setnx").acquire(blocking=False)
        assert not client.lock(name).acquire(blocking=False)
        view = client.inspect(name)
        assert view.state == "foreign"
        assert view.ttl_left is not None
    assert not server.has(name)


def test_its_loss_is_told(client: redlock.Redlock, server: Server, name: str) -> None:
    losses: list[redlock.LockLost] = []
    lock = client.lock(name, protocol="setnx", ttl=0.2)
    lock.on_lost(losses.append)
    assert lock.acquire()
    until(lambda: losses)
    assert losses[0].reason == "expired"
    with pytest.raises(redlock.LockLost):
        lock.release()
    until(lambda: not server.has(name))


@pytest.mark.parametrize("module", [redlock, aio])
def test_what_it_cannot_do_is_invalid_before_anything_is_sent(module: Any, server: Server) -> None:
    urls = ["memory://setnx-1", "memory://setnx-2"]
    with pytest.raises(redlock.LockInvalidArgument, match="one node"):
        module.Redlock(urls).lock("foo", protocol="setnx")
    with pytest.raises(redlock.LockInvalidArgument, match="one node"):
        module.Redlock(urls, protocol="setnx")
    client = module.Redlock(server.url, auto_renew=True)
    with pytest.raises(redlock.LockInvalidArgument, match="auto_renew"):
        client.lock("foo", protocol="setnx")
    with pytest.raises(redlock.LockInvalidArgument, match="auto_renew"):
        module.Redlock(server.url, protocol="setnx").lock("foo", auto_renew=True)
    with pytest.raises(redlock.LockInvalidArgument, match="Setnx"):
        client.lock("foo", protocol="Setnx")
    for wrong in (1, b"setnx"):
        with pytest.raises(redlock.LockInvalidArgument, match="protocol"):
            client.lock("foo", protocol=wrong)
    client.lock("foo", protocol="setnx", auto_renew=False)


def test_a_client_has_it_for_its_locks(server: Server, name: str) -> None:
    with redlock.Redlock(server.url, protocol="setnx") as client:
        with client.lock(name):
            assert int(server.command("GET", name)) > 0
        with client.lock(name, protocol="plain") as lock:
            assert lock.fence > 0


async def test_in_asyncio(aclient: aio.Redlock, server: Server, name: str) -> None:
    lock = aclient.lock(name, protocol="setnx", ttl=60)
    async with lock:
        assert int(server.command("GET", name)) > 0
        with pytest.raises(redlock.LockInvalidArgument):
            await lock.extend()
        with pytest.raises(redlock.LockInvalidArgument):
            _ = lock.fence
        waiting = asyncio.create_task(aclient.lock(name, protocol="setnx").acquire())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    # An attempt that was on its way may have won it, and is given back.
    await eventually(lambda: not server.has(name))
    with pytest.raises(redlock.LockLost):
        async with aclient.lock(name, protocol="setnx", ttl=0.2):
            await asyncio.sleep(60)


PARENT_AND_CHILD = """
import os
lock = client.lock(name, protocol="setnx", ttl=60)
with lock:
    pid = os.fork()
    if pid == 0:
        assert not lock.held
        assert not lock.acquire(blocking=False)
        with client.lock(name + "-child", protocol="setnx"):
            pass
        del lock
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    lock.check()
    assert client.inspect(name).state == "foreign"
print("parent")
"""


def test_a_child_leaves_it_alone(run: Run, server: Server, name: str) -> None:
    done = run(PARENT_AND_CHILD)
    assert (done.stdout, done.stderr, done.returncode) == ("parent\n", "", 0)
    assert not server.has(name)


def test_a_process_that_ends_gives_it_back(run: Run, server: Server, name: str) -> None:
    done = run('lock = client.lock(name, protocol="setnx", ttl=60)\nassert lock.acquire()\nkept = [lock]')
    assert done.returncode == 0, done.stderr
    assert not server.has(name)
