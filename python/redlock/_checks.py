"""What of a program's calls is checked here: functions, blocks, a doubtful ttl, a thread that must not block."""

import contextlib
import functools
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from redlock.diagnosis import Diagnosis
from redlock.inspection import LockView

F = TypeVar("F")
R = TypeVar("R")

Result: TypeAlias = list[LockView] | list[Diagnosis] | str | bool


def only(given: tuple[F, ...], others: Mapping[str, object]) -> F:
    """Return the function that a decorator was given."""
    # Called directly, `callable` makes mypy invent a type, which stubtest then misses.
    if len(given) != 1 or others or not (all(map(callable, given)) or hasattr(given[0], "__get__")):
        raise TypeError(
            "locked(name) decorates one function; if it is a call of a function under a bare @redlock.locked, write "
            '@redlock.locked("name")'
        )
    return given[0]


def plain(function: object, taker: str) -> None:
    """Refuse a function whose body does not run during the call."""
    _callable(function, taker)
    if inspect.iscoroutinefunction(_body(function)):
        raise _coroutine_function(function, taker)
    _no_generator(function, taker)


def hears_loss(callback: Callable[..., object]) -> None:
    """Refuse what cannot be called with a loss when it is set: at the loss, nobody would hear of it."""
    plain(callback, "on_lost")
    signature = signature_of(callback)
    try:
        if signature is not None:
            signature.bind(None)
    except TypeError as error:
        raise TypeError(
            f"on_lost calls {named(callback)} with one argument, the loss ({error}); wrap it in a `lambda loss:`"
        ) from None


_ANNOTATIONS: dict[str, Any] = {}
"""How they are read: since Python 3.14, names that only type checkers import are left as they are."""

if sys.version_info >= (3, 14):
    import annotationlib

    _ANNOTATIONS["annotation_format"] = annotationlib.Format.FORWARDREF


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """Return the signature of a function. Some that are written in C do not have one."""
    try:
        return inspect.signature(function, **_ANNOTATIONS)
    except (TypeError, ValueError):
        return None


_LATE: tuple[type, ...] = (
    types.CoroutineType,
    types.GeneratorType,
    types.AsyncGeneratorType,
    contextlib._GeneratorContextManager,  # noqa: SLF001 - the public class is abstract
    contextlib._AsyncGeneratorContextManager,  # noqa: SLF001
)
"""The classes of bodies that run after the call."""


def ran(function: Callable[..., object], returned: R, taker: str) -> R:
    """Return what a call has returned. Refuse a body that another decorator hid from `plain`."""
    # `isinstance` is slow for abstract classes, and these have no subclasses.
    if type(returned) in _LATE:
        _not_late(function, returned, taker)
    return returned


def _not_late(function: Callable[..., object], returned: object, taker: str) -> None:
    if isinstance(returned, types.CoroutineType):
        returned.close()
        raise _coroutine_function(function, taker)
    generator = getattr(returned, "gen", returned)
    code = getattr(generator, "gi_code", None) or getattr(generator, "ag_code", None)
    # A body that has run may return the generator of another function.
    if code is getattr(inspect.unwrap(function), "__code__", None):
        raise _generator(function, taker)


def _coroutine_function(function: object, taker: str) -> TypeError:
    return TypeError(f"{named(function)} is a coroutine function, but {taker} takes plain functions")


def _generator(function: object, taker: str) -> TypeError:
    return TypeError(
        f"{named(function)} is a generator, and its body would run too late for {taker}; "
        "enter the block of a lock inside of it"
    )


def coroutine(function: object, taker: str, does: str = "decorates") -> None:
    """Refuse anything but a coroutine function."""
    _callable(function, taker)
    _no_generator(function, taker)
    if not inspect.iscoroutinefunction(_body(function)):
        raise TypeError(f"{named(function)} is not a coroutine function; {taker} {does} only coroutine functions")


def _callable(function: Any, taker: str) -> None:  # noqa: ANN401 - `object` would be narrowed to a type without a name
    kind = type(function).__name__
    if kind in {"classmethod", "staticmethod", "property"}:
        raise TypeError(f"write @{kind} above the decorator of the lock: a {kind} is not a function")
    if not callable(function):
        raise TypeError(f"a {type(function).__qualname__} cannot be called, but {taker} takes functions")


def _no_generator(function: object, taker: str) -> None:
    body = _body(function)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise _generator(function, taker)


def _body(function: object) -> object:
    """Find the function that runs when an object with `__call__` is called."""
    if isinstance(function, functools.partial):
        return _body(function.func)
    if inspect.isroutine(function) or inspect.iscoroutinefunction(function):
        return function
    return getattr(type(function), "__call__", function)  # noqa: B004 - whether it can be called is known


def warn_in_loop() -> None:
    """Warn of a call that waits on the thread of a running event loop, where the program made it."""
    try:
        # A program without asyncio does not import it for this. Another thread may be importing it just now.
        sys.modules["asyncio"].get_running_loop()
    except (KeyError, AttributeError, RuntimeError):
        return
    _warn(_BLOCKS_LOOP, RuntimeWarning)


def _warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the program from which this package was called."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in {"redlock", "contextlib"}:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)


_BLOCKS_LOOP = (
    "this call waits for a lock, and the event loop of its thread stands still meanwhile, with the tasks that may hold "
    "the lock; use redlock.asyncio there"
)


def named(function: object) -> str:
    """Return the name of a function, or of the class of an object that can be called."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


_doubted = False


def doubt_ttl(ttl: float) -> None:
    """Warn of a number that may be meant as milliseconds, once, where the program gave it. The native half calls it."""
    global _doubted  # noqa: PLW0603
    if _doubted:
        return
    _doubted = True
    message = (
        f"ttl={ttl:g} is {ttl:g} s (over {int(ttl // 3600)} h): durations are seconds, not milliseconds; "
        "give a timedelta if it is meant so"
    )
    _warn(message, UserWarning)


class OnlyWith:
    """What blocks is entered with `with`. Type checkers know, and others get a sentence."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            raise TypeError(f"write `with`, not `async with`: this {type(self).__name__} blocks; {_FOR_ASYNCIO}")

        # `async with` looks it up before it enters. `None` says that there is none, so this is not an
        # `AbstractAsyncContextManager`.
        __aexit__ = None


class OnlyAsyncWith:
    """What is awaited is entered with `async with`. Type checkers know, and others get a sentence."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError(f"write `async with`, not `with`: this {type(self).__name__} is of redlock.asyncio")

        # As `OnlyWith.__aexit__`.
        __exit__ = None


_FOR_ASYNCIO = "redlock.asyncio has one for coroutines"
