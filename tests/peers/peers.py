"""Locks of other Python libraries, each in the configuration that its documentation calls for.

    session = PEERS["redis-py"].open([url])
    lock = session.lock("foo", ttl_s=10, wait_s=None)
    if lock.acquire():
        lock.release()

Those that are asynchronous have coroutines for `acquire`, `release` and `close`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis
import redis.asyncio
from pottery import AIORedlock, Redlock
from redis_lock import Lock as SignalLock


@dataclass(frozen=True)
class Handle:
    """One lock of a peer: one holder."""

    acquire: Callable[[], Any]
    """Whether it was acquired; or a coroutine of that."""
    release: Callable[[], Any]


@dataclass(frozen=True)
class Session:
    """A peer's connections to its nodes."""

    clients: Sequence[Any]
    make: Callable[..., Handle]

    def lock(self, name: str, ttl_s: float, wait_s: float | None) -> Handle:
        """A lock; `wait_s` is how long to wait for it: `None` for ever, 0 one try."""
        return self.make(self.clients, name, ttl_s, wait_s)

    def close(self) -> list[Any]:
        """Closes the connections; what it returns is awaitable where the peer is asynchronous."""
        return [client.aclose() if hasattr(client, "aclose") else client.close() for client in self.clients]


@dataclass(frozen=True)
class Peer:
    """A library, and how to make its lock."""

    make: Callable[..., Handle]
    connect: Callable[[str], Any] = redis.Redis.from_url
    nodes: int | None = None
    """How many nodes a lock is on; `None` is any number."""
    is_async: bool = False

    def open(self, urls: Sequence[str]) -> Session:
        """Connects to the nodes."""
        assert self.nodes in (None, len(urls)), f"it works on {self.nodes} node"
        return Session([self.connect(url) for url in urls], self.make)


def redis_py(clients: Sequence[Any], name: str, ttl_s: float, wait_s: float | None) -> Handle:
    """`Lock` of redis-py: with a time-out, without which a crash blocks everybody for ever."""
    # A token for each thread would bind the release to the thread of the acquire.
    lock = clients[0].lock(name, timeout=ttl_s, blocking_timeout=wait_s, blocking=wait_s != 0, thread_local=False)
    return Handle(lock.acquire, lock.release)


def pottery(redlock: type[Any], clients: Sequence[Any], name: str, ttl_s: float, wait_s: float | None) -> Handle:
    """`Redlock` and `AIORedlock` of pottery."""
    lock = redlock(key=name, masters=set(clients), auto_release_time=ttl_s)
    # A limit is only for those who wait.
    wait = {"blocking": False} if wait_s == 0 else {"timeout": -1 if wait_s is None else wait_s}
    return Handle(partial(lock.acquire, **wait), lock.release)


def python_redis_lock(clients: Sequence[Any], name: str, ttl_s: float, wait_s: float | None) -> Handle:
    """`Lock` of python-redis-lock: with renewal, and with the time to live without which a crash blocks for ever."""
    lock = SignalLock(clients[0], name, expire=math.ceil(ttl_s), auto_renewal=True)
    # Whole seconds: it cuts off what is less, and takes 0 for no limit.
    wait = {"blocking": False} if wait_s == 0 else {"timeout": wait_s and math.ceil(wait_s)}
    return Handle(partial(lock.acquire, **wait), lock.release)


# Its waiters read with BLPOP for longer than redis-py waits for an answer unless it is told not to.
connect_patiently = partial(redis.Redis.from_url, socket_timeout=None)

PEERS = {
    "redis-py": Peer(redis_py, nodes=1),
    "redis-py-asyncio": Peer(redis_py, redis.asyncio.Redis.from_url, nodes=1, is_async=True),
    "pottery": Peer(partial(pottery, Redlock)),
    "pottery-aio": Peer(partial(pottery, AIORedlock), redis.asyncio.Redis.from_url, is_async=True),
    "python-redis-lock": Peer(python_redis_lock, connect_patiently, nodes=1),
}
"""All of them, by the names that the drivers of all languages share."""
