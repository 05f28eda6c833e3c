"""The options of clients and locks."""

import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, TypeVar

__all__ = [
    "ClientOptions",
    "Credentials",
    "Duration",
    "ElectionOptions",
    "Login",
    "NameOptions",
    "Options",
    "RedisClient",
]

Duration: TypeAlias = float | timedelta
"""Seconds as a float or an int, or a `timedelta`; finite and not negative."""

OWN: Any = ...
"""The timeout of an acquire that has none of its own: that of the lock."""


def attaching(ttl: Duration | None, timeout: Duration | None) -> "Options":
    """Return the options of a lock that attaches: those that its caller gave."""
    options: Options = {}
    if ttl is not None:
        options["ttl"] = ttl
    if timeout is not OWN:
        options["timeout"] = timeout
    return options


Login: TypeAlias = tuple[str, str] | tuple[str, str, Duration]
"""A user and a password, and for how long servers accept them if they have an end. An empty user is the default
user."""

Credentials: TypeAlias = Callable[[], Login | Awaitable[Login]]
"""A function or a coroutine function that returns a login; see `ClientOptions.credentials`."""


class _Pool(Protocol):
    connection_class: Any
    connection_kwargs: Any


class _OfPool(Protocol):
    connection_pool: Any


class _OfCluster(Protocol):
    nodes_manager: Any


RedisClient: TypeAlias = _Pool | _OfPool | _OfCluster
"""A client of redis-py or valkey-py, also of their asyncio, or its pool of connections: `Redis`, `RedisCluster`,
`ConnectionPool`, and what `Sentinel.master_for` returns."""

Nodes: TypeAlias = str | RedisClient | Sequence[str | RedisClient] | None


class ElectionOptions(TypedDict, total=False):
    """The keyword options of `redlock.election` and `Redlock.election`, also for asyncio. Every lock has them too.

    Options of a client are the defaults of its elections. `None` stands for the built-in default, whatever the client's
    is. The call that gets a wrong or unknown option raises `redlock.LockInvalidArgument`.
    """

    ttl: Duration | None
    """How long the nodes keep the lock unless it is extended: 0.1 s to 24 h, default 10 s. A crashed holder blocks
    others for at most this long."""

    margin: Duration | None
    """By how much the lock counts as lost before others can have it; at most half the ttl, default zero. A holder that
    cannot renew it has this long to stop. The lock is renewed sooner for it."""

    node_timeout: Duration | None
    """Longest wait for one node's vote; default a quarter of the ttl, from 0.05 s to 0.5 s."""

    restart_delay: Duration | None
    """How long the grants of a node do not count after this process saw it restart, which a process that starts later
    has not; default the ttl. Zero turns this off, for nodes that have each write on the disk before they answer
    (`appendfsync always`)."""

    fence_ttl: Duration | None
    """How long a node remembers a name's fence; default the larger of 1 h and twice the ttl, at least twice the ttl."""

    label: str | None
    """The label that inspection shows: at most 128 bytes without control characters; default `host:pid`, empty for
    none."""


class Options(ElectionOptions, total=False):
    """The keyword options of locks, such as `redlock.lock`, and of `redlock.Redlock`, also for asyncio.

    Options of a client are the defaults of its locks. `None` stands for the built-in default, whatever the client's is.
    The call that gets a wrong or unknown option raises `redlock.LockInvalidArgument`.
    """

    timeout: Duration | None
    """How long acquire may wait: zero for one try, `None` (the default) forever, as for infinity and -1."""

    auto_renew: bool | None
    """Whether a background thread renews the lock until it is released; default `True`. Busy Python code cannot stop
    it; `max_hold` can."""

    max_hold: Duration | None
    """The lock ends this long after it was acquired, however often it was extended; at least the ttl. By default there
    is no limit."""

    at_least: Duration | None
    """The least time before others can have the lock, from the acquire on, even if it is released sooner; at most 7
    days, default zero. The release leaves the key until then, and the lock is not held from the call on. If it is
    longer than the ttl, a crashed holder keeps others out until then, too. A lock of several names does not have this
    option."""

    protocol: Literal["plain", "setnx"] | None
    """`"setnx"` shares a key with code that still uses the older protocol of SETNX, GET and GETSET, whose value is the
    Unix second up to which the lock is held; default `"plain"`.

    It works on one node, without a fence and without renewal: `auto_renew` is off, and several nodes,
    `auto_renew=True`, `Lock.fence`, `Lock.extend`, semaphores and locks of several names raise `LockInvalidArgument`.
    So do `at_least`, `margin`, `fence_ttl` and `label` of the lock itself; those of its client are ignored. A crashed
    holder blocks others for at most 3 s longer than the ttl. A release is sent only once. If the connection breaks
    before the answer to it or to an acquire, the key stays until it expires. Older clients can still cause two holders,
    by a stall between GET and GETSET, another ttl or a wrong clock. Never use one name in both protocols."""


class NameOptions(Options, total=False):
    """The keyword options of a lock of one name: `redlock.lock` and `Redlock.lock`, also for asyncio."""

    shared: bool | None
    """Whether many holders may have the lock at once, the readers, but none of them together with a holder of the lock
    that is not shared, the writer; default `False`. The writer is the ordinary lock of the same name, also that of a
    program that knows nothing of sharing. While a writer waits, no new reader gets the lock. A reader cannot become a
    writer. Not with `at_least` or `protocol="setnx"`."""


class ClientOptions(Options, total=False):
    """The keyword options of `redlock.Redlock`, also for asyncio: the defaults of its locks, and its own."""

    connect_timeout: Duration | None
    """Longest time for one connection, from the look-up of the name to the node's first answers: 0.05 s to 60 s,
    default 2 s. A connection takes up to four round trips. Only clients have this option."""

    keepalive: Duration | None
    """After how long without traffic a TCP connection is probed: 1 s to 9 h, default 60 s, 0 for never. So what is
    between here and the node does not take it for unused. Only clients have this option."""

    max_connections: int | None
    """How many connections to each node blocking calls may have: 1 to 64, default 8. More threads at a time share those
    of the background, of which there are two, as asyncio does. Only clients have this option."""

    key_prefix: str | None
    """The key of a lock is this text and then the lock's name: 0 to 511 bytes of UTF-8, default none. The limits of
    names apply to the whole. Errors and inspection show the whole. Only clients have this option."""

    password_file: str | os.PathLike[str] | None
    """File with the password for nodes whose URL has none, without one line end at its end; default none. It is read at
    every connect. The user is the URL's, by default the default user. Only clients have this option, and the following
    ones."""

    credentials: Credentials | None
    """Function or coroutine function without arguments that returns the login for nodes whose URL has none; default
    none. A login is `(user, password)`, or `(user, password, seconds)` if servers accept it for so long.

    It is called at the first connect, again at 70 to 80 % of the login's life, and after a server rejected the login.
    It runs on a daemon thread of this package, a coroutine in an event loop there. A call may take 10 s. A new login is
    also sent on the connections that exist. After a failed call, the login before stays in use, and the function is
    called again after 1 s, doubling to 30 s. Without a login, calls on locks raise `redlock.LockUnavailable`, whose
    `__cause__` is the exception of the function; messages show only its type. The function cannot use a lock of its own
    client."""

    tls_ca: str | os.PathLike[str] | None
    """PEM file with the certificates of the only CAs to trust, for nodes with `rediss://`; default the system's. A
    server whose own certificate is in the file is trusted under every name, also if it is self-signed. A URL may name
    another one with `?tls_ca=`, and likewise for the following options. The files are read when the client is made, and
    again at a connect that finds them changed. A new version that cannot be used leaves the old one in force."""

    tls_cert: str | os.PathLike[str] | None
    """PEM file with the client's certificate and its chain; default none. Needs `tls_key`."""

    tls_key: str | os.PathLike[str] | None
    """PEM file with the private key of `tls_cert`, not encrypted; default none."""

    tls_server_name: str | None
    """The name that a node's certificate must have, where the URL has another host, as through a tunnel; default the
    host."""


F = TypeVar("F", bound=Callable[..., Any])


# Of a class that stubtest does not know, so that it takes any type of an option for right.
_LEFT_OUT = type("LeftOut", (), {"__repr__": "...".__str__})()
"""The default of an option in a signature: that of the client, or else the built-in one."""


def takes(options: type) -> Callable[[F], F]:
    """Show each option of a type in the signature of a function that takes them, for `help` and the like.

    Type checkers and editors know them from `Unpack`.
    """
    keyword, types = inspect.Parameter.KEYWORD_ONLY, inspect.get_annotations(options)
    given = [inspect.Parameter(name, keyword, default=_LEFT_OUT, annotation=types[name]) for name in types]

    def shows(function: F) -> F:
        signature = inspect.signature(function)
        others = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        function.__signature__ = signature.replace(parameters=others + given)  # type: ignore[attr-defined]
        return function

    return shows
