"""What can go wrong: one class for each code, all below `RedlockError`.

The codes and their meanings are the same in Rust, Python and Node. Messages say what happened, on which node, and what
to do next. They never show a token or a password.
"""

from typing import Any, ClassVar, Literal, TypeAlias

__all__ = [
    "LockAlreadyHeld",
    "LockClosed",
    "LockForbidden",
    "LockInternal",
    "LockInvalidArgument",
    "LockLost",
    "LockNotHeld",
    "LockTimeout",
    "LockUnavailable",
    "LostReason",
    "RedlockError",
]

# One union rather than one literal: stubtest takes no other alias for equal.
LostReason: TypeAlias = (
    Literal["expired"] | Literal["taken"] | Literal["unreachable"] | Literal["max_hold"] | Literal["deleted"]  # noqa: PYI030
)
"""Why a held lock was lost; see `LockLost.reason`."""


class RedlockError(Exception):
    """A call of this package failed.

    `str(error)` reads as one sentence for the person on call: what happened, the lock's name, each node's answer and
    what to do next.

    >>> import redlock
    >>> try:
    ...     redlock.Redlock("redis://localhost/?timeout=5")
    ... except redlock.RedlockError as error:
    ...     print(error.code, error.retryable)
    invalid_argument False
    """

    code: ClassVar[str] = "error"
    """The stable code of the class."""

    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later without a change to the program or its rights."""

    name: str | None
    """The lock's name, with invalid UTF-8 replaced; `None` if the error is not about one lock."""

    nodes: tuple[tuple[str, str], ...]
    """What each node answered in the last round, as pairs of node and answer, in the order the nodes were given in."""

    def __init__(self, message: str = "", name: str | None = None, nodes: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.name = name
        self.nodes = tuple((node, answer) for node, answer in nodes)
        # They make the same error again, also in Celery, which sends them as JSON.
        self.args = message, name, self.nodes

    def __str__(self) -> str:
        return str(*self.args[:1])


class LockTimeout(RedlockError, TimeoutError):  # noqa: N818 - the name is the same in every language
    """Others held the lock until the timeout. Try again later, or wait longer.

    >>> import redlock
    >>> client = redlock.Redlock("memory://holder", label="worker 7")
    >>> with client.lock("job"):
    ...     try:
    ...         client.lock("job", timeout=0).__enter__()
    ...     except redlock.LockTimeout as error:
    ...         print(error.holder_label, error.held_by_this_process)
    worker 7 True
    """

    code = "timeout"
    retryable = True

    holder_label: str | None
    """The label of the holder; `None` if it has none. All three are what the last look at the nodes has shown."""

    holder_ttl_left: float | None
    """Seconds for which the holder's key lasts without another renewal; `None` if that is not known."""

    held_by_this_process: bool
    """Whether this process holds the lock itself."""

    def __init__(  # noqa: PLR0913, PLR0917 - each is a part of the message too
        self,
        message: str = "",
        name: str | None = None,
        nodes: tuple[tuple[str, str], ...] = (),
        holder_label: str | None = None,
        holder_ttl_left: float | None = None,
        held_by_this_process: bool = False,
    ) -> None:
        super().__init__(message, name, nodes)
        self.holder_label = holder_label
        self.holder_ttl_left = holder_ttl_left
        self.held_by_this_process = held_by_this_process
        self.args += holder_label, holder_ttl_left, held_by_this_process


class LockUnavailable(RedlockError, ConnectionError):  # noqa: N818
    """No quorum of nodes could be asked or answered. Whether the lock is free is unknown."""

    code = "unavailable"
    retryable = True


class LockForbidden(RedlockError, PermissionError):  # noqa: N818
    """Nodes that refuse these credentials or rights rule out a quorum."""

    code = "forbidden"


class LockLost(RedlockError):  # noqa: N818
    """The lock was held and is lost; `LockLost.reason` says why."""

    code = "lost"

    reason: LostReason
    """`expired`: its validity ended and nothing else explains why. `taken`: a quorum showed another owner.
    `unreachable`: no quorum answered the renewals. `max_hold`: it reached `max_hold`. `deleted`: its keys were deleted
    before they expired."""

    def __init__(
        self,
        message: str = "",
        name: str | None = None,
        nodes: tuple[tuple[str, str], ...] = (),
        reason: LostReason = "expired",
    ) -> None:
        super().__init__(message, name, nodes)
        self.reason = reason
        self.args += (reason,)


class LockNotHeld(RedlockError, RuntimeError):  # noqa: N818
    """The lock is not held, so it cannot be extended, checked or released."""

    code = "not_held"


class LockAlreadyHeld(RedlockError, RuntimeError):  # noqa: N818
    """The lock object already holds the lock, is acquiring it, or lost it in a block that has not ended.

    Make a lock for each use.
    """

    code = "already_held"


class LockClosed(RedlockError, RuntimeError):  # noqa: N818
    """The client is closed, or was closed while the lock was held: others may have had the lock since then."""

    code = "closed"


class LockInternal(RedlockError, RuntimeError):  # noqa: N818
    """A bug in redlock; please report it. What the call acquired was released."""

    code = "internal"


class LockInvalidArgument(RedlockError, ValueError):  # noqa: N818
    """An option, a name or an address is wrong. Nothing was sent.

    >>> import redlock
    >>> try:
    ...     redlock.lock("job", ttl=0)
    ... except redlock.LockInvalidArgument as error:
    ...     print(error.option)
    ttl
    """

    code = "invalid_argument"

    option: str | None
    """The option or argument that is wrong, such as `ttl`; `None` if the error is not about one."""

    def __init__(
        self,
        message: str = "",
        name: str | None = None,
        nodes: tuple[tuple[str, str], ...] = (),
        option: str | None = None,
    ) -> None:
        super().__init__(message, name, nodes)
        self.option = option
        self.args += (option,)


_CLASSES: dict[str, type[RedlockError]] = {error.code: error for error in RedlockError.__subclasses__()}


def of_code(code: str, message: str, **details: Any) -> RedlockError:  # noqa: ANN401 - each class has its own
    """Make the exception for an error of the engine, which calls this."""
    return _CLASSES.get(code, RedlockError)(message, **details)
