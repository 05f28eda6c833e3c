"""Functions whose calls run under a lock: the types of `locked`, and how a function gets its lock."""

import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Coroutine
from typing import (
    Annotated,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Required,
    TypeAlias,
    TypeVar,
    Unpack,
    overload,
)

from redlock._checks import named, signature_of
from redlock._naming import Name, NameOf, Names, example, is_several, naming
from redlock.options import NameOptions, Options

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
L = TypeVar("L")
L_co = TypeVar("L_co", covariant=True)
X_co = TypeVar("X_co", covariant=True)
Runs_co = TypeVar("Runs_co", covariant=True)
Skips_co = TypeVar("Skips_co", covariant=True)
Passes_co = TypeVar("Passes_co", covariant=True)
Both_co = TypeVar("Both_co", covariant=True)

Task: TypeAlias = Coroutine[Any, Any, R]


class Skipped(enum.Enum):
    """The class of `SKIPPED`, which is its only value.

    >>> import redlock
    >>> @redlock.locked("cron:nightly", skip_if_held=True)
    ... def nightly() -> str:
    ...     return "done"
    >>> with redlock.lock("cron:nightly"):
    ...     nightly()
    redlock.SKIPPED
    >>> result = nightly()
    >>> "skipped" if result is redlock.SKIPPED else result
    'done'
    """

    # Where users find it, and where `pickle` does.
    __module__ = "redlock"

    SKIPPED = None

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "redlock.SKIPPED"

    def __json__(self) -> None:
        """Write it as null; Celery calls this for the result of a task."""


SKIPPED: Final = Skipped.SKIPPED
"""What a call returns if `skip_if_held` has skipped it, because others hold the lock. It is false, and unlike what a
function returns."""


class Decorates(Protocol[X_co]):
    """A decorator. The calls may return an `X_co` instead."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | X_co]: ...


class Passes(Protocol[L_co, X_co]):
    """A decorator that passes the lock first, or after one parameter, such as `self`."""

    @overload
    def __call__(self, function: Callable[Concatenate[L_co, P], R], /) -> Callable[P, R | X_co]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, L_co, P], R], /) -> Callable[Concatenate[S, P], R | X_co]: ...


class TaskDecorates(Protocol[X_co]):
    """A decorator for coroutine functions. The calls may return an `X_co` instead."""

    def __call__(self, function: Callable[P, Task[R]], /) -> Callable[P, Task[R | X_co]]: ...


class TaskPasses(Protocol[L_co, X_co]):
    """A decorator for coroutine functions that passes the lock first, or after one parameter, such as `self`."""

    @overload
    def __call__(self, function: Callable[Concatenate[L_co, P], Task[R]], /) -> Callable[P, Task[R | X_co]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, L_co, P], Task[R]], /
    ) -> Callable[Concatenate[S, P], Task[R | X_co]]: ...


class _Runs(NameOptions, total=False):
    permits: int | None
    skip_if_held: Literal[False]
    pass_lock: Literal[False]


class _Skips(NameOptions, total=False):
    permits: int | None
    skip_if_held: Required[bool]
    pass_lock: Literal[False]


class _Passes(NameOptions, total=False):
    permits: int | None
    skip_if_held: Literal[False]
    pass_lock: Required[Literal[True]]


class _Both(NameOptions, total=False):
    permits: int | None
    skip_if_held: Required[bool]
    pass_lock: Required[Literal[True]]


class Locked(Protocol[Runs_co, Skips_co, Passes_co, Both_co]):
    """The function `locked`, with the types of its decorators; see `redlock.locked` and `redlock.Redlock.locked`."""

    @overload
    def __call__(self, name: NameOf, **options: Unpack[_Runs]) -> Runs_co: ...
    @overload
    def __call__(self, name: NameOf, **options: Unpack[_Skips]) -> Skips_co: ...
    @overload
    def __call__(self, name: NameOf, **options: Unpack[_Passes]) -> Passes_co: ...
    @overload
    def __call__(self, name: NameOf, **options: Unpack[_Both]) -> Both_co: ...


class Makes(Protocol[L_co]):
    """A client that makes locks."""

    def lock(self, name: Name, **options: Unpack[NameOptions]) -> L_co: ...
    def lock_all(self, names: Names, **options: Unpack[Options]) -> L_co: ...
    def semaphore(self, name: Name, permits: int, **options: Unpack[Options]) -> L_co: ...


class Plan(Generic[L]):
    """How each call of a decorated function gets its lock."""

    def __init__(  # noqa: PLR0913 - a plan is what a call of `locked` was given
        self,
        client: Callable[[], Makes[L]],
        name: NameOf,
        permits: int | None,
        options: NameOptions,
        *,
        skips: bool,
        passes: bool,
    ) -> None:
        """Check the options now, and not at the first call. Each call asks for the `client`."""
        self._client = client
        self._permits = permits
        self._options = {"timeout": 0, **options} if skips else options
        # What can be iterated over once serves every call.
        self.name = tuple(name) if is_several(name) else name
        self.skips = skips
        self.passes = passes
        self.lock(example(self.name))

    def lock(self, name: object) -> L:
        """Make the lock of one call. What is not a name is refused."""
        client, options = self._client(), typing.cast("Any", self._options)
        if self._permits is not None:
            return client.semaphore(typing.cast("Name", name), self._permits, **options)
        if is_several(name):
            return client.lock_all(name, **options)
        return client.lock(typing.cast("Name", name), **options)


class Place(Generic[L]):
    """A decorated function: the lock of each call, and where the function takes it."""

    def __init__(self, function: Callable[..., object], plan: Plan[L], kind: type[L]) -> None:
        """`kind` is the class of the locks. Refuses now what no call can make."""
        self._function = function
        self._plan = plan
        self._name: str | None = None
        self._position: int | None = None
        self._signature = signature_of(function)
        if plan.passes:
            self._find(kind)
        self._name_of = naming(plan.name, function, self._signature)

    def _find(self, kind: type[L]) -> None:
        """Find the parameter for the lock, and leave it out of the signature that others see."""
        self._position = 0
        if self._signature is None:
            return
        parameters = list(self._signature.parameters.values())
        self._position = _position(parameters, self._function, kind)
        lock = parameters[self._position] if self._position < len(parameters) else None
        if lock is None or lock.kind is lock.VAR_KEYWORD:
            raise TypeError(f"{named(self._function)} has no parameter that pass_lock could give the lock to")
        if lock.kind is lock.VAR_POSITIONAL:
            return
        self._name = lock.name
        if lock.kind is lock.KEYWORD_ONLY:
            self._position = None
        parameters.remove(lock)
        self._signature = self._signature.replace(parameters=parameters)

    def lock(self, args: tuple[object, ...], kwargs: dict[str, Any]) -> L:
        """Make the lock of one call."""
        return self._plan.lock(self._name_of(args, kwargs))

    def call(self, lock: L, args: tuple[object, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the function's
        """Call the function, with the lock if it gets it."""
        name, position = self._name, self._position
        if position is not None and (name is None or len(args) >= position):
            return self._function(*args[:position], lock, *args[position:], **kwargs)
        if name is not None:
            kwargs = {**kwargs, name: lock}
        return self._function(*args, **kwargs)

    def wraps(self, wrapper: Callable[..., R]) -> Callable[..., R]:
        """Make `wrapper` look like the function without the lock, for frameworks that read signatures."""
        functools.update_wrapper(wrapper, self._function)
        if self._name is not None:
            wrapper.__signature__ = self._signature  # type: ignore[attr-defined]
        return wrapper


def _position(parameters: list[inspect.Parameter], function: Callable[..., object], kind: type) -> int:
    """Find the parameter for the lock: the one that asks for it, or else the first one after `self` or `cls`."""
    names = getattr(inspect.unwrap(function), "__globals__", {})
    members = [_members(parameter.annotation, names) for parameter in parameters]
    asks = [any(each is kind for each in those) for those in members]
    seems_to = [any(_ends_in(each, kind.__name__) for each in those) for those in members]
    called = [parameter.name == "lock" for parameter in parameters]
    # What seems to ask may ask for the lock of another library.
    takes = [seems or _is_open(those[0]) for seems, those in zip(seems_to, members, strict=True)]
    called_so = [is_called and may for is_called, may in zip(called, takes, strict=True)]
    for found in (asks, called_so, seems_to, called):
        if True in found:
            return found.index(True)
    first = int(bool(parameters) and parameters[0].name in {"self", "cls"})
    for parameter, those in zip(parameters[first + 1 :], members[first + 1 :], strict=True):
        if any(isinstance(each, str) for each in those):
            raise TypeError(
                f"the annotation of {parameter.name} in {named(function)} cannot be evaluated, and may ask for the "
                "lock; call the parameter of the lock `lock`"
            )
    return first


def _members(annotation: object, names: dict[str, Any]) -> list[object]:
    """Evaluate an annotation, and list the members of a union. What only type checkers import stays a text."""
    if isinstance(annotation, typing.ForwardRef):
        # Since Python 3.14, those parts that could be evaluated have other names there.
        names = names | (getattr(annotation, "__extra_names__", None) or {})
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        try:
            return _members(eval(annotation, names), names)  # noqa: S307 - this is the function's own code
        except Exception:  # noqa: BLE001 - it may raise whatever the function's names raise
            parts = [part.strip(" '\"") for part in annotation.split("|")]
            return [names.get(part, part) for part in parts]
    # The statement `type` of Python 3.12 makes names of types.
    named_type: object = getattr(annotation, "__value__", None)
    if named_type is not None:
        return _members(named_type, names)
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _members(members[0], names)
    if origin in {typing.Union, types.UnionType}:
        return [each for member in members for each in _members(member, names)]
    return [annotation]


def _is_open(member: object) -> bool:
    return member is inspect.Parameter.empty or member is Any


def _ends_in(member: object, name: str) -> bool:
    return isinstance(member, str) and member.rpartition(".")[2] == name
