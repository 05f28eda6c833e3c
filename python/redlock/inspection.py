"""What inspection shows."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["NodeView"]


@dataclass(frozen=True, slots=True)
class NodeView:
    """What one node has under a lock's name.

    >>> import redlock
    >>> client = redlock.Redlock("memory://view")
    >>> client.inspect("job")[0].state
    'free'
    >>> with client.lock("job", label="worker 7") as lock:
    ...     view = client.inspect("job")[0]
    ...     view.state, view.label, view.fence == lock.fence
    ('held', 'worker 7', True)
    """

    node: str
    """The node's address without user name or password."""

    key: str
    """The key on the node: the client's `key_prefix` and the name, with invalid UTF-8 replaced."""

    state: Literal["free", "held", "foreign", "unavailable"]
    """`free`: nothing is there. `held`: a lock of this library. `foreign`: a lock of another library, or a key that is
    not a lock. `unavailable`: the node could not be asked."""

    label: str | None
    """The label of a held lock, by default `host:pid`."""

    fence: int | None
    """The fence of a held lock on this node."""

    ttl_left: float | None
    """Seconds for which the node keeps a held or foreign key unless it is extended; `None` if it does not expire."""

    error: str | None
    """Why an unavailable node could not be asked."""
