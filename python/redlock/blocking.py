"""The client and the lock whose calls block the calling thread. `redlock` exports them."""

import contextlib
import select
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from redlock import _default, _losses, _native
from redlock._checks import OnlyWith, plain
from redlock._decorators import Decorates, Name, NameOf, NotALock, Passes, Place, Plan, Skips, SkipsAndPasses
from redlock.diagnosis import Diagnosis
from redlock.errors import LockLost, LockTimeout
from redlock.inspection import NodeView
from redlock.options import Options

P = ParamSpec("P")
R = TypeVar("R")


_TAKER = "a lock of redlock (redlock.asyncio has one for coroutine functions)"


class Lock(OnlyWith, _native.Lock):
    """A lock by name: acquire it, hold it, release it, as often as you like. `Redlock.lock` makes one.

    One object is one holder: two objects of one name exclude each other, in one process too. Any thread can use it,
    whichever has acquired it. While a call blocks, other threads run. Ctrl-C ends the call within 50 ms and leaves no
    key behind. Signal handlers can use locks, also while a call of the main thread blocks.

    `with` acquires on entry and releases on exit. Entry raises `LockTimeout` and what `Lock.acquire` raises; exit
    raises `LockLost` if the lock was lost meanwhile, unless the body is already raising. A release that no quorum
    confirms is not an error there: the background continues it.

    As a decorator it makes a fresh lock for each call, with the same options and `on_lost` callbacks. A function with a
    parameter that is annotated with this class gets the lock there. Generators and coroutine functions are refused with
    `TypeError`: their body would run after the release. `Redlock.lock` makes decorators that can do more.

    It cannot be pickled or copied. If it is garbage-collected while held, it is released, with a `ResourceWarning`.

    >>> import redlock
    >>> client = redlock.Redlock("memory://lock")
    >>> lock = client.lock("job", ttl=5)
    >>> with lock:
    ...     client.lock("job").acquire(blocking=False)
    False
    >>> @client.lock("job")
    ... def work(amount: int) -> int:
    ...     return amount + 1
    >>> work(1)
    2
    """

    __slots__ = ("__weakref__", "_callbacks", "_made_with")

    _callbacks: list[Callable[[LockLost], object]]
    # The name and the options of a lock of the default client.
    _made_with: tuple[Name, Options]

    def on_lost(self, callback: Callable[[LockLost], object]) -> None:
        """Have `callback(error)` called at each loss of this lock, once each, from now on.

        It runs on one daemon thread of this package, soon after the moment from which the lock counts as lost. Set it
        at any time: if the lock is lost already, and neither released nor acquired again since, the callback is called
        for that loss too. There may be several, called in the order in which they were set. An exception of one goes to
        `threading.excepthook`, and the others are still called. A callback must not take long, because it delays the
        others. A release is not a loss, and a lock that is garbage-collected calls no callback.

        Raises `TypeError` if `callback` cannot be called or is a coroutine function.

        >>> import redlock, threading
        >>> lost = threading.Event()
        >>> lock = redlock.Redlock("memory://on-lost").lock("job", ttl=0.1, auto_renew=False)
        >>> lock.on_lost(lambda error: lost.set())
        >>> lock.acquire()
        True
        >>> lost.wait(5)
        True
        """
        plain(callback, "on_lost")
        try:
            callbacks = self._callbacks
        except AttributeError:
            callbacks = self._callbacks = []
        callbacks.append(callback)
        _losses.watch(self, len(callbacks) - 1)

    def _another(self) -> "Lock":
        """Make another lock with the same name and options, and on the present default client if this one had one."""
        try:
            name, options = self._made_with
        except AttributeError:
            other: Lock = type(self)(self)
        else:
            other = _default.client(Redlock).lock(name, **options)
        for callback in getattr(self, "_callbacks", ()):
            other.on_lost(callback)
        return other

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate `function`: each call runs under a fresh lock."""
        plain(function, _TAKER)
        place = Place(function, Lock)

        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._another() as lock:
                return place.call(function, lock, args, kwargs)

        return place.wraps(function, locked)


class Decorator(NotALock):
    """Runs each call of the functions that it decorates under the lock of a plan."""

    __slots__ = ("_plan",)

    def __init__(self, plan: Plan[Lock]) -> None:
        self._plan = plan

    def __call__(self, function: Callable[..., R]) -> Callable[..., R | None]:
        """Decorate `function`."""
        plain(function, _TAKER)
        plan, place = self._plan, Place(function, Lock, first=self._plan.passes)

        def locked(*args: Any, **kwargs: Any) -> R | None:  # noqa: ANN401 - those of the function
            lock = plan.lock(args, kwargs)
            with contextlib.ExitStack() as stack:
                try:
                    stack.enter_context(lock)
                except LockTimeout:
                    if plan.skips:
                        return None
                    raise
                return place.call(function, lock, args, kwargs)

        return place.wraps(function, locked)


# gevent and eventlet put their own function in its place.
_select = select.select if select.select.__module__ == "select" else None


class Redlock(OnlyWith, _native.Client):
    """A client for one set of nodes: one server, or several independent ones of which a quorum must agree.

    `nodes` is an address or a sequence of 1 to 15; left out, they come from `REDLOCK_URLS` or are
    `redis://127.0.0.1:6379`. Options become the defaults of its locks. Nothing is sent before the first call on a lock.
    It may be used from any thread. Leaving its `with` block closes it.

    Logins that end, such as the tokens of a cloud, come from the option `credentials`: a function that returns the
    user, the password and the seconds for which servers accept them.

    Raises `LockInvalidArgument` for a wrong or unknown part of an address, a duplicate, or a wrong option.

    >>> import redlock
    >>> with redlock.Redlock(["memory://a", "memory://b", "memory://c"], ttl=5) as client:
    ...     with client.lock("job") as lock:
    ...         lock.remaining > 4
    True
    """

    __slots__ = ()

    @overload
    def lock(
        self,
        name: Name,
        *,
        skip_if_held: Literal[False] = False,
        pass_lock: Literal[False] = False,
        **options: Unpack[Options],
    ) -> Lock: ...
    @overload
    def lock(
        self, name: Name | NameOf, *, skip_if_held: Literal[True], pass_lock: Literal[True], **options: Unpack[Options]
    ) -> SkipsAndPasses[Lock]: ...
    @overload
    def lock(self, name: Name | NameOf, *, skip_if_held: Literal[True], **options: Unpack[Options]) -> Skips: ...
    @overload
    def lock(self, name: Name | NameOf, *, pass_lock: Literal[True], **options: Unpack[Options]) -> Passes[Lock]: ...
    @overload
    def lock(
        self,
        name: NameOf,
        *,
        skip_if_held: Literal[False] = False,
        pass_lock: Literal[False] = False,
        **options: Unpack[Options],
    ) -> Decorates: ...
    def lock(
        self,
        name: Name | NameOf,
        *,
        skip_if_held: bool = False,
        pass_lock: bool = False,
        **options: Unpack[Options],
    ) -> object:
        """Make a lock by name, or a decorator whose calls run under one. Sends nothing.

        A name is 1 to 512 bytes, of UTF-8 if given as a str; the key on the servers is the name, unchanged, after the
        client's `key_prefix`. Names that begin with `redlock:fence:` or `redlock:waiters:` are reserved.

        For a decorator, `name` can be a function that makes the name from the arguments of the call. With
        `skip_if_held`, a call returns `None` and does not run the function if others hold the lock; it tries once,
        unless `timeout` says how long to wait. With `pass_lock`, the lock is the first argument of the function. Each
        of the three makes a decorator, which is not a lock.

        Raises `LockInvalidArgument` for a wrong name or option.

        >>> import redlock
        >>> client = redlock.Redlock("memory://names")
        >>> client.lock(b"job").name
        b'job'
        >>> @client.lock(lambda user, amount: f"user:{user}", pass_lock=True)
        ... def pay(lock: redlock.Lock, user: str, amount: int) -> tuple[object, int]:
        ...     return lock.name, amount
        >>> pay("ada", amount=5)
        ('user:ada', 5)
        >>> @client.lock("cron:nightly", skip_if_held=True)
        ... def nightly() -> str:
        ...     return "done"
        >>> nightly()
        'done'
        >>> with client.lock("cron:nightly"):
        ...     print(nightly())
        None
        """
        if skip_if_held or pass_lock or callable(name):
            return Decorator(Plan(self.lock, name, options, skip_if_held=skip_if_held, pass_lock=pass_lock))
        if select.select is not _select:
            from redlock import _cooperative  # noqa: PLC0415 - only such programs need it

            return _cooperative.Lock(self, name, **options)
        return Lock(self, name, **options)

    def inspect(self, name: str | bytes) -> list[NodeView]:
        """Show what every node has under `name`, in the order of the nodes. Changes nothing.

        Takes at most the client's `connect_timeout` where connections have to be made, and its `node_timeout`.

        Raises `LockInvalidArgument` for a wrong name. A node that cannot be asked is part of the answer.

        >>> import redlock
        >>> redlock.Redlock("memory://look").inspect("job")[0].state
        'free'
        """
        if select.select is not _select:
            from redlock import _cooperative  # noqa: PLC0415

            return _cooperative.views(self, name)
        return self._views(name)

    def diagnose(self) -> list[Diagnosis]:
        """Find out what each node can do, what this user may do there, and what may lose locks.

        For each node in the order of the nodes: reachable, encrypted, role, version, optional commands, rights,
        eviction, persistence, replicas, free connections, clock, and addresses that lead to the same server. Where
        sentinels name the node's primary, also which of them answer, and whether locks outlive a failover. Each server
        with slots of a cluster is diagnosed, also slots that cannot be locked, and whether locks outlive a failover.

        For an operator: it asks more than locks do, on connections of its own, and writes keys that begin with
        `redlock:diagnose:` (after the client's `key_prefix`) and expire after 10 s. Takes at most five times the
        client's `connect_timeout`.

        Raises `LockInvalidArgument` if the client is closed. A node that cannot be asked is part of the answer.

        >>> import redlock
        >>> redlock.Redlock("memory://diagnose").diagnose()[0].level
        'ok'
        """
        if select.select is not _select:
            from redlock import _cooperative  # noqa: PLC0415

            return _cooperative.diagnoses(self)
        return self._diagnoses()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
