"""Elections: who leads, and what a candidate is in blocking code and in asyncio."""

import contextlib
import os
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, SupportsIndex, TypeVar

from redlock import _native
from redlock.errors import LockInvalidArgument, LockLost, LockUnavailable, RedlockError
from redlock.inspection import LockView
from redlock.options import ElectionOptions, Options

__all__ = ["Leader"]

L = TypeVar("L", bound=_native.Handle)


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of an election, as the nodes show it; see `Election.leader`.

    >>> import redlock
    >>> election = redlock.Redlock("memory://leader", label="worker 7").election("scheduler")
    >>> election.run(lambda lock: election.leader() == redlock.Leader("worker 7", lock.fence))
    True
    """

    label: str | None
    """The label of the leader, by default `host:pid`; `None` if it has none."""

    term: int | None
    """The number of its term: the fence of its lock. `None` with several nodes, because each of them shows only the
    fence that it granted."""


def leader_of(view: LockView) -> Leader | None:
    """Return the leader that a view shows."""
    if view.state != "held":
        return None
    return Leader(view.label, view.fence if len(view.nodes) == 1 else None)


class Stop:
    """Whether an election is stopped, and what is called then."""

    __slots__ = ("_calls", "begun")

    def __init__(self) -> None:
        self.begun = False
        # Each with the process in which it was added: a forked child leaves those of its parent alone.
        self._calls: list[tuple[int, Callable[[], object]]] = []

    def begin(self) -> None:
        """Stop it. Threads and signal handlers may do so at any moment."""
        self.begun = True
        here = os.getpid()
        for process, call in tuple(self._calls):
            if process == here:
                call()

    @contextlib.contextmanager
    def calling(self, call: Callable[[], object]) -> Generator[None]:
        """Have `call` called if the stop begins before the end of the block."""
        entry = os.getpid(), call
        self._calls.append(entry)
        try:
            yield
        finally:
            self._calls.remove(entry)


class Stopped(Exception):  # noqa: N818 - it is not an error
    """A campaign ended because its election is stopped."""


class Candidate(Generic[L]):
    """A candidate of an election: the part that blocking and asyncio elections share."""

    __slots__ = ("__weakref__", "_stop", "_template")

    def __init__(self, make: Callable[[_native.Shape, Any], L], name: str | bytes, options: ElectionOptions) -> None:
        """`make` makes the locks, of a shape and options, which are checked here."""
        for option in options:
            if option in Options.__annotations__ and option not in ElectionOptions.__annotations__:
                raise LockInvalidArgument(f"{option} is not an option of an election; remove it", option=option)
        # Each term has another lock, with the name and the options of this one.
        self._template = make(_native.Shape.term(name), options)
        self._stop = Stop()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.begun

    def stop(self) -> None:
        """Stop the election for this candidate, for good: it does not campaign any more, and resigns if it leads.

        A campaign ends at once. In asyncio, the body of a term is cancelled; a blocking body has to look at `stopped`.
        Any thread and any signal handler can call it, also for several runs at once. Later runs return `None` at once.

        >>> import redlock
        >>> election = redlock.Redlock("memory://stop").election("scheduler")
        >>> election.stop()
        >>> print(election.run(lambda lock: "leads"))
        None
        """
        self._stop.begin()

    def _candidacy(self) -> L:
        """Make the lock of one term."""
        return type(self._template)(self._template)

    def __repr__(self) -> str:
        kind = type(self)
        state = " stopped" if self.stopped else ""
        return f"<{kind.__module__}.{kind.__qualname__} {self._template.name!r}{state}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("an election cannot be pickled or copied; make another with its name where it is needed")


def is_outage(error: LockUnavailable) -> bool:
    """Whether nodes were the cause, so that a campaign begins again.

    Without their answers, the cause is in this process, and stays: it is shutting down, or has no more threads.
    """
    return bool(error.nodes)


def is_lost(lock: _native.Handle) -> bool:
    """Whether the term of a lock was lost."""
    return _loss(lock) is not None


def is_end(lock: _native.Handle, error: BaseException) -> bool:
    """Whether what a body has raised only says that its term was lost."""
    if not isinstance(error, LockLost):
        return False
    loss = _loss(lock)
    return loss is not None and error.name == loss.name


def _loss(lock: _native.Handle) -> LockLost | None:
    try:
        lock.check()
    except LockLost as loss:
        return loss
    except RedlockError:
        # The body has released it.
        return None
    return None
