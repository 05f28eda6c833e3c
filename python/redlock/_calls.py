"""One completion queue for each event loop.

Only the loop keeps its queue for long, through the callback of the queue's descriptor. When the loop is closed, the
queue is dropped, and all its calls end. So no frame may keep a queue while it waits.

A lock waits for its calls as `result` does, but in the coroutine that the program awaits. Another coroutine between the
two would cost a twentieth of the loop's time for an acquire.
"""

import asyncio
import contextvars
import os
import sys
import weakref
from collections.abc import Callable
from typing import Self

from redlock import _native
from redlock._checks import Result
from redlock.errors import LockLost, RedlockError


class Watched(_native.Handle):
    """A lock whose losses a queue reports."""

    __slots__ = ()

    def _lost(self, error: LockLost) -> None:
        """Hear of a loss, once."""
        raise NotImplementedError


class Queue(_native.Queue):
    """The calls that one event loop waits for, and the locks whose losses it reports."""

    __slots__ = ("__weakref__", "_locks", "futures", "reference")

    def __new__(cls, loop: asyncio.AbstractEventLoop) -> Self:  # noqa: ARG004 - `__init__` uses it
        return super().__new__(cls, watches=True)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.futures: dict[int, asyncio.Future[bool]] = {}
        """By the number of a call, the future for when it is ready: true if there is no result to take."""
        self.reference = weakref.ref(self)
        """For those that may not keep the queue."""
        self._locks: dict[int, weakref.ref[Watched]] = {}
        # The loop keeps the context of a reader, so this is an empty one, and not that of a task.
        contextvars.Context().run(loop.add_reader, self.fileno(), self._ready)
        sockets = self.sockets()
        if sockets is not None:
            contextvars.Context().run(loop.add_reader, sockets, self._readable)
            self.begin_to_watch()

    def _readable(self) -> None:
        if self.turn():
            self._ready()

    def _ready(self) -> None:
        futures = self.futures
        for number in self.drain():
            future = futures.pop(abs(number), None)
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
                # A program may keep the error, and its traceback would keep the queue.
                lock._lost(error.with_traceback(None))  # noqa: SLF001 - these two belong together
            return
        if taken is None:
            del self._locks[number]

    def forget(self, number: int) -> None:
        """End a call or a watch whose result is not needed any more."""
        self.futures.pop(number, None)
        self._locks.pop(number, None)
        self.cancel(number)

    def tell(self, lock: Watched) -> int:
        """Notify `lock` of its losses. Returns the number of this watch, which `forget` ends."""
        number = self.watch(lock)
        self._locks[number] = weakref.ref(lock)
        return number


Reference = weakref.ref[Queue]

_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Reference] = weakref.WeakKeyDictionary()

_NONE: tuple[Callable[[], asyncio.AbstractEventLoop | None], Callable[[], Queue | None]] = (lambda: None, lambda: None)

_last = _NONE
"""The loop and the queue that were found last. Most programs have one loop, and comparing is faster than looking up."""


def _after_fork() -> None:
    """Forget the parent's queues. Their descriptors stay registered: removing them here removes them in the parent."""
    global _queues, _last  # noqa: PLW0603
    _queues = weakref.WeakKeyDictionary()
    _last = _NONE


os.register_at_fork(after_in_child=_after_fork)


def current() -> tuple[asyncio.AbstractEventLoop, Queue]:
    """Find the running loop and its queue, or make a queue."""
    # This is called once for each call, because it asks for the pid.
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError as error:
        raise _without_loop(error) from None
    last_loop, last_queue = _last
    queue = last_queue() if last_loop() is loop else None
    return loop, _of(loop) if queue is None else queue


def _of(loop: asyncio.AbstractEventLoop) -> Queue:
    """Find the queue of the loop, or make one."""
    global _last  # noqa: PLW0603
    reference = _queues.get(loop)
    queue = reference() if reference is not None else None
    if queue is None:
        queue = Queue(loop)
        _queues[loop] = queue.reference
    _last = weakref.ref(loop), queue.reference
    return queue


async def result(start: Callable[..., int], *args: object) -> Result:
    """Begin a call on the loop's queue with `start`, and wait for its result. If it ends early, it leaves no key."""
    loop, queue = current()
    number, reference = start(queue, *args), queue.reference
    future = queue.futures[number] = loop.create_future()
    del queue
    try:
        while not await future:
            # A name for the queue would let the traceback of an error keep it.
            taken = alive(reference).take_call(number)
            if taken is not False:
                return taken
            future = alive(reference).futures[number] = loop.create_future()
    except BaseException:
        forget(reference, number)
        raise
    return True


def alive(reference: Reference) -> Queue:
    """Find the queue of a call that has begun."""
    queue = reference()
    if queue is None:
        raise RuntimeError("the event loop was closed")
    return queue


def forget(reference: Reference, number: int) -> None:
    """End a call that ends early, or a watch, unless its loop was closed."""
    queue = reference()
    if queue is not None:
        queue.forget(number)


def _without_loop(error: RuntimeError) -> RuntimeError:
    """Say what to do if the caller runs in trio, which does not have an event loop of asyncio."""
    trio = sys.modules.get("trio")
    try:
        in_trio = trio is not None and trio.lowlevel.current_task() is not None
    except (AttributeError, RuntimeError):
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
