"""When this process gives back what it holds: at the end of the interpreter, or of a child of `multiprocessing`.

A child that `multiprocessing` forked ends with `os._exit`, which calls nothing of `atexit`. It calls the finalizers of
`multiprocessing.util`, and after them it waits for its threads, whose locks are theirs until then. So a finalizer
starts one more thread, which waits for the others and says farewell.
"""

import atexit
import os
import sys
import threading

from redlock import _native

_FINALLY = -(10**9)
"""The priority of what multiprocessing calls after everything else."""

_attends = False


def _attend() -> None:
    """See to this process, if multiprocessing made it, and to those that it makes. Imports nothing of it for that."""
    global _attends  # noqa: PLW0603 - a child inherits it together with what was registered
    if "multiprocessing.util" not in sys.modules:
        return
    from multiprocessing import parent_process, util  # noqa: PLC0415 - they are there, or we would not be

    if not _attends:
        _attends = True
        util.register_after_fork(_native, _finalize)
    if parent_process() is not None:
        _finalize(_native)


def _finalize(_: object) -> None:
    """Have this child say farewell; one that was spawned does so as every interpreter, by `atexit`."""
    from multiprocessing import get_start_method, util  # noqa: PLC0415

    if get_start_method() != "spawn":
        util.Finalize(None, _begin, exitpriority=_FINALLY)


def _begin() -> None:
    threading.Thread(target=_end, name="redlock-farewell").start()


def _end() -> None:
    done = {threading.main_thread(), threading.current_thread()}
    while others := [thread for thread in threading.enumerate() if not thread.daemon and thread not in done]:
        for thread in others:
            thread.join()
    _native.farewell()


def register() -> None:
    """Begin to see to it."""
    atexit.register(_native.farewell)
    os.register_at_fork(after_in_child=_attend)
    _attend()
