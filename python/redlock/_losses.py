"""The thread that calls `on_lost` callbacks. Started at the first one, in each process anew."""

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
    """Waits for losses. Waits in Python's own poll, because a thread may end there when the interpreter does."""

    def __init__(self) -> None:
        self.queue = _native.Queue()
        # Each callback has a number of its own, so that it is told of each loss once. Only the lock keeps callbacks.
        self.callbacks: dict[int, tuple[weakref.ref[Lock], int]] = {}
        threading.Thread(target=self._run, name="redlock-on-lost", daemon=True).start()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self.queue.fileno(), select.POLLIN)
        while True:
            poll.poll()
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


# Reentrant, because a signal handler may come in between.
_mutex = threading.RLock()
_losses: _Losses | None = None


def watch(lock: "Lock", index: int) -> None:
    """Have a callback of `lock` called at each loss, once each; for the present hold also if it is lost already."""
    global _losses  # noqa: PLW0603 - one for each process, which is what it is for
    with _mutex:
        if _losses is None or _losses.queue.is_foreign():
            _losses = _Losses()
        _losses.callbacks[_losses.queue.watch(lock)] = (weakref.ref(lock), index)


def _call(callback: Callable[[LockLost], object], error: LockLost) -> None:
    """Call a callback; what it raises goes where the exceptions of threads go."""
    try:
        callback(error)
    except BaseException as raised:  # noqa: BLE001 - none may stop the thread
        hook = threading.ExceptHookArgs((type(raised), raised, raised.__traceback__, threading.current_thread()))
        threading.excepthook(hook)


def _after_fork() -> None:
    """Watch the locks that the child inherits, since it may acquire them anew."""
    global _mutex, _losses  # noqa: PLW0603
    inherited, _losses = _losses, None
    # The thread that held it is not here to let go of it.
    _mutex = threading.RLock()
    if inherited is not None:
        for reference, index in inherited.callbacks.values():
            lock = reference()
            if lock is not None:
                watch(lock, index)


os.register_at_fork(after_in_child=_after_fork)
