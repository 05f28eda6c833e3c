"""The options of clients and locks."""

from datetime import timedelta
from typing import Literal, TypeAlias, TypedDict

__all__ = ["ClientOptions", "Duration", "Options"]

Duration: TypeAlias = float | timedelta
"""Seconds as a float or an int, or a `timedelta`; finite and not negative."""


class Options(TypedDict, total=False):
    """What `redlock.lock`, `Redlock.lock` and `redlock.Redlock` take by keyword, and their asyncio likes.

    Options of a client are the defaults of its locks. A wrong or unknown one is `redlock.LockInvalidArgument`, at the
    call that it was given to.
    """

    ttl: Duration
    """How long the nodes keep the lock unless it is extended: 0.1 s to 24 h, default 10 s. A crashed holder blocks
    others for at most this long."""

    timeout: Duration | None
    """How long acquire may wait: zero for one try, `None` (the default) for ever."""

    auto_renew: bool
    """Whether the lock is extended in the background until it is released; default `True`. Busy Python code cannot stop
    it; `max_hold` can."""

    max_hold: Duration
    """The lock ends this long after it was acquired, however often it was extended; at least the ttl. By default
    nothing ends it."""

    node_timeout: Duration
    """Longest wait for one node's vote; default a quarter of the ttl, from 0.05 s to 0.5 s."""

    restart_delay: Duration
    """How long the grants of a node do not count after this process saw it restart; default the ttl. Zero turns that
    off, for nodes whose data survives."""

    fence_ttl: Duration
    """How long a node remembers a name's fence; default the larger of 1 h and twice the ttl, at least twice the ttl."""

    label: str
    """The label that inspection shows: at most 128 bytes without control characters; default `host:pid`, empty for
    none."""

    protocol: Literal["plain", "setnx"]
    """`"setnx"` is for a key that is shared with code which still uses the older protocol of SETNX, GET and GETSET, and
    whose value is the Unix second up to which the lock is held; default `"plain"`.

    It is for one node, and has neither a fence nor renewal: `auto_renew` is off, and several nodes, `auto_renew=True`,
    `Lock.fence` and `Lock.extend` are `LockInvalidArgument`. So are `fence_ttl` and `label` of the lock itself; those
    of its client are passed over. A crashed holder blocks others for at most 3 s longer than the ttl. A release is sent
    once only: where its answer, or that to an acquire, is lost with the connection, the key stays until its time is
    over. Older clients can still make two holders: by a stall between GET and GETSET, by another ttl, by a wrong clock.
    Never use one name in both protocols."""


class ClientOptions(Options, total=False):
    """What `redlock.Redlock` and its asyncio like take by keyword: the defaults of their locks, and their own."""

    connect_timeout: Duration
    """Longest time for one connection, from the look-up of the name to the node's first answers: 0.05 s to 60 s,
    default 2 s. It takes up to four round trips. An option of the client alone."""
