"""Decorators whose calls run under a lock: the lock's name, and how the function gets the lock."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar

from redlock.options import Options

P = ParamSpec("P")
R = TypeVar("R")
L = TypeVar("L")
L_co = TypeVar("L_co", covariant=True)

Name: TypeAlias = str | bytes
Names: TypeAlias = Iterable[Name]
Task: TypeAlias = Coroutine[Any, Any, R]


NameOf: TypeAlias = Callable[..., Name]
NamesOf: TypeAlias = Callable[..., Names]


class Decorates(Protocol):
    """A decorator."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...


class Skips(Protocol):
    """A decorator whose calls return `None` if others hold the lock."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]: ...


class Passes(Protocol[L_co]):
    """A decorator that passes the lock first."""

    def __call__(self, function: Callable[Concatenate[L_co, P], R], /) -> Callable[P, R]: ...


class SkipsAndPasses(Protocol[L_co]):
    """A decorator that does both."""

    def __call__(self, function: Callable[Concatenate[L_co, P], R], /) -> Callable[P, R | None]: ...


class TaskDecorates(Protocol):
    """A decorator for coroutine functions."""

    def __call__(self, function: Callable[P, Task[R]], /) -> Callable[P, Task[R]]: ...


class TaskSkips(Protocol):
    """The same, whose calls return `None` if others hold the lock."""

    def __call__(self, function: Callable[P, Task[R]], /) -> Callable[P, Task[R | None]]: ...


class TaskPasses(Protocol[L_co]):
    """The same, which passes the lock first."""

    def __call__(self, function: Callable[Concatenate[L_co, P], Task[R]], /) -> Callable[P, Task[R]]: ...


class TaskSkipsAndPasses(Protocol[L_co]):
    """The same, which does both."""

    def __call__(self, function: Callable[Concatenate[L_co, P], Task[R]], /) -> Callable[P, Task[R | None]]: ...


class Plan(Generic[L]):
    """How each call of a decorated function gets its lock."""

    def __init__(  # noqa: PLR0913 - a plan is what a call of `lock` was given
        self,
        make: Callable[..., L],
        name: Name | NameOf | Names | NamesOf,
        *more: object,
        options: Options,
        skip_if_held: bool,
        pass_lock: bool,
        example: Name | Names = "name",
    ) -> None:
        """Check the options now, and not at the first call.

        `make` takes the name or names, `more` and the options. If a function makes the name, `example` stands for it.
        """
        if skip_if_held:
            options = {"timeout": 0, **options}
        self._make = make
        self._name = name
        self._more = more
        self._options = options
        self.skips = skip_if_held
        self.passes = pass_lock
        make(example if callable(name) else name, *more, **options)

    def lock(self, args: tuple[object, ...], kwargs: dict[str, Any]) -> L:
        """Make the lock of one call."""
        name = self._name(*args, **kwargs) if callable(self._name) else self._name
        return self._make(name, *self._more, **self._options)


EXAMPLES = "{name}:1", "{name}:2"
"""Two names that may be those of one lock, on a cluster too."""


class Place:
    """Where a function takes its lock; nowhere, unless it asks for it."""

    def __init__(self, function: Callable[..., object], kind: type, *, first: bool = False) -> None:
        """`kind` is the class of locks that an annotation asks for. With `first`, the lock is the first argument."""
        self._name: str | None = None
        self._position: int | None = 0 if first else None
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):
            # Some functions that are written in C do not have one.
            return
        parameters = list(self._signature.parameters.values())
        if first:
            if parameters and parameters[0].name in {"self", "cls"}:
                raise TypeError("pass_lock is not for methods; annotate a parameter with the class of the lock instead")
            return
        for position, parameter in enumerate(parameters):
            if _asks(_evaluated(parameter.annotation, function), kind):
                self._name, self._position = parameter.name, position
                if parameter.kind is parameter.KEYWORD_ONLY:
                    self._position = None
                return

    def call(self, function: Callable[..., R], lock: object, args: tuple[object, ...], kwargs: dict[str, Any]) -> R:
        """Call `function` with its lock. A lock that the caller passes by keyword stays."""
        name, position = self._name, self._position
        if (name is None and position is None) or name in kwargs:
            return function(*args, **kwargs)
        if position is not None and (name is None or len(args) >= position):
            return function(*args[:position], lock, *args[position:], **kwargs)
        return function(*args, **kwargs, **{str(name): lock})

    def wraps(self, function: Callable[..., object], wrapper: Callable[..., R]) -> Callable[..., R]:
        """Make `wrapper` look like `function` without the lock, for frameworks that read signatures."""
        functools.update_wrapper(wrapper, function)
        if self._name is not None or self._position is not None:
            parameters = list(self._signature.parameters.values())
            taken = self._name or (parameters[0].name if parameters else None)
            rest = [parameter for parameter in parameters if parameter.name != taken]
            wrapper.__signature__ = self._signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return wrapper


def _evaluated(annotation: object, function: Callable[..., object]) -> object:
    """Evaluate an annotation that is a text. Others may name what only type checkers import."""
    if not isinstance(annotation, str):
        return annotation
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return eval(annotation, names)  # noqa: S307 - this is the function's own code
    except Exception:  # noqa: BLE001 - whatever it raises, it does not ask for a lock
        return None


def _asks(annotation: object, kind: type) -> bool:
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return kind in typing.get_args(annotation)
    return annotation is kind


class NotALock:
    """A decorator that somebody may take for a lock."""

    __slots__ = ()

    if not typing.TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError(_NOT_A_LOCK)

        __aenter__ = __enter__

        def __exit__(self, *_: object) -> NoReturn:
            raise TypeError(_NOT_A_LOCK)

        __aexit__ = __exit__

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"{_NOT_A_LOCK}; it has no {name!r}")


_NOT_A_LOCK = "with skip_if_held, pass_lock or a function for the name, lock() makes a decorator and not a lock"
