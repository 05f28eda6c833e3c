"""Locks for programs that gevent or eventlet has patched, where threads are greenlets.

A call that blocks the thread stops all its greenlets, and the holder that it waits for may be one of them. So these
calls run in the background, and the greenlet waits for the descriptor of a completion queue, with the `select` that the
package has put in the place of Python's. No greenlet switches during a call of the engine. What may interrupt a wait:
an exception that is thrown into the greenlet (`GreenletExit`, a timeout of gevent, Ctrl-C) cancels the call, and a lock
that it has won is released.
"""

import contextlib
import select
from collections.abc import Callable
from types import TracebackType
from typing import Never, Self, cast

from redlock import _losses, _native
from redlock._blocking_lock import Lock as BlockingLock
from redlock._checks import Result
from redlock.errors import LockLost, LockTimeout, LockUnavailable, RedlockError
from redlock.options import OWN, Duration

_idle: list[_native.Queue] = []
"""Queues that no call uses. Each call has its own, so that its wake-up is for one greenlet."""

_KEPT = 32
"""How many of them are kept. Each has a descriptor."""


class Lock(BlockingLock):
    """A lock whose calls let other greenlets run while they wait."""

    __slots__ = ()

    def acquire(self, blocking: bool = True, timeout: Duration | None = OWN, **others: Never) -> bool:
        try:
            _wait(lambda queue: queue.acquire(self, blocking, timeout, **others))
        except LockTimeout:
            return False
        return True

    def extend(self, ttl: Duration | None = None) -> None:
        _wait(lambda queue: queue.extend(self, ttl))

    def detach(self, ttl: Duration | None = None) -> str:
        return cast("str", _wait(lambda queue: queue.detach(self, ttl)))

    def release(self) -> None:
        _wait(lambda queue: queue.release(self))

    def locked(self) -> bool:
        return _wait(lambda queue: queue.locked(self)) == "locked"

    def wait_lost(self, timeout: Duration | None = None) -> LockLost | None:
        try:
            _wait(lambda queue: queue.wait_lost(self, timeout))
        except LockLost as loss:
            return loss
        return None

    def __enter__(self) -> Self:
        _wait(lambda queue: queue.enter(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        try:
            # A greenlet that a fork has copied while it left has nothing to release.
            with contextlib.suppress(LockUnavailable):
                _wait(lambda queue: queue.leave(self))
        except RedlockError as lost:
            # An exception of the body is more important than the loss of its lock.
            if kind is None:
                raise
            _losses.note(error, lost)


def result(call: _native.Call) -> Result:
    """Make a call, and return its result."""
    return _wait(lambda queue: queue.start(call))


def _wait(start: Callable[[_native.Queue], int]) -> Result:
    """Start a call, and let other greenlets run until its result is there."""
    queue = _unused()
    number = start(queue)
    try:
        while True:
            select.select([queue.fileno()], [], [])
            if -number in queue.drain():
                return True
            taken = queue.take_call(number)
            if taken is not False:
                return taken
    except BaseException:
        queue.cancel(number)
        raise
    finally:
        if len(_idle) < _KEPT:
            _idle.append(queue)


def _unused() -> _native.Queue:
    """Find a queue of this process that no call uses, or make one."""
    while _idle:
        queue = _idle.pop()
        if not queue.is_foreign():
            return queue
    return _native.Queue()
