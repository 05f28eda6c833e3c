"""The lock whose calls are awaited. `redlock.asyncio` exports it."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Never, ParamSpec, Self, TypeAlias, TypeVar, Unpack, cast

from redlock import _calls, _losses, _native
from redlock._checks import OnlyAsyncWith, coroutine, hears_loss, only
from redlock._decorators import SKIPPED, Locked, Place, Plan, Skipped, Task, TaskDecorates, TaskPasses
from redlock.errors import LockClosed, LockLost, LockTimeout
from redlock.options import OWN, Duration, NameOptions, Options

P = ParamSpec("P")
R = TypeVar("R")


class Body(Generic[R]):
    """The task that runs the body of an `async with` or of an election, which can be cancelled for a reason.

    Earlier requests to cancel it are counted as in `asyncio.timeout`.
    """

    __slots__ = ("__weakref__", "_asked", "_reason", "_task")

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self._task = task
        self._asked = task.cancelling() if task is not None else 0
        self._reason: R | None = None

    def is_of(self, task: asyncio.Task[Any]) -> bool:
        """Whether this task runs the body."""
        return self._task is task

    def cut(self, reason: R) -> None:
        """Cancel the task, once, unless the body has ended."""
        if self._reason is not None or self._task is None:
            return
        loop = self._task.get_loop()
        if asyncio.current_task(loop) is self._task:
            # If the body ends before it waits, `uncancel` does not take this back before Python 3.13.
            loop.call_soon(self.cut, reason)
            return
        self._reason = reason
        self._task.cancel()

    def end(self, kind: type[BaseException] | None) -> R | None:
        """Take the cancellation back. Return its reason if nothing else has cancelled the body, which raised `kind`."""
        task, self._task = self._task, None
        if self._reason is None or task is None:
            return None
        alone = task.uncancel() <= self._asked
        return self._reason if alone and kind is not None and issubclass(kind, asyncio.CancelledError) else None


_TAKER = "a lock of redlock.asyncio"


class Lock(OnlyAsyncWith, _calls.Watched):
    """A lock by name, for asyncio; see `redlock.Lock`. `Redlock.lock`, `lock_all` and `semaphore` make one.

    `async with` acquires on entry and releases on exit. If the lock is lost meanwhile, the task that runs the body is
    cancelled, and `async with` raises `LockLost` from the `CancelledError`, as `asyncio.timeout` does with its
    `TimeoutError`. If the body was also cancelled from outside, or raises another exception, that one goes on, with the
    loss as a note.

    An async generator should not yield within the block, except one under `contextlib.asynccontextmanager`: the loss
    cancels the task that iterates over it while that is outside of the block, where nothing raises `LockLost`. Enter
    the block around the loop instead.

    As a decorator for coroutine functions it makes a fresh lock for each call, as `redlock.Lock` does.
    `Redlock.locked` makes decorators that can do more.

    >>> import asyncio
    >>> from redlock import asyncio as redlock
    >>> client = redlock.Redlock("memory://aio-lock")
    >>> @client.lock("job")
    ... async def work(amount: int) -> int:
    ...     return amount + 1
    >>> asyncio.run(work(1))
    2
    """

    # Where users find it.
    __module__ = "redlock.asyncio"

    __slots__ = ("__weakref__", "_body", "_callbacks", "_made_with", "_queue", "_told", "_watch")

    def __init__(
        self,
        _source: _native.Client | _native.Handle,
        _given: str | bytes | _native.Shape | None = None,
        /,
        **_options: Unpack[NameOptions],
    ) -> None:
        self._body: Body[LockLost] | None = None
        self._callbacks: tuple[Callable[[LockLost], object], ...] = ()
        # How many of them have been called for the loss of the present hold.
        self._told = 0
        # The function and the arguments that make the same lock of the default client.
        self._made_with: tuple[Callable[..., Lock], tuple[object, ...], Options] | None = None
        # The queue of the loop in which the last acquire began. Each may run in another loop.
        self._queue: _calls.Reference | None = None
        # The watch there that reports losses; zero if there is none, as it is mostly.
        self._watch = 0

    async def acquire(self, blocking: bool = True, timeout: Duration | None = OWN, **others: Never) -> bool:
        """Acquire the lock, and wait for as long as others hold it.

        `timeout` in seconds overrides the lock's own timeout: zero tries once, `None` waits forever.
        `blocking=False` tries once, too. Returns `False` only if the time is over and others hold the lock (or, in a
        split vote, were acquiring it), or if it was too short for an answer of nodes that answer other calls.

        Raises `LockUnavailable` if no quorum of nodes could be asked or would answer until the timeout, or for 10 s if
        there is no timeout; `LockForbidden` if nodes that refuse the credentials rule out a quorum; `LockAlreadyHeld`
        if this object already holds the lock or is acquiring it; `LockInvalidArgument` for a wrong timeout.

        A cancelled acquire leaves no key behind.

        >>> import asyncio
        >>> from redlock import asyncio as redlock
        >>> async def main() -> bool:
        ...     lock = redlock.lock("job")
        ...     acquired = await lock.acquire(timeout=5)
        ...     await lock.release()
        ...     return acquired
        >>> asyncio.run(main())
        True
        """
        loop, queue = _calls.current()
        number = queue.acquire(self, blocking, timeout, **others) if others else queue.acquire(self, blocking, timeout)
        if self._watch or self._callbacks:
            self._watch_in(queue, begins=bool(self._callbacks))
        reference = self._queue = queue.reference
        future = queue.futures[number] = loop.create_future()
        del queue
        try:
            while not await future:
                if _calls.alive(reference).take_call(number) is not False:
                    break
                future = _calls.alive(reference).futures[number] = loop.create_future()
        except LockTimeout:
            return False
        except BaseException:
            _calls.forget(reference, number)
            raise
        return True

    async def extend(self, ttl: Duration | None = None) -> None:
        """Extend the lock, so that it lasts for `ttl` seconds from now.

        It never shortens the time that is left. Later renewals use `ttl`, too. Without `ttl`, the lock's ttl in force
        applies.

        Raises `LockLost` if the lock is lost, `LockNotHeld` if it was not acquired, `LockUnavailable` if no quorum
        answered (the lock stays valid for as long as `remaining` says), `LockInvalidArgument` for a wrong ttl and with
        `protocol="setnx"`.

        If it is cancelled, it continues in the background.
        """
        await _calls.result(_calls.Queue.extend, self, ttl)

    async def detach(self, ttl: Duration | None = None) -> str:
        """End this hold without a release, and return a text with which `attach` goes on; see `redlock.Lock.detach`.

        Raises `LockLost` if the lock is lost, `LockNotHeld` if it is not held, `LockUnavailable` if no quorum answered
        the extension (the lock is held as before), or if a node has not answered an acquire of a shared lock (it is
        held as before, or was released: see `held`), `LockInvalidArgument` for a wrong ttl, for the term of an
        election, and with `protocol="setnx"`.

        If it is cancelled, the lock is held as before, or released.

        >>> import asyncio
        >>> from redlock import asyncio as redlock
        >>> async def main() -> tuple[object, bool]:
        ...     async with redlock.lock("report:17") as lock:
        ...         fence = lock.fence
        ...         text = await lock.detach(ttl=60)
        ...     async with await redlock.attach(text) as lock:
        ...         return lock.name, lock.fence == fence
        >>> asyncio.run(main())
        ('report:17', True)
        """
        watch, told_in = self._watch, self._queue
        text = cast("str", await _calls.result(_calls.Queue.detach, self, ttl))
        self._unwatch(watch, told_in)
        return text

    async def release(self) -> None:
        """Release the lock. From the beginning of the call on it is not held, even if the call fails.

        A second release is not an error. Raises `LockNotHeld` if the lock was never acquired, `LockLost` if it was lost
        before, `LockClosed` if its client was closed meanwhile, and `LockUnavailable` if no quorum confirmed the
        release. In the last case, and if the call is cancelled, the background continues the release until it succeeds
        or the ttl has passed.
        """
        watch, told_in = self._watch, self._queue
        loop, queue = _calls.current()
        number, reference = queue.release(self), queue.reference
        future = queue.futures[number] = loop.create_future()
        del queue
        try:
            if not await future:
                _calls.alive(reference).take(number)
        except BaseException as error:
            _calls.forget(reference, number)
            if isinstance(error, LockClosed):
                self._unwatch(watch, told_in)
            raise
        if watch:
            self._unwatch(watch, told_in)

    async def locked(self) -> bool:
        """Ask the nodes whether anybody holds the lock, this program included; see `redlock.Lock.locked`.

        Raises `LockUnavailable` or `LockForbidden` if too few nodes answer to know, and `LockInvalidArgument` with
        `protocol="setnx"`. Cancelling it changes nothing.

        >>> import asyncio
        >>> from redlock import asyncio as redlock
        >>> async def main() -> bool:
        ...     async with redlock.lock("job"):
        ...         return await redlock.lock("job").locked()
        >>> asyncio.run(main())
        True
        """
        return await _calls.result(_calls.Queue.locked, self) == "locked"

    async def wait_lost(self, timeout: Duration | None = None) -> LockLost | None:
        """Wait until the lock is lost, but for at most `timeout` seconds. Return the loss, or `None`.

        The result is `None` if the time is over, and if the lock is released meanwhile. Without `timeout` there is no
        limit. A loss that happened before the call is returned at once, until the lock is released or acquired again.

        Raises `LockNotHeld` before an acquire, after a release and in a forked child. Cancelling it changes nothing.

        >>> import asyncio
        >>> from redlock import asyncio as redlock
        >>> async def main() -> str | None:
        ...     lock = redlock.lock("short", ttl=0.1, auto_renew=False)
        ...     await lock.acquire()
        ...     loss = await lock.wait_lost(timeout=5)
        ...     return loss and loss.reason
        >>> asyncio.run(main())
        'expired'
        """
        try:
            await _calls.result(_calls.Queue.wait_lost, self, timeout)
        except LockLost as loss:
            return loss
        return None

    def on_lost(self, callback: Callable[[LockLost], object]) -> None:
        """Have `callback(error)` called in the event loop at each loss of this lock, once each, from now on.

        The loop is the one in which the lock was acquired. Set it at any time: if the lock is lost already, and neither
        released nor acquired again since, the callback is called for that loss too. There may be several, called in the
        order in which they were set. An exception of one goes to the loop's exception handler, and the others are still
        called. A release is not a loss, and a lock that is garbage-collected calls no callback.

        Raises `TypeError` if `callback` cannot be called with one argument, or is a coroutine function.

        >>> import asyncio
        >>> from redlock import asyncio as redlock
        >>> async def main() -> str:
        ...     lost = asyncio.get_running_loop().create_future()
        ...     lock = redlock.lock("short", ttl=0.1, auto_renew=False)
        ...     lock.on_lost(lost.set_result)
        ...     await lock.acquire()
        ...     return (await lost).reason
        >>> asyncio.run(main())
        'expired'
        """
        hears_loss(callback)
        queue = self._queue() if self._queue is not None else None
        if queue is None:
            self._callbacks = (*self._callbacks, callback)
            return
        # This calls the earlier callbacks for a loss. The new watch does not report it if the lock was released since.
        queue.hear(self._watch)
        queue.forget(self._watch)
        self._callbacks = (*self._callbacks, callback)
        # It reports the loss of the present hold again, for the new callback.
        self._watch = queue.tell(self)

    async def __aenter__(self) -> Self:
        loop, queue = _calls.current()
        number = queue.enter(self)
        self._watch_in(queue, begins=True)
        reference = self._queue = queue.reference
        future = queue.futures[number] = loop.create_future()
        del queue
        try:
            while not await future:
                if _calls.alive(reference).take_call(number) is not False:
                    break
                future = _calls.alive(reference).futures[number] = loop.create_future()
            else:
                # One that was attached may have been lost meanwhile.
                self.check()
        except BaseException:
            _calls.forget(reference, number)
            # One that was attached has its hold already, and its block will not release it.
            if self._in_block:
                _calls.abandon(self)
            raise
        self._body = Body(asyncio.current_task(loop))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        waits = may_wait(kind, body)
        loss = body.end(kind) if body is not None else None
        if not waits:
            _calls.abandon(self)
            return
        watch, told_in = self._watch, self._queue
        try:
            loop, queue = _calls.current()
            number, reference = queue.leave(self), queue.reference
            future = queue.futures[number] = loop.create_future()
            del queue
            try:
                if not await future:
                    _calls.alive(reference).take(number)
            except BaseException:
                _calls.forget(reference, number)
                raise
            self._unwatch(watch, told_in)
        except (LockLost, LockClosed) as ended:
            if isinstance(ended, LockClosed):
                self._unwatch(watch, told_in)
            # The exception of the body says more than the end of its lock.
            if kind is None:
                raise
            if loss is None:
                _losses.note(error, ended)
        if loss is not None:
            raise loss from error

    def _watch_in(self, queue: _calls.Queue, *, begins: bool) -> None:
        """End the watch of the hold before, and let one begin in `queue`. A refused acquire leaves the watch alone."""
        if self._watch:
            # Losses that another loop has not reported yet are not reported any more.
            if self._queue is queue.reference:
                queue.hear(self._watch)
            self._unwatch(self._watch, self._queue)
        if begins:
            self._told = 0
            self._watch = queue.tell(self)

    def _unwatch(self, watch: int, told_in: _calls.Reference | None) -> None:
        """End the watch of a released hold. That of a lost one stays, because the loss may not be reported yet.

        `told_in` is the queue of the watch. The lock may have another one by now, where the number is another call's.
        """
        if told_in is not None:
            _calls.forget(told_in, watch)
        if self._watch == watch and self._queue is told_in:
            self._watch = 0

    def _lost(self, error: LockLost) -> None:
        if self._body is not None:
            self._body.cut(error)
        untold = self._callbacks[self._told :]
        self._told = len(self._callbacks)
        for callback in untold:
            _call(callback, error)

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a coroutine function: each call runs under a fresh lock."""
        coroutine(function, _TAKER)

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self._another():
                return await function(*args, **kwargs)

        return locked

    def _another(self) -> "Lock":
        """Make another lock with the same name and options, and on the present default client if this one had one."""
        if self._made_with is None:
            # A subclass may have another constructor, and attributes that it has set.
            other = _native.Handle.__new__(type(self), self)
            Lock.__init__(other, self)
            getattr(other, "__dict__", {}).update(getattr(self, "__dict__", {}))
        else:
            make, args, options = self._made_with
            other = make(*args, **options)
        for callback in self._callbacks:
            other.on_lost(callback)
        return other


class Decorator(Plan[Lock]):
    """Runs each call of the coroutine functions that it decorates under the lock of a plan."""

    def __call__(self, *given: Callable[..., Task[R]], **others: object) -> Callable[..., Task[R | Skipped]]:
        """Decorate the function that is given."""
        function = only(given, others)
        coroutine(function, _TAKER)
        place = Place(function, self, Lock)

        async def locked(*args: Any, **kwargs: Any) -> R | Skipped:  # noqa: ANN401 - those of the function
            lock = place.lock(args, kwargs)
            async with contextlib.AsyncExitStack() as stack:
                try:
                    await stack.enter_async_context(lock)
                except LockTimeout:
                    if self.skips:
                        return SKIPPED
                    raise
                return await place.call(lock, args, kwargs)  # type: ignore[no-any-return]

        return place.wraps(locked)


Decorators: TypeAlias = Locked[
    TaskDecorates[Never], TaskDecorates[Skipped], TaskPasses[Lock, Never], TaskPasses[Lock, Skipped]
]


def typed(locked: Callable[..., Decorator]) -> Decorators:
    """Tell type checkers which decorator each call of `locked` returns."""
    return cast("Decorators", locked)


def _call(callback: Callable[[LockLost], object], error: LockLost) -> None:
    try:
        callback(error)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as raised:  # noqa: BLE001 - an exception must not stop the loop
        context = {"message": f"exception in on_lost callback {callback!r}", "exception": raised}
        asyncio.get_running_loop().call_exception_handler(context)


def may_wait(kind: type[BaseException] | None, body: Body[LockLost] | None = None) -> bool:
    """Whether a task ends the body and can wait. The garbage collector cannot, nor can a forked child."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    if task is None:
        return False
    # The collector runs in whichever task allocates, and closes the coroutine of another one.
    return kind is not GeneratorExit or (body is not None and body.is_of(task))
