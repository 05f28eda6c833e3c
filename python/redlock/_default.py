"""The clients of the functions of `redlock` and of `redlock.asyncio`: each is made at its first use."""

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from redlock import _native
from redlock.options import ClientOptions, Nodes

C = TypeVar("C", bound=_native.Client)

_OF_THE_NODES = {"password_file", "credentials", "tls_ca", "tls_cert", "tls_key", "tls_server_name"}
"""Options that other nodes do not need."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The clients, by what makes them, and what they are made with."""

    clients: dict[object, Any]
    nodes: Nodes
    options: ClientOptions


# It is replaced as a whole: a thread that makes a client stores it beside what it was made with.
_defaults = Defaults({}, None, {})


def client(make: Callable[..., C]) -> C:
    """Find the client that `make` has made, or make it. Two threads that make one at the same time get the same."""
    defaults = _defaults
    if make not in defaults.clients:
        defaults.clients.setdefault(make, make(defaults.nodes, **defaults.options))
    found: C = defaults.clients[make]
    return found


def configure(make: Callable[..., _native.Client], nodes: Nodes, options: ClientOptions) -> None:
    """Have clients made with `nodes` and `options` from now on. Raises what `make` raises, and then changes nothing."""
    global _defaults  # noqa: PLW0603 - one for each process
    _defaults = Defaults({make: make(nodes, **options)}, nodes, options)


@contextlib.contextmanager
def instead(nodes: Nodes) -> Generator[None]:
    """Have clients made with `nodes` until the end of the block, and then those of before.

    They have the options of before, except those of the nodes themselves.
    """
    global _defaults  # noqa: PLW0603
    before = _defaults
    kept = {option: value for option, value in before.options.items() if option not in _OF_THE_NODES}
    _defaults = Defaults({}, nodes, cast("ClientOptions", kept))
    try:
        yield
    finally:
        _defaults = before
