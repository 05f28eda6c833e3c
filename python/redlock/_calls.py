"""One completion queue for each event loop.

Only the loop keeps its queue for long, through the callback of the queue's descriptor. When the loop is closed, the
queue is dropped, and all its calls end. So no frame may keep a queue while it waits.
"""

import asyncio
import contextvars
import os
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from redlock import _native
from redlock.errors import LockLost, RedlockError
from redlock.inspection import NodeView

if TYPE_CHECKING:
    from redlock.asyncio import Lock


class Queue(_native.Queue):
    """The calls that one event loop waits for, and the locks whose losses it reports."""

    __slots__ = ("__weakref__", "_locks", "futures")

    def __new__(cls, loop: asyncio.AbstractEventLoop) -> Self:  # noqa: ARG004 - `__init__` uses it
        return super().__new__(cls)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.futures: dict[int, asyncio.Future[bool]] = {}
        """By the number of a call, the future for when it is ready: true if there is no result to take."""
        self._locks: dict[int, weakref.ref[Lock]] = {}
        # The loop keeps the context of a reader, so this is an empty one, and not that of a task.
        contextvars.Context().run(loop.add_reader, self.fileno(), self._ready)

    def _ready(self) -> None:
        for number in self.drain():
            future = self.futures.pop(abs(number), None)
            if future is None:
                self.hear(number)
            elif not future.done():
                future.set_result(number < 0)

    def hear(self, number: int) -> None:
        """Notify a lock of its loss, unless there is none or it has been notified."""
        reference = self._locks.get(number)
        if reference is None:
            return
        try:
            taken = self.take(number)
        except LockLost as error:
            lock = reference()
            if lock is not None:
                lock._lost(error)  # noqa: SLF001 - these two belong together
            return
        if taken is None:
            del self._locks[number]

    def forget(self, number: int) -> None:
        """End a call or a watch whose result is not needed any more."""
        self.futures.pop(number, None)
        self._locks.pop(number, None)
        self.cancel(number)

    def tell(self, lock: "Lock") -> int:
        """Notify `lock` of its losses. Only the last watch of a lock counts."""
        number = self.watch(lock)
        self._locks[number] = weakref.ref(lock)
        return number


class Watch:
    """The queue that can notify a lock of its losses. It does so from `begin` on."""

    __slots__ = ("_number", "_queue")

    def __init__(self, queue: Queue) -> None:
        self._queue = weakref.ref(queue)
        self._number: int | None = None

    def begin(self, lock: "Lock") -> None:
        """Report losses from now on, and that of the present hold if it is lost already.

        A second call reports that loss again. Call `hear` before it, so that no earlier loss is missed.
        """
        queue = self._queue()
        if queue is None:
            return
        self.end()
        self._number = queue.tell(lock)

    def hear(self, queue: Queue | None = None) -> None:
        """Report what has happened so far; with `queue`, only if this watch is on that queue."""
        own = self._queue()
        if own is not None and self._number is not None and queue in {None, own}:
            own.hear(self._number)

    def end(self) -> None:
        """Stop reporting."""
        queue = self._queue()
        if queue is not None and self._number is not None:
            queue.forget(self._number)


_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Queue]] = weakref.WeakKeyDictionary()

_NONE: tuple[Callable[[], asyncio.AbstractEventLoop | None], Callable[[], Queue | None]] = (lambda: None, lambda: None)

_last = _NONE
"""The loop and the queue that were found last. Most programs have one loop, and comparing is faster than looking up."""


def _after_fork() -> None:
    """Forget the parent's queues. Their descriptors stay registered: removing them here removes them in the parent."""
    global _queues, _last  # noqa: PLW0603
    _queues = weakref.WeakKeyDictionary()
    _last = _NONE


os.register_at_fork(after_in_child=_after_fork)


def _of(loop: asyncio.AbstractEventLoop) -> Queue:
    """Find the queue of the loop, or make one."""
    global _last  # noqa: PLW0603
    reference = _queues.get(loop)
    queue = reference() if reference is not None else None
    if queue is None:
        queue = Queue(loop)
        _queues[loop] = weakref.ref(queue)
    _last = weakref.ref(loop), weakref.ref(queue)
    return queue


async def result(start: Callable[..., int], *args: object) -> list[NodeView] | str | bool | None:
    """Begin a call on the loop's queue with `start`, and wait for its result. If it ends early, it leaves no key."""
    # This is called once, because each call asks for the pid.
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError as error:
        raise _without_loop(error) from None
    last_loop, last_queue = _last
    queue = last_queue() if last_loop() is loop else None
    if queue is None:
        queue = _of(loop)
    number = start(queue, *args)
    reference = weakref.ref(queue)
    try:
        while True:
            future = queue.futures[number] = loop.create_future()
            del queue
            if await future:
                return True
            # A name for the queue would let the traceback of an error keep it.
            taken = _alive(reference).take(number)
            if taken is not False:
                return taken
            queue = _alive(reference)
    except BaseException:
        left = reference()
        if left is not None:
            left.forget(number)
            del left
        raise


def _without_loop(error: RuntimeError) -> RuntimeError:
    """Say what to do if the caller runs in trio, which does not have an event loop of asyncio."""
    trio = sys.modules.get("trio")
    try:
        in_trio = trio is not None and trio.lowlevel.current_task() is not None
    except RuntimeError:
        in_trio = False
    if not in_trio:
        return error
    return RuntimeError(
        "redlock.asyncio needs an event loop of asyncio, and this is trio; use a blocking lock there, in a thread: "
        "await trio.to_thread.run_sync(lock.acquire)"
    )


def abandon(lock: _native.Handle) -> None:
    """Begin a release that no caller can wait for."""
    try:
        _native.Queue().leave(lock)
    except RedlockError:
        # The key expires after its ttl. There is no caller to raise this in.
        return


def _alive(reference: weakref.ref[Queue]) -> Queue:
    queue = reference()
    if queue is None:
        raise RuntimeError("the event loop was closed")
    return queue
