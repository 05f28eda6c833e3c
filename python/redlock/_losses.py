"""How losses are told: as notes, and by a thread. Each process starts its own, when the first lock is watched."""

import _thread
import contextlib
import os
import select
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

from redlock import _native
from redlock.errors import LockLost

Told: TypeAlias = Callable[[Any, LockLost], object]
"""What is called with a lock that was lost, and its loss. It must not keep the lock."""


def note(raised: BaseException | None, loss: object) -> None:
    """Tell what leaves the body of a lock that the lock was lost, unless it is a loss itself."""
    if isinstance(loss, LockLost) and raised is not None and not isinstance(raised, LockLost):
        # An exception that cannot be changed, such as a frozen dataclass, is raised all the same.
        with contextlib.suppress(Exception):
            raised.add_note(str(loss))


def is_cooperative() -> bool:
    """Whether gevent or eventlet makes greenlets of new threads."""
    return _thread.start_new_thread.__module__ != _thread.__name__


def start(run: Callable[[], None], name: str) -> None:
    """Start a daemon thread. With gevent or eventlet it is a greenlet."""
    if is_cooperative():
        # Unlike a `Thread`, this does not switch to the new greenlet, which must not happen during a fork.
        _thread.start_new_thread(run, ())
    else:
        threading.Thread(target=run, name=name, daemon=True).start()


class _Losses:
    """Waits for losses, in Python's own poll, because a thread may end there when the interpreter ends."""

    def __init__(self) -> None:
        self.queue = _native.Queue()
        # Each watch has its own number, so that it reports each loss once.
        self.watches: dict[int, tuple[weakref.ref[_native.Handle], Told]] = {}
        start(self._run, "redlock-on-lost")

    def _run(self) -> None:
        wait = waiting_for(self.queue.fileno())
        while True:
            wait()
            # A greenlet goes on in a forked child.
            if self.queue.is_foreign():
                return
            for number in self.queue.drain():
                self._hear(number)

    def _hear(self, number: int) -> None:
        with _mutex:
            entry = self.watches.get(number)
        try:
            taken = self.queue.take(number)
        except LockLost as error:
            if entry is not None:
                reference, told = entry
                lock = reference()
                if lock is not None:
                    # A program may keep the error, and its traceback would keep the lock.
                    _call(told, lock, error.with_traceback(None))
            return
        if taken is None:
            with _mutex:
                self.watches.pop(number, None)


def waiting_for(descriptor: int, limit: float | None = None) -> Callable[[], object]:
    """Find out how to wait for a descriptor, for `limit` seconds at most.

    A greenlet of gevent that waits here without a limit does not keep its loop alive. eventlet takes `poll` away, and
    its `select` takes every descriptor.
    """
    if limit is None and select.select.__module__.startswith("gevent"):
        hub: Any = sys.modules["gevent"].get_hub()
        watcher = hub.loop.io(descriptor, 1, ref=False)
        return lambda: hub.wait(watcher)
    if not hasattr(select, "poll"):
        return lambda: select.select([descriptor], [], [], limit)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return lambda: poll.poll(None if limit is None else limit * 1000)


# It is reentrant, because a signal handler may interrupt the thread that has it.
_mutex = threading.RLock()
_losses: _Losses | None = None
_inherited: list[tuple[weakref.ref[_native.Handle], Told]] = []
"""What the parent of a forked child has watched."""


def watch(lock: _native.Handle, told: Told) -> None:
    """Have `told` called once at each loss of `lock`, also at that of the present hold if it is lost already."""
    global _losses  # noqa: PLW0603 - one for each process, on purpose
    resume()
    with _mutex:
        if _losses is None or _losses.queue.is_foreign():
            _losses = _Losses()
        _losses.watches[_losses.queue.watch(lock)] = (weakref.ref(lock), told)


def resume() -> None:
    """Watch the locks that a forked child has inherited, since it may acquire them anew. Its first call does so."""
    global _inherited
    inherited, _inherited = _inherited, []
    for reference, told in inherited:
        lock = reference()
        if lock is not None:
            watch(lock, told)


def _call(told: Told, lock: _native.Handle, error: LockLost) -> None:
    try:
        told(lock, error)
    except BaseException as raised:  # noqa: BLE001 - an exception must not stop the thread
        report(raised)


def report(raised: BaseException) -> None:
    """Pass what the program's code has raised on a thread of ours to `threading.excepthook`."""
    hook = threading.ExceptHookArgs((type(raised), raised, raised.__traceback__, threading.current_thread()))
    # It is code of the program, too, and may call `sys.exit`.
    with contextlib.suppress(BaseException):
        threading.excepthook(hook)


def _after_fork() -> None:
    global _mutex, _losses  # noqa: PLW0603
    inherited, _losses = _losses, None
    # The thread that held the old one does not exist in the child, and cannot unlock it.
    _mutex = threading.RLock()
    if inherited is not None:
        _inherited.extend(inherited.watches.values())
        # Until then, the child may close all of its descriptors, as daemons do.
        _native.begin_with_next_call()


os.register_at_fork(after_in_child=_after_fork)
