"""One distributed lock for Redis and Valkey, on one node or a quorum of independent nodes.

    import redlock

    with redlock.lock("invoice:17", ttl=10, timeout=5) as lock:
        store(lock.fence)

While the body runs, no other holder of the name has the lock, in this process or any other, in Python, Rust or Node,
under the usual terms of such locks: bounded clock-rate error and no early loss of keys on the servers. `lock.fence` is
larger than every fence of this name before it, so a resource that remembers the largest one and rejects smaller ones is
safe without these terms. A background thread renews the lock until it is released. If it is lost, `lock.check()` and
every other method report that from this moment on, and leaving the block raises `LockLost`.

The same names for asyncio are in `redlock.asyncio`. Durations are seconds (float or int) or a `timedelta`.

Nodes come from the environment variable `REDLOCK_URLS` (addresses separated by commas), else the node is
`redis://127.0.0.1:6379`; `Redlock` takes others. An address is `redis://[user:password@]host[:port][/db]`, `rediss://`
for TLS, `unix:///path?db=0`, the same with `valkey`, or `memory://name` for a store inside this process that excludes
nobody outside it.

Importing starts nothing. A process that ends releases its locks, and so does a child of `multiprocessing` or billiard.
After a fork the parent keeps its locks. The child does not hold them, and can acquire all of them again. One process
can use this package in one interpreter only.
"""

import functools
from typing import Unpack

from redlock import _exit
from redlock._native import __version__
from redlock.blocking import Lock, Redlock
from redlock.errors import (
    LockAlreadyHeld,
    LockForbidden,
    LockInvalidArgument,
    LockLost,
    LockNotHeld,
    LockTimeout,
    LockUnavailable,
    LostReason,
    RedlockError,
)
from redlock.inspection import NodeView
from redlock.options import ClientOptions, Duration, Options

__all__ = [
    "ClientOptions",
    "Duration",
    "Lock",
    "LockAlreadyHeld",
    "LockForbidden",
    "LockInvalidArgument",
    "LockLost",
    "LockNotHeld",
    "LockTimeout",
    "LockUnavailable",
    "LostReason",
    "NodeView",
    "Options",
    "Redlock",
    "RedlockError",
    "__version__",
    "inspect",
    "lock",
]

# The client is made at its first use. Two threads that make one at the same time share its connections.
_client = functools.cache(Redlock)


def lock(name: str | bytes, **options: Unpack[Options]) -> Lock:
    """Make a lock on the default client; see `Redlock.lock`.

    The client is made at the first use, from `REDLOCK_URLS` or for `redis://127.0.0.1:6379`.

    Raises `LockInvalidArgument` for a wrong name or option, and at the first use for a wrong address. Sends nothing.

    >>> import redlock
    >>> with redlock.lock("job", ttl=10, timeout=5) as lock:
    ...     lock.held
    True
    """
    return _client().lock(name, **options)


def inspect(name: str | bytes) -> list[NodeView]:
    """Show what every node of the default client has under `name`; see `Redlock.inspect`.

    >>> import redlock
    >>> redlock.inspect("nobody's")[0].state
    'free'
    """
    return _client().inspect(name)


_exit.register()
