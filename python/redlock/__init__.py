"""One distributed lock for Redis and Valkey, on one node or a quorum of independent nodes.

    import redlock

    with redlock.lock("invoice:17", ttl=10, timeout=5) as lock:
        store(lock.fence)

While the body runs, no other holder of the name has the lock, in this process or any other, in Python, Rust or Node,
under the usual terms of such locks: bounded clock-rate error and no early loss of keys on the servers. `lock.fence` is
larger than every fence of this name before it, so a resource that remembers the largest one and rejects smaller ones is
safe without these terms. A background thread renews the lock until it is released. If it is lost, `lock.check()` and
every other method report that from this moment on, and leaving the block raises `LockLost`.

`lock_all` makes a lock of several names, `semaphore` one that several can hold, and `election` has one of many
processes lead. `locked` decorates functions whose calls run under a lock. The same names for asyncio are in
`redlock.asyncio`. Under gevent or eventlet, blocking calls let other greenlets run if the package has patched `select`
before the lock is made. Durations are seconds (float or int) or a `timedelta`.

Nodes come from the environment variable `REDLOCK_URLS` (addresses separated by commas), else the node is
`redis://127.0.0.1:6379`; `Redlock` takes others. An address is `redis://[user:password@]host[:port][/db]`, `rediss://`
for TLS, `unix:///path?db=0`, `redis+sentinel://[user:password@]host1,host2/mymaster[/db]` for the primary that
sentinels name, `redis+cluster://[user:password@]host1,host2` for a Redis Cluster, the same with `valkey`, or
`memory://name` for a store inside this process that excludes nobody outside it.

What happens to nodes and locks is logged by `logging`, as `redlock.node`, `redlock.lock` and `redlock.process`. `stats`
returns metrics, and `redlock.otel` exports them and makes spans.

Importing starts nothing. A process that ends releases its locks, and so does a child of `multiprocessing` or billiard.
After a fork the parent keeps its locks. The child does not hold them, and can acquire all of them again. One process
can use this package in one interpreter only.
"""

from types import ModuleType
from typing import TYPE_CHECKING, Unpack

from redlock import _credentials as _credentials  # the native half finds it without running code
from redlock import _default, _exit
from redlock._decorators import SKIPPED, Skipped
from redlock._naming import Name, NameOf, Names
from redlock._native import __version__
from redlock.blocking import Decorator, Election, Lock, Redlock, typed
from redlock.diagnosis import Diagnosis, Finding, Level
from redlock.errors import (
    LockAlreadyHeld,
    LockClosed,
    LockForbidden,
    LockInternal,
    LockInvalidArgument,
    LockLost,
    LockNotHeld,
    LockTimeout,
    LockUnavailable,
    LostReason,
    RedlockError,
)
from redlock.inspection import LockView, NodeView
from redlock.leadership import Leader
from redlock.metrics import Histogram, Metric, Point, Stats, count_by_name, stats
from redlock.options import (
    OWN,
    ClientOptions,
    Credentials,
    Duration,
    ElectionOptions,
    Login,
    NameOptions,
    Nodes,
    Options,
    RedisClient,
    takes,
)

__all__ = [
    "SKIPPED",
    "ClientOptions",
    "Credentials",
    "Diagnosis",
    "Duration",
    "Election",
    "ElectionOptions",
    "Finding",
    "Histogram",
    "Leader",
    "Level",
    "Lock",
    "LockAlreadyHeld",
    "LockClosed",
    "LockForbidden",
    "LockInternal",
    "LockInvalidArgument",
    "LockLost",
    "LockNotHeld",
    "LockTimeout",
    "LockUnavailable",
    "LockView",
    "Login",
    "LostReason",
    "Metric",
    "NameOptions",
    "NodeView",
    "Options",
    "Point",
    "RedisClient",
    "Redlock",
    "RedlockError",
    "Skipped",
    "Stats",
    "__version__",
    "attach",
    "configure",
    "count_by_name",
    "diagnose",
    "election",
    "inspect",
    "inspect_semaphore",
    "lock",
    "lock_all",
    "locked",
    "semaphore",
    "stats",
]

if TYPE_CHECKING:
    from redlock import asyncio as asyncio
else:

    def __getattr__(name: str) -> ModuleType:
        """Import `redlock.asyncio` at its first use. Programs without asyncio do not need it."""
        if name != "asyncio":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # A statement, because PyInstaller and the like do not find what a function imports.
        import redlock.asyncio as module  # noqa: PLC0415

        return module

    def _frozen() -> None:
        """Import what only the native half imports. Never called: PyInstaller and the like find the modules here."""
        from redlock import _clients, _events  # noqa: F401, PLC0415


@takes(NameOptions)
def lock(name: Name, **options: Unpack[NameOptions]) -> Lock:
    """Make a lock on the default client; see `Redlock.lock`. Sends nothing.

    The client is made at the first use, which may be a decorator, from `REDLOCK_URLS` as it is then, or else for
    `redis://127.0.0.1:6379`; `configure` sets another.

    Options, whose defaults are those of the client; `NameOptions` says more. Durations are seconds or a `timedelta`:

    - `ttl`: how long the servers keep the lock unless it is extended; a crashed holder blocks others so long; 10 s
    - `timeout`: how long acquire may wait; 0 for one try, `None` (the default) forever
    - `auto_renew`: whether a background thread renews the lock until it is released; `True`
    - `max_hold`: the lock ends this long after it was acquired, however often it was renewed; no limit
    - `at_least`: the least time before others can have the lock, even if it is released sooner; 0
    - `margin`: by how much the lock counts as lost before others can have it; 0
    - `shared`: whether many readers may have the lock at once, and then no writer; `False`
    - `label`: what inspection shows as the holder; `host:pid`
    - `node_timeout`: longest wait for one node's vote; a quarter of the ttl, from 0.05 s to 0.5 s
    - `restart_delay`: how long the grants of a node do not count after it was seen to restart; the ttl
    - `fence_ttl`: how long a node remembers the fence of a name; the larger of 1 h and twice the ttl
    - `protocol`: `"setnx"` for a key that is shared with code of the older protocol; `"plain"`

    Raises `LockInvalidArgument` for a wrong name or option, and at the first use for a wrong address.

    >>> import redlock
    >>> with redlock.lock("job", ttl=10, timeout=5) as lock:
    ...     lock.held
    True
    """
    made = _default.client(Redlock).lock(name, **options)
    # A function that it decorates looks for the default client by itself.
    made._made_with = lock, (name,), options  # noqa: SLF001 - it is for this
    return made


@takes(Options)
def lock_all(names: Names, **options: Unpack[Options]) -> Lock:
    """Make a lock of several names on the default client; see `Redlock.lock_all`. Sends nothing.

    Raises `LockInvalidArgument` for wrong names or a wrong option, and at the first use for a wrong address.

    >>> import redlock
    >>> with redlock.lock_all(["account:ada", "account:bob"], timeout=5) as lock:
    ...     lock.held
    True
    """
    made = _default.client(Redlock).lock_all(names, **options)
    made._made_with = lock_all, (made.names,), options  # noqa: SLF001
    return made


@takes(Options)
def semaphore(name: Name, permits: int, **options: Unpack[Options]) -> Lock:
    """Make a lock that up to `permits` can hold, on the default client; see `Redlock.semaphore`. Sends nothing.

    Raises `LockInvalidArgument` for a wrong name, number of permits or option, and at the first use for a wrong
    address.

    >>> import redlock
    >>> with redlock.semaphore("reports", 5, timeout=5) as lock:
    ...     lock.slot in range(5)
    True
    """
    made = _default.client(Redlock).semaphore(name, permits, **options)
    made._made_with = semaphore, (name, permits), options  # noqa: SLF001
    return made


@typed
@takes(NameOptions)
def locked(
    name: NameOf,
    *,
    permits: int | None = None,
    skip_if_held: bool = False,
    pass_lock: bool = False,
    **options: Unpack[NameOptions],
) -> Decorator:
    """Make a decorator: each call of the function runs under a fresh lock of the default client; see `Redlock.locked`.

    `name` can be a template of the parameters, such as `"order:{order_id}"`, or a function of some of them. With
    `skip_if_held`, a call returns `SKIPPED` if others hold the lock. With `pass_lock`, the function gets the lock.
    `lock` lists the other options.

    Raises `LockInvalidArgument` for a wrong name or option, and at the first use for a wrong address; see
    `Redlock.locked`. Sends nothing.

    >>> import redlock
    >>> @redlock.locked("order:{order_id}", timeout=5)
    ... def ship(order_id: int) -> str:
    ...     return redlock.inspect(f"order:{order_id}").state
    >>> ship(17)
    'held'
    """
    return Decorator(lambda: _default.client(Redlock), name, permits, options, skips=skip_if_held, passes=pass_lock)


def attach(text: str, *, ttl: Duration | None = None, timeout: Duration | None = OWN) -> Lock:
    """Go on with a detached lock, on the default client; see `Redlock.attach`. Return the lock, which is held.

    `text` is what `Lock.detach` has returned, in this program or in another.

    >>> import redlock
    >>> with redlock.lock("report:17") as lock:
    ...     text = lock.detach()
    >>> with redlock.attach(text) as lock:
    ...     lock.held
    True
    """
    return _default.client(Redlock).attach(text, ttl=ttl, timeout=timeout)


@takes(ElectionOptions)
def election(name: Name, **options: Unpack[ElectionOptions]) -> Election:
    """Make a candidate of the election with this name, on the default client; see `Redlock.election`. Sends nothing.

    Raises `LockInvalidArgument` for a wrong name or option, and at the first use for a wrong address.

    >>> import redlock
    >>> redlock.election("scheduler").run(lambda lock: "led")
    'led'
    """
    return _default.client(Redlock).election(name, **options)


def inspect(name: str | bytes) -> LockView:
    """Show whose lock `name` is, and what every node of the default client has; see `Redlock.inspect`.

    >>> import redlock
    >>> redlock.inspect("nobody's").state
    'free'
    """
    return _default.client(Redlock).inspect(name)


def inspect_semaphore(name: str | bytes, permits: int) -> list[LockView]:
    """Show whose each slot of a semaphore of the default client is; see `Redlock.inspect_semaphore`.

    >>> import redlock
    >>> [view.state for view in redlock.inspect_semaphore("nobody's", 2)]
    ['free', 'free']
    """
    return _default.client(Redlock).inspect_semaphore(name, permits)


def diagnose() -> list[Diagnosis]:
    """Find out what each node of the default client can do and may lose; see `Redlock.diagnose`.

    >>> import redlock
    >>> redlock.diagnose()[0].level
    'ok'
    """
    return _default.client(Redlock).diagnose()


@takes(ClientOptions)
def configure(nodes: Nodes = None, **options: Unpack[ClientOptions]) -> None:
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
