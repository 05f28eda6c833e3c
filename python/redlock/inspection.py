"""What inspection shows."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

__all__ = ["LockView", "NodeView"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The engine counts from it."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """What one node has under a lock's name.

    >>> import redlock
    >>> client = redlock.Redlock("memory://view")
    >>> with client.lock("job", label="worker 7") as lock:
    ...     (node,) = client.inspect("job").nodes
    ...     node.state, node.label, node.fence == lock.fence
    ('held', 'worker 7', True)
    """

    node: str
    """The node's address without user name or password."""

    key: str
    """The key on the node: the client's `key_prefix` and the name, or the key of a semaphore's slot. Invalid UTF-8 is
    replaced."""

    state: Literal["free", "held", "shared", "foreign", "unavailable"]
    """`free`: nothing is there. `held`: a lock of this library. `shared`: one that readers share. `foreign`: a lock of
    another library, or a key that is not a lock. `unavailable`: the node could not be asked."""

    label: str | None
    """The label of a held lock, by default `host:pid`."""

    readers: int | None
    """How many share a shared lock."""

    labels: list[str]
    """The labels of readers of a shared lock that have one, at most 16."""

    fence: int | None
    """The fence of a held lock on this node. Of a shared one, that with which the sharing began: no reader's is
    smaller."""

    ttl_left: float | None
    """Seconds for which the node keeps a held, shared or foreign key unless it is extended; `None` if it does not
    expire."""

    error: str | None
    """Why an unavailable node could not be asked."""


@dataclass(frozen=True, slots=True)
class LockView:
    """A lock and what its nodes show of it together.

    Each node answers for itself, so a lock that changes hands meanwhile may show a state that it never had. A view is
    for people and their dashboards: only an acquire says whether work may begin.

    >>> import redlock
    >>> client = redlock.Redlock("memory://lock-view")
    >>> client.inspect("job").state
    'free'
    >>> with client.lock("job", label="worker 7") as lock:
    ...     view = client.inspect("job")
    ...     print(view.state, view.label, view.fence == lock.fence, view.since is not None)
    ...     print(f"{view.holders} of {len(view.nodes)} nodes, {view.quorum} needed, {view.waiting} waiting")
    held worker 7 True True
    1 of 1 nodes, 1 needed, 0 waiting
    """

    name: str
    """The name, with invalid UTF-8 replaced."""

    key: str
    """The key on the nodes: the client's `key_prefix` and the name, or the key of a semaphore's slot. Invalid UTF-8 is
    replaced."""

    slot: int | None
    """The slot of a semaphore, from 0; `None` for other locks."""

    state: Literal["free", "held", "shared", "foreign", "unknown"]
    """Whose it is, as far as a quorum of nodes shows it. `free`: they would grant it. `held`: one owner has it on them.
    `shared`: readers share it. `foreign`: they have a lock of another library, or a key that is not a lock. `unknown`:
    no quorum shows the same, because too few nodes could be asked, nodes that restarted are in quarantine, votes are
    split, or the lock is being acquired or released."""

    label: str | None
    """The label of the holder, by default `host:pid`; `None` if it has none, or the lock is not held."""

    fence: int | None
    """A lower bound of the holder's fence; `None` if the lock is neither held nor shared. Usually it is the fence
    itself, and on one node always. On several nodes, each shows only the fence that it granted. Of a shared lock, a
    lower bound of every reader's fence."""

    since: datetime | None
    """About when the lock was acquired, or its sharing began, in UTC, by the clocks of nodes and clients; `None` if it
    is neither held nor shared. It is read from the fence, so it is later than that where an earlier fence was ahead of
    the clocks."""

    ttl_left: float | None
    """Seconds for which at least a quorum of nodes keeps a held, shared or foreign key unless it is extended; `None`
    for a key that does not expire."""

    holders: int
    """The number of nodes that have the lock of the holder. If there is none, of the owner that is on most nodes."""

    quorum: int
    """The number of nodes that is a quorum."""

    waiting: int | None
    """About how many processes wait for the lock; `None` if no node shows it, as without a right to the waiters key.
    The number is a hint: it is the largest of any node, and waiters that gave up are counted until the lock changes
    hands."""

    readers: int | None
    """The number of readers of a shared lock, on the node with the most; `None` if it is not shared."""

    labels: list[str]
    """The labels of readers on that node, at most 16; empty if it is not shared."""

    nodes: list[NodeView]
    """What each node shows, in the order of the addresses."""
