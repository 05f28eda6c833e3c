"""Locks of several names and semaphores, as Python has them: arguments, properties, decorators, views."""

# A lambda cannot say what it takes.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from conftest import Run
from server import Server

import redlock
from redlock import asyncio as aio
from redlock.testing import MemoryServer, lose


@pytest.fixture
def memory() -> MemoryServer:
    return MemoryServer()


# --- several names ---


NAMES: list[tuple[Iterable[str | bytes], tuple[str | bytes, ...], str | bytes]] = [
    (["b", "a", "b"], ("a", "b"), "a, b"),
    ({"b": 1, "a": 2}, ("a", "b"), "a, b"),
    ({b"b", b"a"}, (b"a", b"b"), b"a, b"),
    (["schlüssel", b"\xff"], ("schlüssel", b"\xff"), "schlüssel".encode() + b", \xff"),
    (["a", b"a"], ("a",), "a"),
    ([b"a"], (b"a",), b"a"),
]


@pytest.mark.parametrize("face", [redlock, aio])
def test_names_are_sorted_and_each_once(face: Any) -> None:
    client = face.Redlock("memory://names")
    for given, names, name in NAMES:
        lock = client.lock_all(given)
        assert (lock.names, lock.name) == (names, name)
        assert repr(names if len(names) > 1 else name) in repr(lock)
        assert lock.slot is None
    assert client.lock("a").names == ("a",)


@pytest.mark.parametrize("face", [redlock, aio])
def test_each_of_the_two_hints_at_the_other(face: Any) -> None:
    client = face.Redlock("memory://hints")
    with pytest.raises(redlock.LockInvalidArgument, match=r"of type list.*lock_all"):
        client.lock(["a", "b"])
    with pytest.raises(redlock.LockInvalidArgument, match=r"of type str.*for one name, use lock"):
        client.lock_all("a")


def test_what_an_iterable_raises_comes_out() -> None:
    def names() -> Iterable[str]:
        yield "a"
        raise KeyError("b")

    with pytest.raises(KeyError, match="b"):
        redlock.Redlock("memory://raises").lock_all(names())


# --- semaphores ---


def test_a_lost_semaphore_keeps_its_slot_until_it_is_released(memory: MemoryServer) -> None:
    lock = redlock.Redlock(memory.url).semaphore("pool", 1)
    lock.acquire()
    lose(lock, "expired")
    assert not lock.held
    assert lock.slot == 0
    with pytest.raises(redlock.LockLost):
        lock.release()
    assert lock.slot is None


def test_a_semaphore_shows_its_permits() -> None:
    lock = redlock.Redlock("memory://shown").semaphore("pool", 5, ttl=5)
    assert repr(lock) == "<redlock.blocking.Lock 'pool' not held permits=5 ttl=5.0>"


# --- both ---


def test_a_forked_child_starts_with_neither(run: Run) -> None:
    program = """
import os
locks = [client.lock_all([name, name + "-2"]), client.semaphore(name, 1)]
for lock in locks:
    lock.acquire()
child = os.fork()
if child == 0:
    for lock in locks:
        assert not lock.held and lock.slot is None
        try:
            lock.release()
        except redlock.LockNotHeld:
            pass
        assert not lock.acquire(timeout=0)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), [lock.held for lock in locks], locks[1].slot)
for lock in locks:
    lock.release()
"""
    done = run(program, "-W", "error::ResourceWarning")
    assert (done.stdout, done.stderr) == ("7 [True, True] 0\n", "")


# --- decorators ---


def test_each_call_of_a_decorated_function_has_all_names(client: redlock.Redlock, server: Server, name: str) -> None:
    first, second = f"{name}-1", f"{name}-2"

    @client.lock_all([first, second])
    def work(amount: int) -> int:
        assert server.has(first)
        assert server.has(second)
        return amount

    @client.locked([name + "-{one}", second.encode()], pass_lock=True)
    def by_template(lock: redlock.Lock, one: int) -> tuple[str | bytes, ...]:
        assert one == 1
        return lock.names

    assert work(1) == work(amount=1) == 1
    assert by_template(1) == (first, second.encode())
    assert not server.has(first)


def test_names_that_can_be_taken_once_serve_every_call(client: redlock.Redlock, name: str) -> None:
    @client.locked((f"{name}-{number}" for number in range(2)), skip_if_held=True, pass_lock=True)
    def work(lock: redlock.Lock) -> int:
        return len(lock.names)

    assert work() == 2
    with client.lock(f"{name}-1"):
        assert work() is redlock.SKIPPED
    assert work() == 2


def test_a_decorated_function_has_a_permit(client: redlock.Redlock, name: str) -> None:
    @client.locked(name, permits=2, pass_lock=True)
    def by_lock(lock: redlock.Lock) -> int | None:
        return lock.slot

    @client.locked(name + ":{tenant}", permits=1, skip_if_held=True, pass_lock=True)
    def by_tenant(lock: redlock.Lock, tenant: str) -> int | None:
        inner = by_tenant(tenant)
        return lock.slot if inner is redlock.SKIPPED else pytest.fail("it has one permit")

    assert by_lock() in (0, 1)
    assert by_tenant("ada") == 0


async def test_decorated_coroutine_functions(aclient: aio.Redlock, server: Server, name: str) -> None:
    @aclient.locked(lambda *users: [f"{name}:{user}" for user in users], skip_if_held=True)
    async def of_users(*users: str) -> int:
        await asyncio.sleep(0.05)
        return len(users)

    @aclient.locked(name, permits=2, pass_lock=True)
    async def pooled(lock: aio.Lock) -> int | None:
        await asyncio.sleep(0.05)
        return lock.slot

    assert sorted(await asyncio.gather(of_users("a", "b"), of_users("b", "c")), key=str) == [2, redlock.SKIPPED]
    assert set(await asyncio.gather(*(pooled() for _ in range(4)))) == {0, 1}
    assert not server.has(f"{name}:b")


# --- the default clients ---
