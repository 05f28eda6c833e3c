"""The name of the lock of each call of a decorated function: given, from a template, or made by a function."""

import inspect
import re
import string
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeGuard, cast

from redlock._checks import named, signature_of
from redlock.errors import LockInvalidArgument

Name: TypeAlias = str | bytes
Names: TypeAlias = Iterable[Name]
NameOf: TypeAlias = Name | Names | Callable[..., Name | Names]

Naming: TypeAlias = Callable[[tuple[object, ...], dict[str, Any]], Name | Names]
"""Makes the name or names of the lock from the arguments of a call."""

_FIELD = re.compile(r"\{[^{}]*\}")


def is_several(name: object) -> TypeGuard[Names]:
    """Whether these are names, and not one."""
    return isinstance(name, Iterable) and not isinstance(name, str | bytes)


def example(given: object) -> object:
    """Return a name such as `given` makes, for a look at the options of its locks."""
    if is_several(given):
        return [example(each) for each in given]
    if isinstance(given, str):
        return _FIELD.sub("1", given)
    return "name" if callable(cast("Any", given)) else given


def naming(given: NameOf, function: Callable[..., object], signature: inspect.Signature | None) -> Naming:
    """Find out how calls of `function` make the name. Refuse now what no call can make."""
    if callable(given):
        return _made(given, function, signature)
    texts = list(given) if is_several(given) else [cast("Name", given)]
    wanted = {field: text for text in texts if isinstance(text, str) for field in _fields(text)}
    for field, text in wanted.items():
        if signature is None or field not in signature.parameters:
            raise _wrong(f"name {text!r} has the field {{{field}}}, but {_has(function, signature)}; {_BRACES}")

    def names(arguments: dict[str, Any]) -> Name | Names:
        made = [text.format_map(arguments) if isinstance(text, str) else text for text in texts]
        return made if is_several(given) else made[0]

    if signature is None or not wanted:
        constant = names({})
        return lambda _args, _kwargs: constant
    return lambda args, kwargs: names(_bound(signature, args, kwargs))


def _fields(template: str) -> list[str]:
    """Return the parameters that a template names: `order` for `{order.id}`."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise _wrong(f"name {template!r} is not a template ({error}); {_BRACES}") from None
    found: list[str] = []
    for _, field, form, _ in parsed:
        if field is not None:
            found += [re.split(r"[.\[]", field, maxsplit=1)[0], *_fields(form or "")]
    return found


def _made(
    make: Callable[..., Name | Names], function: Callable[..., object], signature: inspect.Signature | None
) -> Naming:
    """Have `make` make the name from those arguments of a call for which it has parameters."""

    def as_called(args: tuple[object, ...], kwargs: dict[str, Any]) -> Name | Names:
        return make(*args, **kwargs)

    of_make = signature_of(make)
    if signature is None or of_make is None:
        return as_called
    others = [parameter for parameter in of_make.parameters.values() if parameter.name not in signature.parameters]
    if any(other.kind is other.VAR_POSITIONAL for other in others):
        return as_called
    rest = next((other.name for other in others if other.kind is other.VAR_KEYWORD), None)
    for other in others:
        if other.default is other.empty and other.name != rest:
            raise _wrong(f"name: {named(make)} has the parameter {other.name!r}, but {_has(function, signature)}")

    def name_of(args: tuple[object, ...], kwargs: dict[str, Any]) -> Name | Names:
        given = _bound(signature, args, kwargs)
        taken = {name: given.pop(name) for name in of_make.parameters if name in given}
        if rest is not None:
            taken[rest] = given
        call = inspect.BoundArguments(of_make, taken)
        return make(*call.args, **call.kwargs)

    return name_of


def _bound(signature: inspect.Signature, args: tuple[object, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by parameter, with defaults."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _has(function: Callable[..., object], signature: inspect.Signature | None) -> str:
    known = ", ".join(signature.parameters) if signature is not None else ""
    return f"{named(function)} has only the parameters {known}" if known else f"{named(function)} has no parameters"


def _wrong(message: str) -> LockInvalidArgument:
    return LockInvalidArgument(message, option="name")


_BRACES = "for braces in the name itself, write {{ and }}"
