"""The thread that calls `on_lost` callbacks. Each process starts its own, at the first callback."""

import os
import select
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from redlock import _native
from redlock.errors import LockLost

if TYPE_CHECKING:
    from redlock.blocking import Lock


class _Losses:
    """Waits for losses, in Python's own poll, because a thread may end there when the interpreter ends."""

    def __init__(self) -> None:
        self.queue = _native.Queue()
        # Each callback has its own number, so that it is called once for each loss. Only the lock keeps callbacks.
        self.callbacks: dict[int, tuple[weakref.ref[Lock], int]] = {}
        threading.Thread(target=self._run, name="redlock-on-lost", daemon=True).start()

    def _run(self) -> None:
        wait = _waiting_for(self.queue.fileno())
        while True:
            wait()
            for number in self.queue.drain():
                self._hear(number)

    def _hear(self, number: int) -> None:
        with _mutex:
            entry = self.callbacks.get(number)
        try:
            taken = self.queue.take(number)
        except LockLost as error:
            if entry is not None:
                reference, index = entry
                lock = reference()
                if lock is not None:
                    _call(lock._callbacks[index], error)  # noqa: SLF001 - these two belong together
            return
        if taken is None:
            with _mutex:
                self.callbacks.pop(number, None)


def _waiting_for(descriptor: int) -> Callable[[], object]:
    """Find out how to wait for a descriptor. eventlet takes `poll` away, and its `select` takes every descriptor."""
    if not hasattr(select, "poll"):
        return lambda: select.select([descriptor], [], [])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll.poll


# It is reentrant, because a signal handler may interrupt the thread that has it.
_mutex = threading.RLock()
_losses: _Losses | None = None


def watch(lock: "Lock", index: int) -> None:
    """Have a callback of `lock` called once at each loss, also at that of the present hold if it is lost already."""
    global _losses  # noqa: PLW0603 - one for each process, on purpose
    with _mutex:
        if _losses is None or _losses.queue.is_foreign():
            _losses = _Losses()
        _losses.callbacks[_losses.queue.watch(lock)] = (weakref.ref(lock), index)


def _call(callback: Callable[[LockLost], object], error: LockLost) -> None:
    """Call a callback, and pass what it raises to `threading.excepthook`."""
    try:
        callback(error)
    except BaseException as raised:  # noqa: BLE001 - an exception must not stop the thread
        hook = threading.ExceptHookArgs((type(raised), raised, raised.__traceback__, threading.current_thread()))
        threading.excepthook(hook)


def _after_fork() -> None:
    """Watch the locks that the child inherits, since it may acquire them anew."""
    global _mutex, _losses  # noqa: PLW0603
    inherited, _losses = _losses, None
    # The thread that held the old one does not exist in the child, and cannot unlock it.
    _mutex = threading.RLock()
    if inherited is not None:
        for reference, index in inherited.callbacks.values():
            lock = reference()
            if lock is not None:
                watch(lock, index)


os.register_at_fork(after_in_child=_after_fork)
