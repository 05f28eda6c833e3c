"""A program that uses this package, as a type checker sees it. It is checked, and never run.

Marked lines must be errors: an unneeded marker is an error itself.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_type

import redis.asyncio

import redlock
from redlock import asyncio as aio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def names_and_options(client: redlock.Redlock, options: redlock.Options) -> None:
    assert_type(redlock.lock("foo"), redlock.Lock)
    assert_type(redlock.lock(b"foo", ttl=10, timeout=5.5, max_hold=timedelta(hours=1)), redlock.Lock)
    assert_type(client.lock("foo", **options), redlock.Lock)
    assert_type(redlock.Redlock(), redlock.Redlock)
    redlock.Redlock("redis://a", ttl=10)
    redlock.Redlock("redis://a", connect_timeout=timedelta(seconds=5), protocol="plain")
    redlock.lock("foo", ttl=None, auto_renew=None, label=None)
    redlock.configure("redis://a", ttl=10, key_prefix="app:")
    redlock.Redlock("redis://a", credentials=login)
    aio.Redlock("redis://a", credentials=login_async)
    redlock.configure("redis://a", credentials=lambda: ("user", "password", timedelta(hours=1)))
    redlock.Redlock("redis://a", credentials=key)  # type: ignore[arg-type]
    redlock.Redlock("redis://a", credentials=("user", "password"))  # type: ignore[arg-type]
    redlock.lock("foo", credentials=login)  # type: ignore[call-arg]
    redlock.lock("foo", connect_timeout=5)  # type: ignore[call-arg]
    redlock.lock(3)  # type: ignore[arg-type]
    redlock.lock("foo", ttl="10")  # type: ignore[arg-type]
    redlock.lock("foo", blocking_timeout=1)  # type: ignore[call-arg]
    redlock.lock("foo", 10)  # type: ignore[call-arg]
    redlock.Redlock(3)  # type: ignore[arg-type]
    clients: list[redlock.RedisClient] = [redis.Redis(), redis.asyncio.Redis(), redis.ConnectionPool()]
    clients += [redis.RedisCluster(), redis.asyncio.RedisCluster(), redis.asyncio.ConnectionPool()]
    redlock.Redlock(clients)
    aio.Redlock([redis.Redis(), "redis://b"])
    redlock.configure(redis.Redis())
    redlock.Redlock(redis.Redis().pubsub)  # type: ignore[arg-type]
    redlock.Redlock([b"redis://a"])  # type: ignore[list-item]


def login() -> tuple[str, str]:
    return "user", "password"


async def login_async() -> redlock.Login:
    return "user", "password", 60


def locks(lock: redlock.Lock, client: redlock.Redlock) -> None:
    with lock as held:
        assert_type(held, redlock.Lock)
    assert_type(lock.acquire(), bool)
    assert_type(lock.acquire(False), bool)
    assert_type(lock.locked(), bool)
    assert_type(lock.wait_lost(5), redlock.LockLost | None)
    lock.acquire(blocking_timeout=5)  # type: ignore[call-arg]
    assert_type(lock.name, str | bytes)
    assert_type(lock.fence, int)
    assert_type(lock.held, bool)
    assert_type(lock.remaining, float)
    lock.extend(3)
    lock.extend(ttl=None)
    lock.check()
    lock.on_lost(lambda error: print(error.reason))
    lock.acquire(timeout="1")  # type: ignore[arg-type]
    lock.fence = 1  # type: ignore[misc]
    lock.on_lost(print_name)  # type: ignore[arg-type]
    assert_type(client.inspect("foo"), redlock.LockView)
    assert_type(client.inspect("foo").nodes, list[redlock.NodeView])
    with client as same:
        assert_type(same, redlock.Redlock)


def print_name(name: str) -> None:
    print(name)


@redlock.lock("foo")
def work(amount: int, *, more: str = "") -> float:
    return amount + len(more)


@aio.lock("foo")
async def work_async(amount: int) -> float:
    return amount


def decorated() -> None:
    assert_type(work(1, more="2"), float)
    work("1")  # type: ignore[arg-type]
    plain: Callable[[int], float] = work
    plain(1)
    starts: Callable[[int], Coroutine[Any, Any, float]] = work_async
    starts(1).close()
    aio.lock("foo")(print_name)  # type: ignore[arg-type]


async def with_asyncio(client: aio.Redlock) -> None:
    lock = aio.lock("foo", ttl=10)
    assert_type(lock, aio.Lock)
    async with lock as held:
        assert_type(held, aio.Lock)
    assert_type(await lock.acquire(timeout=1), bool)
    await lock.extend(3)
    await lock.release()
    assert_type(lock.fence, int)
    assert_type(await client.inspect(b"foo"), redlock.LockView)
    assert_type(await work_async(1), float)
    async with client as same:
        assert_type(same, aio.Redlock)
    await client.aclose()
    client.close()
    assert_type(await lock.locked(), bool)
    assert_type(await lock.wait_lost(5), redlock.LockLost | None)
    aio.lock("foo", sleep=1)  # type: ignore[call-arg]
    with lock:  # type: ignore[attr-defined]
        pass


def key(user: str, amount: int = 0) -> str:
    return f"{user}:{amount}"


@redlock.locked(key, ttl=5)
def pay(user: str, amount: int) -> float:
    return amount / len(user)


def configured(skips: bool) -> None:
    """An option that is not known before the program runs."""

    @redlock.locked("cron", skip_if_held=skips)
    def work() -> int:
        return 1

    assert_type(work(), int | redlock.Skipped)


@redlock.locked("cron:{day}", skip_if_held=True)
def nightly(day: int) -> str:
    return str(day)


@redlock.locked("passed", pass_lock=True)
def passed(lock: redlock.Lock, amount: int) -> int:
    return lock.fence + amount


class Account:
    @redlock.locked("account", pass_lock=True)
    def close(self, lock: redlock.Lock, *, force: bool) -> int:
        return lock.fence + force

    @classmethod
    @redlock.locked("account", pass_lock=True, skip_if_held=True)
    def find(cls, lock: redlock.Lock, number: int) -> int:
        return lock.fence + number

    @aio.locked("account", pass_lock=True, skip_if_held=True)
    async def open(self, lock: aio.Lock, number: int) -> int:
        return lock.fence + number


@redlock.asyncio.locked(key, pass_lock=True, skip_if_held=True)
async def both_async(lock: aio.Lock, user: str) -> int:
    return lock.fence + len(user)


async def more_decorated(account: Account) -> None:
    assert_type(pay("ada", amount=5), float)
    assert_type(nightly(1), str | redlock.Skipped)
    assert_type(passed(5), int)
    assert_type(account.close(force=True), int)
    assert_type(Account.find(5), int | redlock.Skipped)
    assert_type(await account.open(5), int | redlock.Skipped)
    assert_type(await both_async("ada"), int | redlock.Skipped)
    pay("ada")  # type: ignore[call-arg]
    passed("ada")  # type: ignore[arg-type]
    account.close(5)  # type: ignore[call-arg,arg-type]
    redlock.lock("foo", skip_if_held=True)  # type: ignore[call-arg]
    redlock.lock(key)  # type: ignore[arg-type]
    redlock.locked("foo", skip_if_held=True).acquire()  # type: ignore[attr-defined]
    redlock.locked("foo", tll=3)  # type: ignore[call-overload]
    redlock.locked(3)  # type: ignore[call-overload]


def skipped() -> int:
    result = nightly(1)
    if result is redlock.SKIPPED:
        return 0
    assert_type(result, str)
    return len(result)


@redlock.locked({"a", "b"}, skip_if_held=True, pass_lock=True)
def several_passed(lock: redlock.Lock, amount: int) -> int:
    return lock.fence + amount


@redlock.locked(key, permits=5, pass_lock=True)
def pooled(lock: redlock.Lock, user: str) -> int | None:
    return lock.slot if user else None


async def shapes(client: redlock.Redlock, aclient: aio.Redlock) -> None:
    assert_type(redlock.lock_all(["a", b"b"], ttl=10), redlock.Lock)
    assert_type(client.lock_all(iter("ab"), at_least=1, margin=timedelta(seconds=1)), redlock.Lock)
    assert_type(client.semaphore(b"pool", 5, timeout=None), redlock.Lock)
    assert_type(aio.lock_all(("a", "b")), aio.Lock)
    assert_type(aclient.semaphore("pool", 5), aio.Lock)
    assert_type(client.lock("foo").names, tuple[str | bytes, ...])
    assert_type(client.lock("foo").slot, int | None)
    assert_type(client.inspect_semaphore("pool", 5), list[redlock.LockView])
    assert_type(await aclient.inspect_semaphore("pool", 5), list[redlock.LockView])
    assert_type(client.inspect("foo").slot, int | None)
    assert_type(several_passed(5), int | redlock.Skipped)
    assert_type(pooled("ada"), int | None)
    redlock.lock_all(3)  # type: ignore[arg-type]
    redlock.lock_all(["a"], connect_timeout=1)  # type: ignore[call-arg]
    client.semaphore("pool")  # type: ignore[call-arg]
    client.semaphore("pool", "5")  # type: ignore[arg-type]
    aclient.lock_all("a", "b")  # type: ignore[call-arg,arg-type]


async def elections(client: redlock.Redlock, aclient: aio.Redlock, options: redlock.ElectionOptions) -> None:
    election = client.election("scheduler", ttl=10, margin=2, label="me")
    assert_type(election, redlock.Election)
    assert_type(redlock.election(b"scheduler", **options), redlock.Election)
    assert_type(election.run(lambda lock: lock.fence), int | None)
    assert_type(election.leader(), redlock.Leader | None)
    assert_type(election.stopped, bool)
    election.stop()
    aelection = aclient.election("scheduler")
    assert_type(aelection, aio.Election)
    assert_type(aio.election("scheduler"), aio.Election)
    assert_type(await aelection.run(lead_async), int | None)
    assert_type(await aelection.leader(), redlock.Leader | None)
    aelection.stop()
    leader = redlock.Leader("me", 3)
    assert_type(leader.label, str | None)
    assert_type(leader.term, int | None)
    leader.term = 4  # type: ignore[misc]
    election.run(lead_async)  # type: ignore[arg-type]
    await aelection.run(print_lock)  # type: ignore[arg-type]
    client.election("scheduler", timeout=5)  # type: ignore[call-arg]
    client.election(["scheduler"])  # type: ignore[arg-type]


async def lead_async(lock: aio.Lock) -> int:
    return lock.fence


def print_lock(lock: aio.Lock) -> None:
    print(lock)


def errors(error: redlock.RedlockError, lost: redlock.LockLost) -> None:
    assert_type(error.code, str)
    assert_type(error.retryable, bool)
    assert_type(error.name, str | None)
    assert_type(error.nodes, tuple[tuple[str, str], ...])
    assert_type(lost.reason, redlock.LostReason)
    other: TimeoutError = redlock.LockTimeout()
    raise other
