"""Passes what happens in the engine to `logging`: the loggers `redlock.node`, `redlock.lock` and `redlock.process`.

The engine writes its events into a bounded ring, and never waits. One thread of each process takes them from there: it
starts with the first client, and anew with the first call of a forked child. Handlers are code of the program:

- One that blocks delays later events only. A full ring loses its oldest event, debug events first, and a warning says
  how many were lost.
- One that raises is reported to `threading.excepthook`, unless `logging` has reported it. The next event is passed.
- One that uses a lock does so on this thread, where it may block.
- A fork waits for the handler that runs, for a moment: in the child, nobody would release what that handler has locked.
- At the end of the process, the thread passes what is left, while the process waits. A handler that makes no progress
  then is given up. So no event is lost, and no handler runs while Python takes itself apart.

With gevent or eventlet the thread is a greenlet, because handlers use locks that only greenlets of one thread share.
"""

import atexit
import collections
import contextlib
import logging
import os
import threading

from redlock import _exit, _losses, _native

_PATIENCE = 2.0
"""Seconds for which the end of the process waits for a handler that makes no progress."""

_PATIENCE_AT_FORK = 0.1
"""Seconds for which a fork waits for a handler."""

_LOGGERS = {topic: logging.getLogger(f"redlock.{topic}") for topic in ("node", "lock", "process")}

# Without a handler of the program's, `logging` would write warnings to standard error.
logging.getLogger("redlock").addHandler(logging.NullHandler())

Event = tuple[str, str, int, float, str, dict[str, str]]
"""Its code, topic, level, time, message and fields."""


class _Log:
    """The events of one process, and the thread that passes them to `logging`."""

    def __init__(self) -> None:
        self.events = _native.Events()
        self.runs = False
        """Whether there is a thread."""
        # A plain lock: eventlet replaces those of the other kind wherever it finds them. It is held for moments only.
        self._state = threading.Condition(threading.Lock())
        self._left: collections.deque[Event] = collections.deque()
        """Those that were taken from the ring."""
        self._passed = 0
        self._passing = 0
        """In how many threads handlers run now: in one, or at the end of the process in two."""
        self._forks = 0
        """How many forks wait, or are under way."""
        self._stuck_at = -1
        """How many were passed when a fork has waited in vain."""
        self._closed = False

    def start(self) -> None:
        """Start the thread. If the system refuses it, events are passed at the end of the process."""
        self.runs = True
        try:
            _losses.start(self._run, "redlock-log")
        except RuntimeError:
            self.runs = False

    def _run(self) -> None:
        wait = _losses.waiting_for(self.events.fileno())
        while True:
            wait()
            # A greenlet goes on in a forked child.
            if self._closed or self.events.is_foreign():
                return
            while self._pass_next():
                pass

    def _pass_next(self) -> bool:
        """Pass the next event to its logger. Return `False` if there are none, or no more may be passed."""
        with self._state:
            while self._forks:
                self._state.wait()
            event = None if self._closed else self._next()
            if event is None:
                return False
            self._passing += 1
        try:
            _pass(event)
        except BaseException as error:  # noqa: BLE001 - an exception must not stop the thread
            # A handler that was given up may find its lock replaced.
            if not self._closed:
                _losses.report(error)
        finally:
            with self._state:
                self._passing -= 1
                self._passed += 1
                self._state.notify_all()
        return True

    def _next(self) -> Event | None:
        """Take the next event, and those behind it, from the ring."""
        if not self._left:
            events, lost = self.events.take()
            self._left.extend(events)
            if lost and events:
                # They are older than all others.
                self._left.appendleft(_dropped(lost, before=events[0]))
        return self._left.popleft() if self._left else None

    def _is_done(self) -> bool:
        return not (self._left or self._passing or self.events.is_pending())

    def flush(self) -> None:
        """Wait until all events so far are passed, or a handler makes no progress. Then that one is given up."""
        with self._state:
            if self._wait():
                return
        while self._pass_next():
            pass

    def _wait(self) -> bool:
        """Wait for the thread. Return `False` if there is none, or it does not run."""
        while self.runs and not self._closed and not self._is_done():
            passed = self._passed
            if self._state.wait(_PATIENCE) or self._passed != passed:
                continue
            if not self._passing:
                return False
            self._give_up()
        return self.runs

    def close(self) -> None:
        """Flush, and pass nothing more."""
        self.flush()
        with self._state:
            if self._closed:
                return
            self._closed = True
            # Perhaps one more has begun meanwhile.
            if self._passing and not self._state.wait(_PATIENCE):
                self._give_up()

    def _give_up(self) -> None:
        self._closed = True
        _unlock_handlers()

    def pause(self) -> bool:
        """Wait until no handler runs, and let none begin until `resume`. Return `False` if that is not possible."""
        # A handler of signals may fork while its thread has this.
        if not self._state.acquire(timeout=_PATIENCE_AT_FORK):
            return False
        try:
            self._forks += 1
            if self._passed != self._stuck_at and not self._state.wait_for(self._is_idle, _PATIENCE_AT_FORK):
                self._stuck_at = self._passed
        finally:
            self._state.release()
        return True

    def _is_idle(self) -> bool:
        return not self._passing

    def resume(self) -> None:
        """Let handlers run."""
        with self._state:
            self._forks -= 1
            self._state.notify_all()


def _pass(event: Event) -> None:
    """Pass an event to its logger, as it would have been at its own time."""
    code, topic, level, created, message, fields = event
    logger = _LOGGERS[topic]
    if not logger.isEnabledFor(level):
        return
    args: tuple[object, ...] = ()
    if fields:
        # The text is the same for all events of one kind, which lets handlers group them.
        shown = ", ".join(f"{field}=%({field})s" for field in fields)
        message, args = f"{message.replace('%', '%%')} ({shown})", (fields,)
    record = logger.makeRecord(logger.name, level, "redlock", 0, message, args, None, func=code)
    record.relativeCreated += (created - record.created) * 1_000
    record.created = created
    record.msecs = float(int(created % 1 * 1_000))
    vars(record).update(code=code, fields=fields)
    logger.handle(record)


def _dropped(lost: int, *, before: Event) -> Event:
    """Make the warning that events were lost."""
    created = before[3]
    message = "events were lost: they came faster than handlers of logging take them"
    return "events_dropped", "process", logging.WARNING, created, message, {"count": str(lost)}


def _unlock_handlers() -> None:
    """Give handlers that are stuck another lock, because `logging.shutdown` would wait for the present one for ever."""
    for logger in _LOGGERS.values():
        at: logging.Logger | None = logger
        while at is not None:
            for handler in at.handlers:
                lock = handler.lock
                if lock is None:
                    continue
                if lock.acquire(blocking=False):
                    lock.release()
                else:
                    handler.createLock()
            at = at.parent if at.propagate else None


# It is reentrant, because a signal handler may interrupt the thread that has it.
_mutex = threading.RLock()
_log: _Log | None = None
_inherited: list[_Log] = []
"""Those of the processes that this one was forked from. Their greenlets still wait for their descriptors."""
_forking = threading.local()
"""Whether the thread that forks is the main thread."""
_pausing: dict[int, _Log] = {}
"""By thread, the log that waits until the thread has forked."""


def begin() -> None:
    """Begin to log the events of this process, unless it has begun. The native half calls it for each client."""
    global _log  # noqa: PLW0603 - one for each process, on purpose
    if _log is not None and _log.runs and not _log.events.is_foreign():
        return
    # Without a descriptor or a thread, locks still work. The next client tries again.
    with _mutex, contextlib.suppress(OSError):
        if _log is None or _log.events.is_foreign():
            log = _Log()
            # A signal handler may have made one meanwhile.
            if _log is None or _log.events.is_foreign():
                _log = log
        if not _log.runs:
            _log.start()
        _losses.resume()


def flush() -> None:
    """Wait until all events so far have reached their loggers."""
    if _log is not None and not _log.events.is_foreign():
        _log.flush()


def close() -> None:
    """Wait for the last events, and log none after them."""
    if _log is not None and not _log.events.is_foreign():
        _log.close()


def _before_fork() -> None:
    _forking.is_main = threading.current_thread() is threading.main_thread()
    log = _log
    # The child has its own copy of all greenlets, and no lock that another thread has.
    if log is not None and not _losses.is_cooperative() and log.pause():
        _pausing[threading.get_ident()] = log


def _after_fork_in_parent() -> None:
    log = _pausing.pop(threading.get_ident(), None)
    if log is not None:
        log.resume()


def _after_fork_in_child() -> None:
    global _mutex, _log  # noqa: PLW0603
    inherited, _log = _log, None
    # The thread that held the old one does not exist in the child, and cannot unlock it.
    _mutex = threading.RLock()
    _pausing.clear()
    if inherited is not None:
        _inherited.append(inherited)
        if _losses.is_cooperative():
            begin()
        # Where another thread has forked, the child ends when that thread does. A thread of ours would prevent it.
        # uWSGI forks the main thread, and calls only this hook.
        elif getattr(_forking, "is_main", True):
            _native.begin_with_next_call()


def _resume() -> None:
    """Begin to log in a child of multiprocessing or billiard, which ends without a look at its threads."""
    if _inherited:
        begin()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
# `logging` closes handlers, and it does so before `_exit` shuts down if it was imported later. This is before both.
atexit.register(flush)
_exit.log_with(_resume, flush, close)
