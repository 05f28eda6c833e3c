"""The same lock for asyncio: the names of `redlock`, with `async with` and awaitables.

    from redlock import asyncio as redlock

    async with redlock.lock("invoice:17", ttl=10, timeout=5) as lock:
        await store(lock.fence)

If the lock is lost, the task of the body is cancelled, and `async with` raises `LockLost`. A background thread takes
over the calls of a busy event loop, so that it delays only its own results. They work on any event loop that can watch
a file descriptor, such as uvloop's, and on several loops in several threads.

A cancelled call leaves no key behind, at whatever moment. Locks that a closed loop was waiting for are released.

>>> import asyncio
>>> from redlock import asyncio as redlock
>>> async def main() -> bool:
...     async with redlock.lock("job") as lock:
...         return lock.held
>>> asyncio.run(main())
True
"""

import asyncio
import contextlib
import functools
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Self, TypeVar, Unpack, cast

from redlock import _calls, _default, _native
from redlock._awaited import Body, Decorator, Lock, may_wait, typed
from redlock._checks import OnlyAsyncWith, coroutine
from redlock._decorators import SKIPPED, Skipped
from redlock._naming import Name, NameOf, Names
from redlock.diagnosis import Diagnosis, Finding, Level
from redlock.errors import (
    LockAlreadyHeld,
    LockClosed,
    LockForbidden,
    LockInternal,
    LockInvalidArgument,
    LockLost,
    LockNotHeld,
    LockTimeout,
    LockUnavailable,
    LostReason,
    RedlockError,
)
from redlock.inspection import LockView, NodeView
from redlock.leadership import Candidate, Leader, is_end, is_lost, is_outage, leader_of
from redlock.metrics import Histogram, Metric, Point, Stats, count_by_name, stats
from redlock.options import (
    OWN,
    ClientOptions,
    Credentials,
    Duration,
    ElectionOptions,
    Login,
    NameOptions,
    Nodes,
    Options,
    RedisClient,
    attaching,
    takes,
)

__all__ = [
    "SKIPPED",
    "ClientOptions",
    "Credentials",
    "Diagnosis",
    "Duration",
    "Election",
    "ElectionOptions",
    "Finding",
    "Histogram",
    "Leader",
    "Level",
    "Lock",
    "LockAlreadyHeld",
    "LockClosed",
    "LockForbidden",
    "LockInternal",
    "LockInvalidArgument",
    "LockLost",
    "LockNotHeld",
    "LockTimeout",
    "LockUnavailable",
    "LockView",
    "Login",
    "LostReason",
    "Metric",
    "NameOptions",
    "NodeView",
    "Options",
    "Point",
    "RedisClient",
    "Redlock",
    "RedlockError",
    "Skipped",
    "Stats",
    "attach",
    "configure",
    "count_by_name",
    "diagnose",
    "election",
    "inspect",
    "inspect_semaphore",
    "lock",
    "lock_all",
    "locked",
    "semaphore",
    "stats",
]

R = TypeVar("R")


_ELECTION = "an election of redlock.asyncio"


class Election(Candidate[Lock]):
    """An election by name, for asyncio; see `redlock.Election`. `Redlock.election` makes a candidate.

    If its term is lost, the body of a leader is cancelled. With the option `margin`, that is so much earlier than
    another one can lead.

    >>> import asyncio
    >>> from redlock import asyncio as redlock
    >>> election = redlock.Redlock("memory://aio-election").election("scheduler", margin=2)
    >>> async def lead(lock: redlock.Lock) -> str:
    ...     await asyncio.sleep(0.01)
    ...     return "led, and resigned by returning"
    >>> asyncio.run(election.run(lead))
    'led, and resigned by returning'
    """

    __slots__ = ()

    def __init__(self, _client: "Redlock", _name: str | bytes, /, **options: Unpack[ElectionOptions]) -> None:
        # A subclass may have another `lock`.
        super().__init__(lambda shape, options: Lock(_client, shape, **options), _name, options)

    async def run(self, body: Callable[[Lock], Coroutine[Any, Any, R]]) -> R | None:
        """Campaign, and run `body(lock)` as the leader. Return what it returns, or `None` once the election is stopped.

        Each term has a lock of its own. If the term is lost, `body` is cancelled. Once it has ended, the candidate
        campaigns again, and `body` runs again in the next term. What `body` returned after the loss is dropped, and so
        is the `LockLost` of `lock.check`. While no quorum of nodes answers, the campaign goes on. If the election is
        stopped, the campaign or `body` is cancelled.

        Raises what `body` raises, after it has resigned; `LockForbidden` if nodes that refuse the credentials rule out
        a quorum; `LockClosed` if the client is closed; `TypeError` if `body` is not a coroutine function.

        If it is cancelled, `body` is cancelled, the candidate resigns, and no key is left behind.

        >>> import asyncio
        >>> from redlock import asyncio as redlock
        >>> election = redlock.Redlock("memory://aio-run").election("scheduler")
        >>> async def lead(lock: redlock.Lock) -> bool:
        ...     asyncio.get_running_loop().call_later(0.01, election.stop)
        ...     await asyncio.sleep(60)
        >>> print(asyncio.run(election.run(lead)))
        None
        """
        coroutine(body, _ELECTION, "runs")
        loop, running = _calls.current()[0], Body[bool](asyncio.current_task())
        with self._stop.calling(functools.partial(_cut, loop, weakref.ref(running))):
            try:
                while not self.stopped:
                    led = await self._lead(body, running)
                    if led is not None:
                        return led[0]
            except asyncio.CancelledError as error:
                if not running.end(type(error)):
                    raise
            finally:
                running.end(None)
        return None

    async def _lead(self, body: Callable[[Lock], Coroutine[Any, Any, R]], running: Body[bool]) -> tuple[R] | None:
        """Campaign, and run `body` for one term. Return what it returns, or `None` if the term was lost."""
        lock = self._candidacy()
        await _campaign(lock)
        try:
            returned = await body(lock)
        except BaseException as error:
            ends = is_end(lock, error)
            if not ends and not isinstance(error, asyncio.CancelledError):
                # From here on, a stop does not keep the caller from what the body has raised.
                running.end(None)
            try:
                await lock.__aexit__(type(error), error, error.__traceback__)
            except LockLost:
                # Only the loss has cancelled the body.
                return None
            if ends:
                return None
            raise
        lost = is_lost(lock)
        if not lost:
            # From here on, a stop does not keep the caller from what the body has returned.
            running.end(None)
        # If only the release finds out about a loss, the body has ended as the leader.
        with contextlib.suppress(LockLost):
            await lock.__aexit__(None, None, None)
        return None if lost else (returned,)

    async def leader(self) -> Leader | None:
        """Ask the nodes who leads; see `redlock.Election.leader`. Cancelling it changes nothing.

        Raises `LockUnavailable` or `LockForbidden` if too few nodes answer to know, and `LockClosed` if the client is
        closed.
        """
        call = self._template._view()  # noqa: SLF001 - it is for this
        (view,) = cast("list[LockView]", await _calls.result(_calls.Queue.start, call))
        return leader_of(view)


def _cut(loop: asyncio.AbstractEventLoop, reference: weakref.ref[Body[bool]]) -> None:
    """Cancel what runs in `loop`, from whichever thread. A task that its loop has left behind is garbage."""
    running = reference()
    if running is not None:
        # The loop may be closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(running.cut, True)


async def _campaign(lock: Lock) -> None:
    """Enter the lock, however long no quorum answers."""
    while True:
        try:
            await lock.__aenter__()
        except LockUnavailable as error:
            if not is_outage(error):
                raise
        else:
            return


@takes(ClientOptions)
class Redlock(OnlyAsyncWith, _native.Client):
    """A client for one set of nodes, for asyncio; see `redlock.Redlock`.

    It is not bound to an event loop. Leaving its `async with` block closes it.

    >>> import asyncio
    >>> from redlock import asyncio as redlock
    >>> async def main() -> str:
    ...     async with redlock.Redlock("memory://aio-client", ttl=5) as client:
    ...         async with client.lock("job"):
    ...             return (await client.inspect("job")).state
    >>> asyncio.run(main())
    'held'
    """

    @takes(NameOptions)
    def lock(self, name: Name, **options: Unpack[NameOptions]) -> Lock:
        """Make a lock by name; see `redlock.Redlock.lock`. Sends nothing and needs no event loop."""
        return Lock(self, name, **options)

    @takes(Options)
    def lock_all(self, names: Names, **options: Unpack[Options]) -> Lock:
        """Make a lock of several names; see `redlock.Redlock.lock_all`. Sends nothing and needs no event loop."""
        return Lock(self, _native.Shape.several(names), **options)

    @takes(Options)
    def semaphore(self, name: Name, permits: int, **options: Unpack[Options]) -> Lock:
        """Make a lock that up to `permits` can hold; see `redlock.Redlock.semaphore`.

        Sends nothing and needs no event loop.
        """
        return Lock(self, _native.Shape.semaphore(name, permits), **options)

    @typed
    @takes(NameOptions)
    def locked(
        self,
        name: NameOf,
        *,
        permits: int | None = None,
        skip_if_held: bool = False,
        pass_lock: bool = False,
        **options: Unpack[NameOptions],
    ) -> Decorator:
        """Make a decorator for coroutine functions; see `redlock.Redlock.locked`. Sends nothing."""
        return Decorator(lambda: self, name, permits, options, skips=skip_if_held, passes=pass_lock)

    async def attach(self, text: str, *, ttl: Duration | None = None, timeout: Duration | None = OWN) -> Lock:
        """Go on with the hold that `Lock.detach` has ended with this text; see `redlock.Redlock.attach`.

        The result is the lock, which is held: `async with await client.attach(text) as lock` releases it.

        If it is cancelled, the text can be attached again.
        """
        lock = Lock(self, _native.Shape.detached(text), **attaching(ttl, timeout))
        await lock.acquire()
        return lock

    @takes(ElectionOptions)
    def election(self, name: Name, **options: Unpack[ElectionOptions]) -> Election:
        """Make a candidate of the election with this name; see `Election`. Sends nothing and needs no event loop.

        Raises `LockInvalidArgument` for a wrong name or option.
        """
        return Election(self, name, **options)

    async def inspect(self, name: str | bytes) -> LockView:
        """Show whose lock `name` is, and what every node has; see `redlock.Redlock.inspect`.

        Cancelling it changes nothing.
        """
        (view,) = cast("list[LockView]", await _calls.result(_calls.Queue.start, self._inspect(name)))
        return view

    async def inspect_semaphore(self, name: str | bytes, permits: int) -> list[LockView]:
        """Show whose each slot of a semaphore is, in order; see `redlock.Redlock.inspect_semaphore`.

        Cancelling it changes nothing.
        """
        views = await _calls.result(_calls.Queue.start, self._inspect_semaphore(name, permits))
        return cast("list[LockView]", views)

    def list_locks(self, pattern: str | bytes = "*") -> AsyncIterator[LockView]:
        """List the locks that are held and match a pattern, for `async for`; see `redlock.Redlock.list_locks`.

        Cancelling it changes nothing.

        >>> import asyncio
        >>> from redlock import asyncio as redlock
        >>> async def main() -> list[str]:
        ...     client = redlock.Redlock("memory://aio-list")
        ...     async with client.lock("night:backup"), client.lock("day"):
        ...         return [view.name async for view in client.list_locks("night:*")]
        >>> asyncio.run(main())
        ['night:backup']
        """
        return _listed(_native.Listing(self, pattern))

    async def wait_free(self, name: str | bytes, timeout: Duration | None = None) -> bool:
        """Wait until a lock is free, without taking it; see `redlock.Redlock.wait_free`.

        Cancelling it changes nothing.
        """
        return await _calls.result(_calls.Queue.start, self._wait_free(name, timeout)) == "free"

    async def break_lock(self, name: str | bytes, slot: int | None = None) -> LockView | None:
        """Delete a lock that somebody else holds; see `redlock.Redlock.break_lock`.

        If it is cancelled, it may or may not be deleted.
        """
        views = cast("list[LockView]", await _calls.result(_calls.Queue.start, self._break_lock(name, slot)))
        return views[0] if views else None

    async def diagnose(self) -> list[Diagnosis]:
        """Find out what each node can do and may lose; see `redlock.Redlock.diagnose`.

        If it is cancelled, its keys expire.
        """
        return cast("list[Diagnosis]", await _calls.result(_calls.Queue.start, self._diagnose()))

    def close(self) -> None:
        """Close the client; see `redlock.Redlock.close`. It does not wait: the background releases its locks."""
        self._close_now()

    async def aclose(self, limit: Duration = 0.5) -> None:
        """Close the client and wait for the release of its locks; see `redlock.Redlock.close`.

        If it is cancelled, the background goes on.
        """
        await _calls.result(_calls.Queue.start, self._close(limit))
        self._close_now()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if may_wait(kind):
            await self.aclose()
        else:
            self.close()


@takes(NameOptions)
def lock(name: Name, **options: Unpack[NameOptions]) -> Lock:
    """Make a lock on the default client; see `redlock.lock`. Needs no event loop."""
    made = _default.client(Redlock).lock(name, **options)
    made._made_with = lock, (name,), options  # noqa: SLF001 - see `redlock.lock`
    return made


@takes(Options)
def lock_all(names: Names, **options: Unpack[Options]) -> Lock:
    """Make a lock of several names on the default client; see `redlock.lock_all`."""
    made = _default.client(Redlock).lock_all(names, **options)
    made._made_with = lock_all, (made.names,), options  # noqa: SLF001 - see `redlock.lock`
    return made


@takes(Options)
def semaphore(name: Name, permits: int, **options: Unpack[Options]) -> Lock:
    """Make a lock that up to `permits` can hold, on the default client; see `redlock.semaphore`."""
    made = _default.client(Redlock).semaphore(name, permits, **options)
    made._made_with = semaphore, (name, permits), options  # noqa: SLF001 - see `redlock.lock`
    return made


@typed
@takes(NameOptions)
def locked(
    name: NameOf,
    *,
    permits: int | None = None,
    skip_if_held: bool = False,
    pass_lock: bool = False,
    **options: Unpack[NameOptions],
) -> Decorator:
    """Make a decorator for coroutine functions, on the default client; see `redlock.Redlock.locked`.

    >>> import asyncio
    >>> from redlock import asyncio as redlock
    >>> @redlock.locked("order:{order_id}", pass_lock=True)
    ... async def ship(lock: redlock.Lock, order_id: int) -> object:
    ...     return lock.name
    >>> asyncio.run(ship(17))
    'order:17'
    """
    return Decorator(lambda: _default.client(Redlock), name, permits, options, skips=skip_if_held, passes=pass_lock)


async def attach(text: str, *, ttl: Duration | None = None, timeout: Duration | None = OWN) -> Lock:
    """Go on with a detached lock, on the default client; see `redlock.Redlock.attach` and `Redlock.attach`."""
    return await _default.client(Redlock).attach(text, ttl=ttl, timeout=timeout)


@takes(ElectionOptions)
def election(name: Name, **options: Unpack[ElectionOptions]) -> Election:
    """Make a candidate of the election with this name, on the default client; see `redlock.election`."""
    return _default.client(Redlock).election(name, **options)


async def inspect(name: str | bytes) -> LockView:
    """Show whose lock `name` is, and what every node of the default client has; see `redlock.Redlock.inspect`."""
    return await _default.client(Redlock).inspect(name)


async def inspect_semaphore(name: str | bytes, permits: int) -> list[LockView]:
    """Show whose each slot of a semaphore of the default client is; see `redlock.Redlock.inspect_semaphore`."""
    return await _default.client(Redlock).inspect_semaphore(name, permits)


async def diagnose() -> list[Diagnosis]:
    """Find out what each node of the default client can do and may lose; see `redlock.Redlock.diagnose`."""
    return await _default.client(Redlock).diagnose()


@takes(ClientOptions)
def configure(nodes: Nodes = None, **options: Unpack[ClientOptions]) -> None:
    """Set the nodes and the options of the default clients of this module and of `redlock`; see `redlock.configure`."""
    _default.configure(Redlock, nodes, options)


async def _listed(listing: _native.Listing) -> AsyncIterator[LockView]:
    while views := cast("list[LockView]", await _calls.result(_calls.Queue.start, listing.page())):
        for view in views:
            yield view
