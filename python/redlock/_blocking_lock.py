"""The lock whose calls block the calling thread. `redlock` and `redlock.blocking` export it."""

import functools
import itertools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from redlock import _losses, _native
from redlock._checks import OnlyWith, hears_loss, plain, ran, warn_in_loop
from redlock.errors import LockLost
from redlock.leadership import Stop, Stopped
from redlock.options import Options

P = ParamSpec("P")
R = TypeVar("R")


_LOOK = 0.25
"""Seconds between two looks for a signal. One that comes just before a system call does not interrupt it."""

TAKER = "a lock of redlock (redlock.asyncio has one for coroutine functions)"


class Lock(OnlyWith, _native.Lock):
    """A lock by name: acquire it, hold it, release it, as often as you like. `Redlock.lock` makes one.

    `Redlock.lock_all` makes one of several names, and `Redlock.semaphore` one that several can hold.

    One object is one holder: two objects of one name exclude each other, in one process too. Any thread can use it,
    whichever has acquired it. While a call blocks, other threads run. Ctrl-C ends the call within 50 ms and leaves no
    key behind. Signal handlers can use locks, also while a call of the main thread blocks.

    `with` acquires on entry and releases on exit. Entry raises `LockTimeout` and what `Lock.acquire` raises; exit
    raises `LockLost` if the lock was lost meanwhile, and `LockClosed` if its client was closed. If the body is already
    raising, the loss becomes a note of that exception. A release that no quorum confirms is not an error there: the
    background continues it.

    As a decorator it makes a fresh lock for each call, with the same options and `on_lost` callbacks. In a subclass, it
    has the same attributes, and the constructor is not called. Generators and coroutine functions are refused with
    `TypeError`: their body would run after the release. Behind other decorators, such as `contextlib.contextmanager`,
    the call refuses them. `Redlock.locked` makes decorators that can do more.

    It cannot be pickled or copied. If it is garbage-collected after `acquire`, it stays held until the process ends,
    with a `ResourceWarning`: nothing can release it any more. In a `with` block, it is released.

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

    # Where users find it.
    __module__ = "redlock.blocking"

    __slots__ = ("__weakref__", "_callbacks", "_made_with")

    _callbacks: list[Callable[[LockLost], object]]
    # The function and the arguments that make the same lock of the default client.
    _made_with: tuple[Callable[..., "Lock"], tuple[object, ...], Options]

    def on_lost(self, callback: Callable[[LockLost], object]) -> None:
        """Have `callback(error)` called at each loss of this lock, once each, from now on.

        It runs on one daemon thread of this package, soon after the moment from which the lock counts as lost. Set it
        at any time: if the lock is lost already, and neither released nor acquired again since, the callback is called
        for that loss too. There may be several, called in the order in which they were set. An exception of one goes to
        `threading.excepthook`, and the others are still called. A callback must not take long, because it delays the
        others. A release is not a loss, and a lock that is garbage-collected calls no callback.

        Raises `TypeError` if `callback` cannot be called with one argument, or is a coroutine function.

        >>> import redlock, threading
        >>> lost = threading.Event()
        >>> lock = redlock.Redlock("memory://on-lost").lock("job", ttl=0.1, auto_renew=False)
        >>> lock.on_lost(lambda error: lost.set())
        >>> lock.acquire()
        True
        >>> lost.wait(5)
        True
        """
        hears_loss(callback)
        try:
            callbacks = self._callbacks
        except AttributeError:
            callbacks = self._callbacks = []
        index = len(callbacks)
        callbacks.append(callback)
        # Only the lock keeps its callbacks, which may keep the lock.
        _losses.watch(self, lambda lock, error: lock._callbacks[index](error))  # noqa: SLF001 - it is a lock of this class

    def _another(self) -> "Lock":
        """Make another lock with the same name and options, and on the present default client if this one had one."""
        try:
            make, args, options = self._made_with
        except AttributeError:
            # A subclass may have another constructor, and attributes that it has set.
            other = _native.Lock.__new__(type(self), self)
            getattr(other, "__dict__", {}).update(getattr(self, "__dict__", {}))
        else:
            other = make(*args, **options)
        for callback in getattr(self, "_callbacks", ()):
            other.on_lost(callback)
        return other

    def _campaign(self, stop: Stop) -> None:
        """Enter the term of a candidate. Raises `Stopped` if `stop` begins before, in whichever thread or greenlet."""
        queue = _native.Queue()
        wait = _losses.waiting_for(queue.fileno(), _LOOK)
        looks = itertools.count()
        with stop.calling(queue.wake):
            number = queue.enter(self)
            try:
                while not stop.begun:
                    if next(looks) == 1:
                        warn_in_loop()
                    wait()
                    queue.drain()
                    if queue.take(number):
                        return
                    if queue.is_foreign():
                        # The call is the parent's.
                        break
            finally:
                queue.cancel(number)
        if stop.begun:
            raise Stopped
        self._campaign(stop)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate `function`: each call runs under a fresh lock."""
        plain(function, TAKER)

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._another():
                return ran(function, function(*args, **kwargs), TAKER)

        return locked
