"""One completion queue for each event loop.

The loop owns its queue, through the callback of the queue's descriptor, and nothing else does for longer than a moment:
when the loop is closed the queue goes, and with it everything underway. So no frame keeps a queue while it waits.
"""

import asyncio
import contextvars
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from redlock import _native
from redlock.errors import LockLost, RedlockError
from redlock.inspection import NodeView

if TYPE_CHECKING:
    from redlock.asyncio import Lock


class Queue(_native.Queue):
    """The calls that one event loop waits for, and the locks whose losses it hears of."""

    __slots__ = ("__weakref__", "_locks", "futures")

    def __new__(cls, loop: asyncio.AbstractEventLoop) -> Self:  # noqa: ARG004 - of no use before it is there
        return super().__new__(cls)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.futures: dict[int, asyncio.Future[bool]] = {}
        """What is done when a call is ready, by number: true where there is nothing to take."""
        self._locks: dict[int, weakref.ref[Lock]] = {}
        # In no task's context, which would be kept for as long as the loop.
        contextvars.Context().run(loop.add_reader, self.fileno(), self._ready)

    def _ready(self) -> None:
        for number in self.drain():
            future = self.futures.pop(abs(number), None)
            if future is None:
                self.hear(number)
            elif not future.done():
                future.set_result(number < 0)

    def hear(self, number: int) -> None:
        """Tell a lock of its loss, if there is one that it has not heard of."""
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
        """End a call or a watch that nobody waits for any more."""
        self.futures.pop(number, None)
        self._locks.pop(number, None)
        self.cancel(number)

    def tell(self, lock: "Lock") -> int:
        """Tell `lock` of its losses. Only the last watch of a lock counts."""
        number = self.watch(lock)
        self._locks[number] = weakref.ref(lock)
        return number


class Watch:
    """Which queue can tell a lock of its losses, and whether it does: not before somebody listens."""

    __slots__ = ("_number", "_queue")

    def __init__(self, queue: Queue) -> None:
        self._queue = weakref.ref(queue)
        self._number: int | None = None

    def begin(self, lock: "Lock") -> None:
        """Tell of what happens from now on, and of the loss of the present hold if it is lost already.

        Begun again, it tells of that loss again. What nobody has heard of yet is to be heard before.
        """
        queue = self._queue()
        if queue is None:
            return
        self.end()
        self._number = queue.tell(lock)

    def hear(self, queue: Queue | None = None) -> None:
        """Tell of what happened so far; with `queue` only if that is for its loop to tell."""
        own = self._queue()
        if own is not None and self._number is not None and queue in {None, own}:
            own.hear(self._number)

    def end(self) -> None:
        """Tell no more."""
        queue = self._queue()
        if queue is not None and self._number is not None:
            queue.forget(self._number)


_queues: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Queue]] = weakref.WeakKeyDictionary()

_NONE: tuple[Callable[[], asyncio.AbstractEventLoop | None], Callable[[], Queue | None]] = (lambda: None, lambda: None)

_last = _NONE
"""A loop and its queue, found last: mostly there is one loop, and to look it up takes longer than to compare it."""


def _after_fork() -> None:
    """Forget the parent's queues. Their descriptors stay registered: taking them out here would take them out there."""
    global _queues, _last  # noqa: PLW0603
    _queues = weakref.WeakKeyDictionary()
    _last = _NONE


os.register_at_fork(after_in_child=_after_fork)


def _of(loop: asyncio.AbstractEventLoop) -> Queue:
    """Find the queue of the loop; make one where there is none."""
    global _last  # noqa: PLW0603
    reference = _queues.get(loop)
    queue = reference() if reference is not None else None
    if queue is None:
        queue = Queue(loop)
        _queues[loop] = weakref.ref(queue)
    _last = weakref.ref(loop), weakref.ref(queue)
    return queue


async def result(start: Callable[..., int], *args: object) -> list[NodeView] | bool | None:
    """Have `start` begin a call on the loop's queue and wait for its result. No early end leaves a key behind."""
    # Once: Python asks for the pid each time.
    loop = asyncio.get_running_loop()
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
            # Not kept in a name, lest an error's traceback keep the queue.
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


def abandon(lock: _native.Handle) -> None:
    """Begin to release where nobody can wait for it."""
    try:
        _native.Queue().leave(lock)
    except RedlockError:
        # Left to its ttl: there is nobody to tell.
        return


def _alive(reference: weakref.ref[Queue]) -> Queue:
    queue = reference()
    if queue is None:
        raise RuntimeError("the event loop was closed")
    return queue
