"""Releases the locks of this process when the interpreter ends, or a forked child that ends without that.

A forked child of `multiprocessing` or billiard ends with `os._exit`. Before that, each package calls something else:

- `multiprocessing` before Python 3.13 calls its finalizers, and then waits for the threads. The threads keep their
  locks until then. So a finalizer starts one more thread, which waits for the others and shuts redlock down.
- `multiprocessing` since Python 3.13 empties `atexit` at the fork, and calls its finalizers when the threads have
  ended. So the finalizer shuts redlock down itself.
- A process of billiard calls the same finalizers, and does not wait for threads. So the finalizer shuts redlock
  down itself.
- A worker of a pool of billiard, such as Celery's, calls only the `on_exit` that its pool has given it. So this module
  wraps it, and shuts redlock down after it.
"""

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from redlock import _native

_FINALLY = -(10**9)
"""The priority of the finalizer that multiprocessing calls last."""

_attends = False
_forked = 0
"""The process that was forked last: this one, or one of its ancestors."""

_ends_in: int | None = None
"""The thread that shuts redlock down."""


def _nothing() -> None:
    """Stand for the log of a process without a client."""


_resume: Callable[[], None] = _nothing
_flush: Callable[[], None] = _nothing
_close: Callable[[], None] = _nothing


def log_with(resume: Callable[[], None], flush: Callable[[], None], close: Callable[[], None]) -> None:
    """Have the events of a child logged, those so far before the shutdown, and the last ones after it."""
    global _resume, _flush, _close
    _resume, _flush, _close = resume, flush, close


def _shutdown() -> None:
    global _ends_in  # noqa: PLW0603 - one for each process
    try:
        # Handlers may use locks, which work until then.
        _flush()
    finally:
        _ends_in = threading.get_ident()
        _native.shutdown()
        _close()


def park_if_shut_down() -> None:
    """Park this thread for ever if another one is ending the process, as acquires of lock objects do."""
    if _ends_in is not None and _ends_in != threading.get_ident():
        threading.Event().wait()


def _attend() -> None:
    """Register the shutdown in this process, if one of the two made it, and in its children. Import neither of them."""
    global _attends  # noqa: PLW0603 - a child inherits it together with what was registered
    # billiard uses it too: both packages share one list of finalizers, and one of hooks after a fork.
    if "multiprocessing.util" not in sys.modules:
        return
    from multiprocessing import parent_process, util  # noqa: PLC0415 - it is loaded already

    if not _attends:
        _attends = True
        util.register_after_fork(_native, _finalize)
    if parent_process() is not None or _billiards() is not None:
        _finalize(_native)


def _attend_in_child() -> None:
    global _forked  # noqa: PLW0603 - one for each process
    _forked = os.getpid()
    _attend()


def _billiards() -> Any:  # noqa: ANN401 - its package may not be installed
    """Find billiard's object for this process, if billiard made the process."""
    module = sys.modules.get("billiard.process")
    process = module and module.current_process()
    # A process that another package has forked inherits the object of its parent.
    return process if getattr(process, "_parent_pid", None) == os.getppid() else None


def _finalize(_: object) -> None:
    """Register the shutdown of this child. A child that was spawned needs none: its interpreter calls `atexit`."""
    from multiprocessing import util  # noqa: PLC0415

    billiards = _billiards()
    if _forked == os.getpid() or _method("multiprocessing" if billiards is None else "billiard") != "spawn":
        util.Finalize(None, _begin, exitpriority=_FINALLY)
    pool = sys.modules.get("billiard.pool")
    worker: Any = getattr(billiards, "_target", None)
    if pool is not None and isinstance(worker, pool.Worker):
        worker.on_exit = _then_shutdown(worker.on_exit)
    _resume()


def _method(package: str) -> object:
    return sys.modules[package].get_start_method()


def _then_shutdown(former: Callable[[int, int], object] | None) -> Callable[[int, int], None]:
    def on_exit(pid: int, exitcode: int) -> None:
        try:
            if former is not None:
                former(pid, exitcode)
        finally:
            _shutdown()

    return on_exit


def _begin() -> None:
    # The main thread counts as ended after it has waited for the others.
    if threading.main_thread().is_alive() and _billiards() is None:
        # A thread of a pool that forks is a daemon, and so would be this one.
        threading.Thread(target=_end, name="redlock-shutdown", daemon=False).start()
    else:
        _shutdown()


def _end() -> None:
    done = {threading.main_thread(), threading.current_thread()}
    while others := [thread for thread in threading.enumerate() if not thread.daemon and thread not in done]:
        for thread in others:
            thread.join()
    _shutdown()


def register() -> None:
    """Register the hooks that shut redlock down, in this process and in its forked children."""
    atexit.register(_shutdown)
    os.register_at_fork(after_in_child=_attend_in_child)
    _attend()
