"""The engine, for the modules of this package alone."""

from collections.abc import Sequence
from types import EllipsisType, TracebackType
from typing import NoReturn, Self, SupportsIndex, Unpack

from typing_extensions import disjoint_base

from redlock.inspection import NodeView
from redlock.options import ClientOptions, Duration, Options

__all__ = ["Client", "Handle", "Lock", "Queue", "__version__", "shutdown"]

__version__: str

def shutdown() -> None: ...

@disjoint_base
class Client:
    def __new__(cls, nodes: str | Sequence[str] | None = None, **options: Unpack[ClientOptions]) -> Self: ...
    def _views(self, name: str | bytes) -> list[NodeView]: ...
    def close(self) -> None:
        """End the client: acquiring its locks is `LockInvalidArgument` from now on, also in calls that wait.

        Held locks stay held.
        """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn: ...

@disjoint_base
class Handle:
    def __new__(
        cls, source: Client | Handle, name: str | bytes | None = None, /, **options: Unpack[Options]
    ) -> Self: ...
    @property
    def name(self) -> str | bytes:
        """The name, as it was given."""

    @property
    def fence(self) -> int:
        """The fence: larger than every one of this name before it. Send it along, and have smaller ones rejected.

        Raises `LockNotHeld` before an acquire and after a release, while a lost lock still tells it;
        `LockInvalidArgument` with `protocol="setnx"`, which has none.
        """

    @property
    def held(self) -> bool:
        """Whether the lock is held at this moment. Never raises."""

    @property
    def remaining(self) -> float:
        """Seconds for which the lock can be relied on without another extension; 0.0 when it is not held."""

    def check(self) -> None:
        """Raise unless the lock is held at this moment. Sends nothing.

        Raises `LockLost` with its reason, or `LockNotHeld` before an acquire, after a release and in a forked child.
        """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn: ...

class Lock(Handle):
    def acquire(self, blocking: bool = True, timeout: Duration | EllipsisType | None = ...) -> bool:
        """Acquire the lock, waiting for as long as others hold it.

        `timeout` in seconds overrides the lock's own: zero is one try, `None` waits for ever. `blocking=False` is one
        try too. Returns `False` only if the time is over and others hold the lock (or, in a split vote, were taking
        it).

        Raises `LockUnavailable` if no quorum of nodes could be asked or would answer until the timeout, or for 10 s
        where there is none; `LockForbidden` if nodes that refuse the credentials rule out a quorum; `LockAlreadyHeld`
        if this object holds it already, or is about to; `LockInvalidArgument` for a wrong timeout.

        Ctrl-C ends it within 50 ms on the main thread and leaves no key behind.

        >>> import redlock
        >>> lock = redlock.lock("job")
        >>> lock.acquire(timeout=5)
        True
        >>> lock.release()
        """

    def extend(self, ttl: Duration | None = None) -> None:
        """Let the lock last for `ttl` seconds from now, which is then the ttl of later renewals; left out, its ttl.

        Raises `LockLost` if the lock is lost, `LockNotHeld` if it was not acquired, `LockUnavailable` if no quorum
        answered (the lock stays valid for as long as `remaining` says), `LockInvalidArgument` for a wrong ttl and with
        `protocol="setnx"`.

        >>> import redlock
        >>> with redlock.lock("job", ttl=1) as lock:
        ...     lock.extend(60)
        ...     lock.remaining > 50
        True
        """

    def release(self) -> None:
        """Release the lock. Once this begins the lock is not held, whatever becomes of the call. Again is no error.

        Raises `LockNotHeld` if it was never acquired, `LockLost` if it was lost before, and `LockUnavailable` if no
        quorum confirmed it: the background goes on with it until it is released or its ttl has passed. So it does
        after Ctrl-C.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class Queue:
    def __new__(cls) -> Self: ...
    def fileno(self) -> int: ...
    def is_foreign(self) -> bool: ...
    def acquire(self, handle: Handle, blocking: bool = True, timeout: Duration | EllipsisType | None = ...) -> int: ...
    def extend(self, handle: Handle, ttl: Duration | None = None) -> int: ...
    def release(self, handle: Handle) -> int: ...
    def leave(self, handle: Handle) -> int: ...
    def inspect(self, client: Client, name: str | bytes) -> int: ...
    def watch(self, handle: Handle) -> int: ...
    def cancel(self, number: int) -> None: ...
    def drain(self) -> list[int]: ...
    def take(self, number: int) -> list[NodeView] | bool | None: ...
