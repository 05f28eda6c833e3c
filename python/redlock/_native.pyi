"""The engine, only for the modules of this package."""

from collections.abc import Iterable, Sequence
from types import EllipsisType, TracebackType
from typing import Literal, Never, NoReturn, Self, SupportsIndex, Unpack, final

from typing_extensions import disjoint_base

from redlock._checks import Result
from redlock.errors import LockLost, LostReason
from redlock.options import ClientOptions, Credentials, Duration, NameOptions, Nodes

__all__ = [
    "Call",
    "Client",
    "CredentialsThread",
    "Events",
    "Handle",
    "Listing",
    "Lock",
    "MemoryServer",
    "Queue",
    "Shape",
    "__version__",
    "begin_with_next_call",
    "command_line",
    "count_by_name",
    "lose",
    "shutdown",
    "stats",
]

__version__: str

def begin_with_next_call() -> None: ...
def command_line(arguments: Sequence[str]) -> NoReturn: ...
def shutdown() -> None: ...
def stats() -> tuple[
    list[
        tuple[
            str,
            Literal["counter", "gauge", "histogram"],
            str,
            list[tuple[dict[str, str], float | tuple[int, float, tuple[tuple[float, int], ...]]]],
        ]
    ],
    str,
]: ...
def count_by_name(most: int) -> None: ...

@disjoint_base
class Client:
    def __new__(cls, nodes: Nodes = None, **options: Unpack[ClientOptions]) -> Self: ...
    def _inspect(self, name: str | bytes) -> Call: ...
    def _inspect_semaphore(self, name: str | bytes, permits: int) -> Call: ...
    def _wait_free(self, name: str | bytes, timeout: Duration | None) -> Call: ...
    def _break_lock(self, name: str | bytes, slot: int | None) -> Call: ...
    def _diagnose(self) -> Call: ...
    def _close(self, limit: Duration) -> Call: ...
    def _close_now(self) -> None: ...
    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn: ...

@final
class Listing:
    def __new__(cls, client: Client, pattern: str | bytes) -> Self: ...
    def page(self) -> Call: ...

@final
class Call:
    def drive(self) -> Result: ...

@final
class Shape:
    @staticmethod
    def several(names: Iterable[str | bytes]) -> Shape: ...
    @staticmethod
    def semaphore(name: str | bytes, permits: int) -> Shape: ...
    @staticmethod
    def term(name: str | bytes) -> Shape: ...
    @staticmethod
    def detached(text: str) -> Shape: ...

@disjoint_base
class Handle:
    def __new__(
        cls, source: Client | Handle, name: str | bytes | Shape | None = None, /, **options: Unpack[NameOptions]
    ) -> Self: ...
    @property
    def name(self) -> str | bytes:
        """The name, as it was given. Several names are joined with ", "; see `names`."""

    @property
    def names(self) -> tuple[str | bytes, ...]:
        """All names, as they were given: sorted and each once. A lock that is not of several names has one."""

    @property
    def slot(self) -> int | None:
        """The slot that a semaphore holds, from 0 to its permits - 1. No other holder has the same.

        `None` before an acquire and after a release, but not for a lost lock, and for locks that are not semaphores.
        """

    @property
    def fence(self) -> int:
        """The fence, which is larger than every earlier fence of this name.

        Of several names, it is larger than every earlier fence of each. Of a semaphore, it is larger than those of the
        same slot. Send it to the resource with each access, and let the resource reject smaller fences.

        Raises `LockNotHeld` before an acquire and after a release, but not for a lost lock; `LockInvalidArgument` with
        `protocol="setnx"`, which has no fences.
        """

    @property
    def held(self) -> bool:
        """Whether the lock is held at this moment. Never raises."""

    @property
    def remaining(self) -> float:
        """Seconds for which the lock is still valid without another extension; 0.0 if it is not held."""

    @property
    def _waited(self) -> tuple[bool, int] | None: ...
    @property
    def _in_block(self) -> bool: ...
    def _view(self) -> Call: ...
    def check(self) -> None:
        """Raise an error unless the lock is held at this moment. The call sends nothing.

        Raises `LockLost` with its reason, or `LockNotHeld` before an acquire, after a release and in a forked child.
        """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn: ...

class Lock(Handle):
    def acquire(self, blocking: bool = True, timeout: Duration | None = ...) -> bool:
        """Acquire the lock, and wait for as long as others hold it.

        `timeout` in seconds overrides the lock's own timeout: zero tries once, `None` waits forever.
        `blocking=False` tries once, too. Returns `False` only if the time is over and others hold the lock (or, in a
        split vote, were acquiring it), or if it was too short for an answer of nodes that answer other calls.

        Raises `LockUnavailable` if no quorum of nodes could be asked or would answer until the timeout, or for 10 s if
        there is no timeout; `LockForbidden` if nodes that refuse the credentials rule out a quorum; `LockAlreadyHeld`
        if this object already holds the lock or is acquiring it; `LockInvalidArgument` for a wrong timeout.

        On the main thread, Ctrl-C ends the call within 50 ms and leaves no key behind.

        >>> import redlock
        >>> lock = redlock.lock("job")
        >>> lock.acquire(timeout=5)
        True
        >>> lock.release()
        """

    def extend(self, ttl: Duration | None = None) -> None:
        """Extend the lock, so that it lasts for `ttl` seconds from now.

        It never shortens the time that is left. Later renewals use `ttl`, too. Without `ttl`, the lock's ttl in force
        applies.

        Raises `LockLost` if the lock is lost, `LockNotHeld` if it was not acquired, `LockUnavailable` if no quorum
        answered (the lock stays valid for as long as `remaining` says), `LockInvalidArgument` for a wrong ttl and with
        `protocol="setnx"`.

        >>> import redlock
        >>> with redlock.lock("job", ttl=1) as lock:
        ...     lock.extend(60)
        ...     lock.remaining > 50
        True
        """

    def detach(self, ttl: Duration | None = None) -> str:
        """End this hold without a release, and return a text with which `Redlock.attach` goes on with it.

        That can be in another program, also in Rust or Node. Nobody renews the lock until then: the servers keep it for
        what is left of its ttl. With `ttl`, the lock is extended to so many seconds before, if that is longer. Later
        renewals use the ttl that they had. The fence stays the same, as does the time since it was acquired, for
        `max_hold` and `at_least`.

        The text is a credential: whoever has it can take the lock. It has neither addresses nor passwords. Leaving a
        `with` block after a detach does nothing.

        Raises `LockLost` if the lock is lost, `LockNotHeld` if it is not held, `LockUnavailable` if no quorum answered
        the extension (the lock is held as before), or if a node has not answered an acquire of a shared lock (it is
        held as before, or was released: see `held`), `LockInvalidArgument` for a wrong ttl, for the term of an
        election, and with `protocol="setnx"`.

        >>> import redlock
        >>> client = redlock.Redlock("memory://detach")
        >>> with client.lock("report:17") as lock:
        ...     fence = lock.fence
        ...     text = lock.detach(ttl=60)
        >>> with client.attach(text) as lock:
        ...     lock.name, lock.fence == fence
        ('report:17', True)
        """

    def release(self) -> None:
        """Release the lock. From the beginning of the call on it is not held, even if the call fails.

        A second release is not an error. Raises `LockNotHeld` if the lock was never acquired, `LockLost` if it was lost
        before, `LockClosed` if its client was closed meanwhile, and `LockUnavailable` if no quorum confirmed the
        release. In the last case, and after Ctrl-C, the background continues the release until it succeeds or the
        ttl has passed.
        """

    def locked(self) -> bool:
        """Ask the nodes whether anybody holds the lock, this program included.

        It is locked if an acquire would have to wait now, also because of a key of another library or of an attempt. A
        lock of several names is locked if anybody holds one of them, a semaphore if all its slots are held. The answer
        may be out of date when it arrives, so it is for people and dashboards. To acquire a free lock, call
        `acquire(blocking=False)`.

        Raises `LockUnavailable` or `LockForbidden` if too few nodes answer to know, and `LockInvalidArgument` with
        `protocol="setnx"`, whose keys may be out of date.

        >>> import redlock
        >>> with redlock.lock("job"):
        ...     redlock.lock("job").locked()
        True
        """

    def wait_lost(self, timeout: Duration | None = None) -> LockLost | None:
        """Wait until the lock is lost, but for at most `timeout` seconds. Return the loss, or `None`.

        The result is `None` if the time is over, and if the lock is released meanwhile. Without `timeout` there is no
        limit. A loss that happened before the call is returned at once, until the lock is released or acquired again.

        Raises `LockNotHeld` before an acquire, after a release and in a forked child.

        >>> import redlock
        >>> with redlock.lock("job") as lock:
        ...     lock.wait_lost(timeout=0.01) is None
        True
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class Queue:
    def __new__(cls, *, watches: bool = False) -> Self: ...
    def fileno(self) -> int: ...
    def sockets(self) -> int | None: ...
    def begin_to_watch(self) -> None: ...
    def turn(self) -> bool: ...
    def is_foreign(self) -> bool: ...
    def acquire(
        self, handle: Handle, blocking: bool = True, timeout: Duration | EllipsisType | None = ..., **others: Never
    ) -> int: ...
    def enter(self, handle: Handle) -> int: ...
    def extend(self, handle: Handle, ttl: Duration | None = None) -> int: ...
    def detach(self, handle: Handle, ttl: Duration | None = None) -> int: ...
    def release(self, handle: Handle) -> int: ...
    def leave(self, handle: Handle) -> int: ...
    def start(self, call: Call) -> int: ...
    def locked(self, handle: Handle) -> int: ...
    def wait_lost(self, handle: Handle, timeout: Duration | None = None) -> int: ...
    def watch(self, handle: Handle) -> int: ...
    def cancel(self, number: int) -> None: ...
    def wake(self) -> None: ...
    def drain(self) -> list[int]: ...
    def take(self, number: int) -> Result | None: ...
    def take_call(self, number: int) -> Result: ...

@final
class CredentialsThread:
    def take(self) -> Credentials | None: ...
    def stand_by(self) -> CredentialsThread | None: ...
    def answer(self, returned: object) -> None: ...
    def fail(self, exception: BaseException) -> None: ...

@final
class Events:
    def __new__(cls) -> Self: ...
    def fileno(self) -> int: ...
    def is_foreign(self) -> bool: ...
    def is_pending(self) -> bool: ...
    def take(self) -> tuple[list[tuple[str, str, int, float, str, dict[str, str]]], int]: ...

@final
class MemoryServer:
    """A server inside this process that does what a test says. Each is new and empty, so tests do not meet.

    Its keys stay while it or a client of it exists. Names here are whole keys, with the client's `key_prefix` if it has
    one.

    >>> import redlock
    >>> from redlock.testing import MemoryServer
    >>> server = MemoryServer()
    >>> lock = redlock.Redlock(server.url).lock("job", timeout=0)
    >>> server.hold("job", ttl=30)
    >>> lock.acquire()
    False
    >>> server.advance(30)
    >>> lock.acquire()
    True
    """

    def __new__(cls) -> Self: ...
    @property
    def url(self) -> str:
        """The address for a client: `memory://` and a name that no other server of this process has."""

    @property
    def available(self) -> bool:
        """Whether the server does what it is asked; `True` at first.

        While it is `False`, calls raise `LockUnavailable`, and held locks are lost at the end of their ttl.
        """

    @available.setter
    def available(self, available: bool) -> None: ...
    def hold(self, name: str | bytes, ttl: Duration | None = None) -> None:
        """Have somebody else hold the lock `name` from now on, whoever held it before.

        They hold it until `release`, or for `ttl` seconds; by default a day. A lock of this program that held the name
        finds out at its next renewal, and is lost with the reason `taken`.

        Raises `LockInvalidArgument` for a wrong name or ttl.
        """

    def release(self, name: str | bytes) -> None:
        """Have somebody else release the lock `name`; nothing, if they do not hold it.

        Raises `LockInvalidArgument` for a wrong name.
        """

    def wipe(self) -> None:
        """Delete every key, as a server does that restarts without persistence or is flushed.

        Held locks find out at their next renewal: they are put back, or lost with the reason `deleted`.
        """

    def advance(self, by: Duration) -> None:
        """Move the server's clock forward by seconds or a `timedelta`, at most a century in all.

        Keys whose time comes expire. The clock of this program stays, so its held locks find out at their next renewal.

        Raises `LockInvalidArgument` for a wrong duration.
        """

def lose(lock: Handle, reason: LostReason = "expired") -> None:
    """Have `lock` lose what it holds now, as if the background had found out: in a block, a callback, everywhere.

    `reason` is one of `LostReason`. The keys are deleted in the background. A lock that is lost already stays as it is.

    Raises `LockNotHeld` before an acquire and after a release, and `LockInvalidArgument` for an unknown reason.

    >>> import redlock
    >>> from redlock.testing import lose
    >>> lock = redlock.Redlock("memory://lose").lock("job")
    >>> lock.acquire()
    True
    >>> lose(lock, "taken")
    >>> lock.held
    False
    """
