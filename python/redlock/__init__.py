"""One distributed lock for Redis and Valkey, on one node or a quorum of independent nodes.

    import redlock

    with redlock.lock("invoice:17", ttl=10, timeout=5) as lock:
        store(lock.fence)

While the body runs, no other holder of the name has the lock, in this process or any other, in Python, Rust or Node,
under the usual terms of such locks: bounded clock-rate error and no early loss of keys on the servers. `lock.fence` is
larger than every fence of this name before it, so a resource that remembers the largest one and rejects smaller ones is
safe without these terms. A background thread renews the lock until it is released. If it is lost, `lock.check()` and
every other method report that from this moment on, and leaving the block raises `LockLost`.

The same names for asyncio are in `redlock.asyncio`. Under gevent or eventlet, blocking calls let other greenlets run if
the package has patched `select` before the lock is made. Durations are seconds (float or int) or a `timedelta`.

Nodes come from the environment variable `REDLOCK_URLS` (addresses separated by commas), else the node is
`redis://127.0.0.1:6379`; `Redlock` takes others. An address is `redis://[user:password@]host[:port][/db]`, `rediss://`
for TLS, `unix:///path?db=0`, `redis+sentinel://[user:password@]host1,host2/mymaster[/db]` for the primary that
sentinels name, `redis+cluster://[user:password@]host1,host2` for a Redis Cluster, the same with `valkey`, or
`memory://name` for a store inside this process that excludes nobody outside it.

Importing starts nothing. A process that ends releases its locks, and so does a child of `multiprocessing` or billiard.
After a fork the parent keeps its locks. The child does not hold them, and can acquire all of them again. One process
can use this package in one interpreter only.
"""

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Literal, Unpack, overload

from redlock import _credentials as _credentials  # the native half finds it without running code
from redlock import _default, _exit
from redlock._decorators import Decorates, Name, NameOf, Passes, Plan, Skips, SkipsAndPasses
from redlock._native import __version__
from redlock.blocking import Decorator, Lock, Redlock
from redlock.diagnosis import Diagnosis, Finding, Level
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
from redlock.options import ClientOptions, Credentials, Duration, Login, Options

__all__ = [
    "ClientOptions",
    "Credentials",
    "Diagnosis",
    "Duration",
    "Finding",
    "Level",
    "Lock",
    "LockAlreadyHeld",
    "LockForbidden",
    "LockInvalidArgument",
    "LockLost",
    "LockNotHeld",
    "LockTimeout",
    "LockUnavailable",
    "Login",
    "LostReason",
    "NodeView",
    "Options",
    "Redlock",
    "RedlockError",
    "__version__",
    "configure",
    "diagnose",
    "inspect",
    "lock",
]

if TYPE_CHECKING:
    from redlock import asyncio as asyncio
else:

    def __getattr__(name: str) -> ModuleType:
        """Import `redlock.asyncio` at its first use. Programs without asyncio do not need it."""
        if name != "asyncio":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module("redlock.asyncio")


@overload
def lock(
    name: Name,
    *,
    skip_if_held: Literal[False] = False,
    pass_lock: Literal[False] = False,
    **options: Unpack[Options],
) -> Lock: ...
@overload
def lock(
    name: Name | NameOf, *, skip_if_held: Literal[True], pass_lock: Literal[True], **options: Unpack[Options]
) -> SkipsAndPasses[Lock]: ...
@overload
def lock(name: Name | NameOf, *, skip_if_held: Literal[True], **options: Unpack[Options]) -> Skips: ...
@overload
def lock(name: Name | NameOf, *, pass_lock: Literal[True], **options: Unpack[Options]) -> Passes[Lock]: ...
@overload
def lock(
    name: NameOf,
    *,
    skip_if_held: Literal[False] = False,
    pass_lock: Literal[False] = False,
    **options: Unpack[Options],
) -> Decorates: ...
def lock(
    name: Name | NameOf, *, skip_if_held: bool = False, pass_lock: bool = False, **options: Unpack[Options]
) -> object:
    """Make a lock on the default client, or a decorator whose calls run under one; see `Redlock.lock`.

    The client is made at the first use, from `REDLOCK_URLS` or for `redis://127.0.0.1:6379`; `configure` sets another.

    Raises `LockInvalidArgument` for a wrong name or option, and at the first use for a wrong address. Sends nothing.

    >>> import redlock
    >>> with redlock.lock("job", ttl=10, timeout=5) as lock:
    ...     lock.held
    True
    """
    if skip_if_held or pass_lock or callable(name):
        return Decorator(Plan(lock, name, options, skip_if_held=skip_if_held, pass_lock=pass_lock))
    made = _default.client(Redlock).lock(name, **options)
    made._made_with = name, options  # noqa: SLF001 - a function that it decorates looks for the default client by itself
    return made


def inspect(name: str | bytes) -> list[NodeView]:
    """Show what every node of the default client has under `name`; see `Redlock.inspect`.

    >>> import redlock
    >>> redlock.inspect("nobody's")[0].state
    'free'
    """
    return _default.client(Redlock).inspect(name)


def diagnose() -> list[Diagnosis]:
    """Find out what each node of the default client can do and may lose; see `Redlock.diagnose`.

    >>> import redlock
    >>> redlock.diagnose()[0].level
    'ok'
    """
    return _default.client(Redlock).diagnose()


def configure(nodes: str | Sequence[str] | None = None, **options: Unpack[ClientOptions]) -> None:
    """Set the nodes and the options of the default clients, which `redlock.lock` and `redlock.asyncio.lock` use.

    Takes what `Redlock` takes, and checks it at once. Locks that were made before keep their nodes and options, and
    their client is not closed. Functions that were decorated use the new ones from their next call on.

    Raises `LockInvalidArgument` for a wrong address or option. The default clients are then the former ones.

    >>> import redlock
    >>> redlock.configure("memory://configured", ttl=30)
    >>> with redlock.lock("job") as lock:
    ...     lock.remaining > 20
    True
    >>> redlock.configure()
    """
    _default.configure(Redlock, nodes, options)


_exit.register()
