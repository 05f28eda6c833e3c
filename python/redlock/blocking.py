"""The client, the lock and the election whose calls block the calling thread. `redlock` exports them."""

import contextlib
import select
from collections.abc import Callable, Iterator
from typing import Any, Never, ParamSpec, Self, TypeAlias, TypeVar, Unpack, cast

from redlock import _exit, _native
from redlock._blocking_lock import TAKER
from redlock._blocking_lock import Lock as Lock  # noqa: PLC0414 - this module exports it
from redlock._checks import OnlyWith, Result, only, plain, ran
from redlock._decorators import SKIPPED, Decorates, Locked, Passes, Place, Plan, Skipped
from redlock._naming import Name, NameOf, Names
from redlock.diagnosis import Diagnosis
from redlock.errors import LockLost, LockTimeout, LockUnavailable
from redlock.inspection import LockView
from redlock.leadership import Candidate, Leader, Stopped, is_end, is_lost, is_outage, leader_of
from redlock.options import OWN, ClientOptions, Duration, ElectionOptions, NameOptions, Options, attaching, takes

P = ParamSpec("P")
R = TypeVar("R")


_ELECTION = "an election of redlock (redlock.asyncio has one for coroutine functions)"


class Decorator(Plan[Lock]):
    """Runs each call of the functions that it decorates under the lock of a plan."""

    def __call__(self, *given: Callable[..., R], **others: object) -> Callable[..., R | Skipped]:
        """Decorate the function that is given."""
        function = only(given, others)
        plain(function, TAKER)
        place = Place(function, self, Lock)

        def locked(*args: Any, **kwargs: Any) -> R | Skipped:  # noqa: ANN401 - those of the function
            lock = place.lock(args, kwargs)
            with contextlib.ExitStack() as stack:
                try:
                    stack.enter_context(lock)
                except LockTimeout:
                    if self.skips:
                        return SKIPPED
                    raise
                return ran(function, place.call(lock, args, kwargs), TAKER)  # type: ignore[no-any-return]

        return place.wraps(locked)


Decorators: TypeAlias = Locked[Decorates[Never], Decorates[Skipped], Passes[Lock, Never], Passes[Lock, Skipped]]


def typed(locked: Callable[..., Decorator]) -> Decorators:
    """Tell type checkers which decorator each call of `locked` returns."""
    return cast("Decorators", locked)


class Election(Candidate[Lock]):
    """A candidate in an election by name: at most one candidate leads at any moment. `Redlock.election` makes one.

    A candidate campaigns by waiting for the lock of this name, and the leader holds it. A term is the time of one
    leader. Its number is the fence of the lock: terms rise, so a resource that rejects smaller ones is safe from a
    former leader that does not know yet that it was replaced. The option `margin` is the time that a leader has to stop
    before another one can lead.

    It can be run several times, also at once. Each run campaigns by itself. It cannot be pickled or copied.

    >>> import redlock
    >>> election = redlock.Redlock("memory://election").election("scheduler", margin=2)
    >>> def lead(lock: redlock.Lock) -> str:
    ...     while lock.held and not election.stopped:
    ...         return f"led, and resigned by returning"
    >>> election.run(lead)
    'led, and resigned by returning'
    """

    __slots__ = ()

    def __init__(self, _client: "Redlock", _name: str | bytes, /, **options: Unpack[ElectionOptions]) -> None:
        # A subclass may have another `lock`.
        super().__init__(_client._make, _name, options)

    def run(self, body: Callable[[Lock], R]) -> R | None:
        """Campaign, and run `body(lock)` as the leader. Return what it returns, or `None` if the election was stopped.

        Each term has a lock of its own. Nothing can end `body` from outside, so it has to look at `lock.held` and at
        `stopped`, and to return within the margin after the term is lost. If the term is lost when `body` ends, the
        candidate campaigns again, and `body` runs again in the next term. What `body` returned after the loss is
        dropped, and so is the `LockLost` of `lock.check`. While no quorum of nodes answers, the campaign goes on.

        Raises what `body` raises, after it has resigned; `LockForbidden` if nodes that refuse the credentials rule out
        a quorum; `LockClosed` if the client is closed; `TypeError` if `body` is not a plain function.

        On the main thread, Ctrl-C ends a campaign at once and leaves no key behind.

        >>> import redlock
        >>> election = redlock.Redlock("memory://run").election("scheduler")
        >>> election.run(lambda lock: (lock.held, election.leader().term == lock.fence))
        (True, True)
        """
        plain(body, _ELECTION)
        while not self.stopped:
            try:
                led = self._lead(body)
            except Stopped:
                break
            if led is not None:
                return led[0]
        return None

    def _lead(self, body: Callable[[Lock], R]) -> tuple[R] | None:
        """Campaign, and run `body` for one term. Return what it returns, or `None` if the term was lost."""
        lock = self._candidacy()
        try:
            self._campaign(lock)
            returned = ran(body, body(lock), _ELECTION)
        except BaseException as error:
            ends = is_end(lock, error)
            lock.__exit__(type(error), error, error.__traceback__)
            if ends:
                return None
            raise
        lost = is_lost(lock)
        # If only the release finds out about a loss, the body has ended as the leader.
        with contextlib.suppress(LockLost):
            lock.__exit__(None, None, None)
        return None if lost else (returned,)

    def _campaign(self, lock: Lock) -> None:
        """Acquire the lock, however long no quorum answers."""
        while True:
            try:
                return lock._campaign(self._stop)  # noqa: SLF001 - it is for this
            except LockUnavailable as error:
                if not is_outage(error):
                    _exit.park_if_shut_down()
                    raise

    def leader(self) -> Leader | None:
        """Ask the nodes who leads. Return `None` if no quorum of them shows a leader.

        The answer may be out of date when it arrives. Takes as long as `Redlock.inspect`.

        Raises `LockUnavailable` or `LockForbidden` if too few nodes answer to know, and `LockClosed` if the client is
        closed.

        >>> import redlock
        >>> client = redlock.Redlock("memory://who", label="worker 7")
        >>> election = client.election("scheduler")
        >>> print(election.leader())
        None
        >>> election.run(lambda lock: election.leader().label)
        'worker 7'
        """
        (view,) = cast("list[LockView]", _result(self._template._view()))  # noqa: SLF001 - it is for this
        return leader_of(view)


# gevent and eventlet put their own function in its place.
_select = select.select if select.select.__module__ == "select" else None


@takes(ClientOptions)
class Redlock(OnlyWith, _native.Client):
    """A client for one set of nodes: one server, or several independent ones of which a quorum must agree.

    `nodes` is an address or a sequence of 1 to 15; left out, they come from `REDLOCK_URLS` or are
    `redis://127.0.0.1:6379`. Options become the defaults of its locks. Nothing is sent before the first call on a lock.
    It may be used from any thread. Leaving its `with` block closes it.

    A client of redis-py, or its pool of connections, can stand for an address: the server, the login and the options of
    TLS are read from it, also those of a `RedisCluster` and of `Sentinel.master_for`. This client opens its own
    connections. What would change them and cannot be carried over is refused.

    Logins that end, such as the tokens of a cloud, come from the option `credentials`: a function that returns the
    user, the password and the seconds for which servers accept them.

    Raises `LockInvalidArgument` for a wrong or unknown part of an address, a duplicate, or a wrong option.

    >>> import redlock
    >>> with redlock.Redlock(["memory://a", "memory://b", "memory://c"], ttl=5) as client:
    ...     with client.lock("job") as lock:
    ...         lock.remaining > 4
    True
    """

    @takes(NameOptions)
    def lock(self, name: Name, **options: Unpack[NameOptions]) -> Lock:
        """Make a lock by name. Sends nothing. `redlock.lock` lists the options.

        A name is 1 to 512 bytes, of UTF-8 if given as a str; the key on the servers is the name, unchanged, after the
        client's `key_prefix`. Names that begin with `redlock:fence:`, `redlock:waiters:`, `redlock:slot:` or
        `redlock:shared:` are reserved.

        Raises `LockInvalidArgument` for a wrong name or option.

        >>> import redlock
        >>> client = redlock.Redlock("memory://names")
        >>> client.lock(b"job").name
        b'job'
        """
        return self._make(name, options)

    @takes(Options)
    def lock_all(self, names: Names, **options: Unpack[Options]) -> Lock:
        """Make a lock of several names. Sends nothing.

        It holds all names or none, and excludes every lock of each name. While it waits, it holds none of them, so two
        such locks cannot cause a deadlock, but a large set that others want parts of may wait for long. It is acquired,
        released and lost as a whole, with one fence for all names.

        `names` are 1 to 16 names as `lock` takes them, in any order. Repeated ones count once, and one name is an
        ordinary lock. On a Redis Cluster, all have to be in one slot: give them the same hash tag, as in `{17}:from`.

        Raises `LockInvalidArgument` for wrong names or a wrong option, such as `at_least` or `protocol="setnx"`.

        >>> import redlock
        >>> client = redlock.Redlock("memory://several")
        >>> with client.lock_all(["account:bob", "account:ada"], timeout=5) as lock:
        ...     lock.names, client.lock("account:ada").locked()
        (('account:ada', 'account:bob'), True)
        """
        return self._make(_native.Shape.several(names), options)

    @takes(Options)
    def semaphore(self, name: Name, permits: int, **options: Unpack[Options]) -> Lock:
        """Make a lock that up to `permits` can hold at once. Sends nothing.

        Each holder has a slot of its own, `Lock.slot`, from 0 to `permits` - 1. Its fence is larger than every earlier
        fence of that slot. `permits` is 1 to 1000. It is stored nowhere, so it can change in a rolling deployment:
        while callers differ, at most the largest number of them hold. Waiters have no order, and this is not a rate
        limit. A lock of the same name has nothing to do with it.

        Raises `LockInvalidArgument` for a wrong name, number of permits or option, and with `protocol="setnx"`.

        >>> import redlock
        >>> client = redlock.Redlock("memory://semaphore", timeout=0)
        >>> first, second = client.semaphore("reports", 2), client.semaphore("reports", 2)
        >>> with first, second:
        ...     sorted([first.slot, second.slot]), client.semaphore("reports", 2).acquire()
        ([0, 1], False)
        """
        return self._make(_native.Shape.semaphore(name, permits), options)

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
        """Make a decorator: each call of the function runs under a fresh lock. Sends nothing.

        `name` is a template: `"order:{order_id}"` takes the name from the parameter `order_id` of the function, and
        `"{order.id:06}"` from an attribute, formatted as `str.format` does. Write `{{` and `}}` for braces in the name
        itself. It can also be a function that makes the name: it gets the arguments of the call by the names of its own
        parameters, with their defaults. Several names, or templates, make a lock of all of them, as `lock_all` does.
        With `permits`, so many calls may run at once, as with `semaphore`.

        With `skip_if_held`, a call returns `redlock.SKIPPED`, which is false, and does not run the function if others
        hold the lock. It tries once, unless `timeout` says how long to wait. With `pass_lock`, the function gets the
        lock: in the parameter that is annotated with its class, or else is called `lock`, or else in the first one
        after `self` and `cls`. An annotation that cannot be evaluated, because only type checkers import its names,
        counts if it ends in `Lock`. Callers do not pass the lock. Type checkers know one that is the first or second
        parameter.

        Raises `LockInvalidArgument` for a wrong name or option. Decorating raises it for a name from a parameter that
        the function does not have, and `TypeError` for a generator, a coroutine function, and one that cannot take the
        lock, or whose annotations leave open where. The call raises the `TypeError` for a generator or coroutine
        function behind another decorator.

        >>> import redlock
        >>> client = redlock.Redlock("memory://locked")
        >>> @client.locked("user:{user}", pass_lock=True)
        ... def pay(lock: redlock.Lock, user: str, amount: int = 1) -> tuple[object, int]:
        ...     return lock.name, amount
        >>> pay("ada", amount=5)
        ('user:ada', 5)
        >>> @client.locked(lambda amount, user: f"{user}:{amount}", skip_if_held=True)
        ... def refund(user: str, amount: int = 1) -> str:
        ...     return "done"
        >>> with client.lock("ada:1"):
        ...     refund("ada"), refund("ada", 2)
        (redlock.SKIPPED, 'done')
        """
        return Decorator(lambda: self, name, permits, options, skips=skip_if_held, passes=pass_lock)

    def attach(self, text: str, *, ttl: Duration | None = None, timeout: Duration | None = OWN) -> Lock:
        """Go on with the hold that `Lock.detach` has ended with this text. Return the lock, which is held.

        It has the same names, fence and slot, and is renewed again. Of several calls with one text, one gets the lock
        at most, and a former holder that still runs finds that the lock is not its own any more. A `with` block
        releases it. If it is lost before its first block, that block raises `LockLost` and is not entered.

        `ttl` is that of renewals from now on; by default as before. `timeout` in seconds is how long to try while no
        quorum answers: zero tries once; by default that of the client, and 10 s without one. `max_hold`, `at_least`,
        `margin` and `label` are in the text. The times since the acquire are compared by the clocks of both machines.

        This client has the same nodes as the one that acquired the lock, and the same `key_prefix`.

        Raises `LockLost` if a quorum shows that the lock is over, or is somebody else's: it has expired, was attached
        before, or was deleted. Raises `LockUnavailable` if no quorum answered in time: the text can be attached again.
        `LockForbidden` is as in `Lock.acquire`. Raises `LockInvalidArgument` (its `option` is `text`) if the text was
        changed or is something else, and for a wrong ttl or timeout.

        If the call is interrupted, the text can be attached again.

        >>> import redlock
        >>> client = redlock.Redlock("memory://attach")
        >>> lock = client.semaphore("seats", 3)
        >>> lock.acquire()
        True
        >>> text, slot = lock.detach(), lock.slot
        >>> lock.held
        False
        >>> with client.attach(text, timeout=5) as lock:
        ...     lock.held, lock.slot in range(3)
        (True, True)
        """
        lock = self._make(_native.Shape.detached(text), attaching(ttl, timeout))
        lock.acquire()
        return lock

    def _make(self, given: Name | _native.Shape, options: Options) -> Lock:
        if select.select is not _select:
            from redlock import _cooperative  # noqa: PLC0415 - only such programs need it

            return _cooperative.Lock(self, given, **options)
        return Lock(self, given, **options)

    @takes(ElectionOptions)
    def election(self, name: Name, **options: Unpack[ElectionOptions]) -> Election:
        """Make a candidate of the election with this name; see `Election`. Sends nothing.

        The name is that of a lock, which the leader holds; see `lock`.

        Raises `LockInvalidArgument` for a wrong name or option.

        >>> import redlock
        >>> election = redlock.Redlock("memory://candidate").election("scheduler", ttl=5, label="worker 7")
        >>> election.run(lambda lock: election.leader().label)
        'worker 7'
        """
        return Election(self, name, **options)

    def inspect(self, name: str | bytes) -> LockView:
        """Show whose lock `name` is, and what every node has under it. Changes nothing.

        The view says since when and for how long it is held, on how many nodes, and how many wait.
        Takes at most the client's `connect_timeout` where connections have to be made, and its `node_timeout`.

        Raises `LockInvalidArgument` for a wrong name. A node that cannot be asked is part of the answer.

        >>> import redlock
        >>> client = redlock.Redlock("memory://look", label="worker 7")
        >>> with client.lock("job"):
        ...     view = client.inspect("job")
        ...     view.state, view.label, view.holders
        ('held', 'worker 7', 1)
        """
        (view,) = cast("list[LockView]", _result(self._inspect(name)))
        return view

    def inspect_semaphore(self, name: str | bytes, permits: int) -> list[LockView]:
        """Show whose each slot of a semaphore is, in order: as `inspect` does for a lock. Changes nothing.

        Takes as long as `inspect` for each 64 permits.

        Raises `LockInvalidArgument` for a wrong name or number of permits. A node that cannot be asked is part of the
        answer.

        >>> import redlock
        >>> client = redlock.Redlock("memory://slots")
        >>> with client.semaphore("reports", 3) as lock:
        ...     [view.slot for view in client.inspect_semaphore("reports", 3) if view.state == "held"] == [lock.slot]
        True
        """
        return cast("list[LockView]", _result(self._inspect_semaphore(name, permits)))

    def list_locks(self, pattern: str | bytes = "*") -> Iterator[LockView]:
        """List the locks that are held, shared, or of another library, whose names match a pattern.

        The pattern has the rules of `KEYS` in Redis: `*`, `?`, `[a-z]`, `[^a-z]` and a backslash. Returns an iterator
        over them in no order, with each slot of a semaphore that is not free, and each of them once. Sends nothing
        before the first is asked for, and changes nothing.

        For an operator: it walks through all keys of every server, about 10,000 a second, for the fences that the nodes
        remember, and inspects each name. It goes only as far as the caller does, so that it never has all names in
        memory. A lock of another library is listed only if this one has used its name. A lock that is acquired or
        released meanwhile may be missed, and in a cluster one whose slot moves.

        The iterator raises `LockForbidden` without the right to `SCAN`, and at the end `LockUnavailable`, if so many
        servers could not be walked through that a lock may be missing; `LockClosed` if the client is closed.

        >>> import redlock
        >>> client = redlock.Redlock("memory://list", label="worker 7")
        >>> with client.lock("night:backup"), client.lock("day"):
        ...     [(view.name, view.label) for view in client.list_locks("night:*")]
        [('night:backup', 'worker 7')]
        """
        return _listed(_native.Listing(self, pattern))

    def wait_free(self, name: str | bytes, timeout: Duration | None = None) -> bool:
        """Wait until a lock is free, without taking it; without `timeout` for ever, and with zero for one look.

        Returns whether it was seen free before the end of the timeout. No polling: the nodes report a release.

        For work that one caller does and others only need, such as filling a cache: who does not get the lock waits,
        and then uses what is there. Somebody else may have the lock a moment later, so this says nothing about who may
        work. A lock that others wait to acquire may pass from one to the next without being seen free.

        Raises `LockUnavailable` or `LockForbidden` if too few nodes answer to know, at first or for 10 s later on,
        without the time for which nodes have no vote after a restart; `LockInvalidArgument` for a wrong name, and with
        `protocol="setnx"`; `LockClosed` if the client is closed.

        >>> import redlock
        >>> client = redlock.Redlock("memory://free")
        >>> with client.lock("page"):
        ...     client.wait_free("page", timeout=0.1)
        False
        >>> client.wait_free("page")
        True
        """
        return _result(self._wait_free(name, timeout)) == "free"

    def break_lock(self, name: str | bytes, slot: int | None = None) -> LockView | None:
        """Delete a lock that somebody else holds, or with `slot` this one of a semaphore.

        Returns whose it was, or `None` if it was free, or has changed hands meanwhile: a new holder keeps it. The fence
        stays, so that the next holder's is larger, and waiters are woken.

        For an operator: the former holder learns of it at its next renewal, within a third of its ttl, as a loss with
        the reason `deleted`, or `taken` if another one holds the lock by then. It may still be at work until then. A
        shared lock is not deleted. To release a lock of its own, a program uses `release`.

        Raises `LockUnavailable` or `LockForbidden` if no quorum of nodes confirms it, and `LockInvalidArgument` for a
        wrong name or slot, for a shared lock, and for a key that is not a lock.

        >>> import redlock
        >>> client = redlock.Redlock("memory://break", label="worker 7")
        >>> held = client.lock("job")
        >>> held.acquire()
        True
        >>> client.break_lock("job").label
        'worker 7'
        >>> client.break_lock("job") is None
        True
        >>> client.close()
        """
        views = cast("list[LockView]", _result(self._break_lock(name, slot)))
        return views[0] if views else None

    def diagnose(self) -> list[Diagnosis]:
        """Find out what each node can do, what this user may do there, and what may lose locks.

        For each node in the order of the nodes: reachable, encrypted, role, version, optional commands, rights,
        eviction, persistence, replicas, free connections, clock, and addresses that lead to the same server. Where
        sentinels name the node's primary, also which of them answer, and whether locks outlive a failover. Each server
        with slots of a cluster is diagnosed, also slots that cannot be locked, and whether locks outlive a failover.

        For an operator: it asks more than locks do, on connections of its own, and writes keys that begin with
        `redlock:diagnose:` (after the client's `key_prefix`) and expire after 10 s. Takes at most five times the
        client's `connect_timeout`.

        Raises `LockClosed` if the client is closed. A node that cannot be asked is part of the answer.

        >>> import redlock
        >>> redlock.Redlock("memory://diagnose").diagnose()[0].level
        'ok'
        """
        return cast("list[Diagnosis]", _result(self._diagnose()))

    def close(self, limit: Duration = 0.5) -> None:
        """Close the client and release the locks that were acquired with it.

        Acquires that wait, and new ones, raise `LockClosed`. Other clients live on. From the call on, none of its locks
        is held. It waits up to `limit`, in seconds, for the nodes to answer; the background goes on with what they have
        not answered by then, and such a lock expires after its ttl at the latest.

        Raises `LockInvalidArgument` for a wrong limit.

        >>> import redlock
        >>> client = redlock.Redlock("memory://closing")
        >>> lock = client.lock("report")
        >>> lock.acquire()
        True
        >>> client.close()
        >>> lock.held
        False
        """
        _result(self._close(limit))
        # Its provider, too.
        self._close_now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listed(listing: _native.Listing) -> Iterator[LockView]:
    while views := cast("list[LockView]", _result(listing.page())):
        yield from views


def _result(call: _native.Call) -> Result:
    """Make a call, and return its result."""
    if select.select is _select:
        return call.drive()
    from redlock import _cooperative  # noqa: PLC0415 - only such programs need it

    return _cooperative.result(call)
