"""What may stand behind the address of a node instead of a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.rights import in_cluster
from support.sentinels import Sentinels
from support.servers import Group, User
from support.shards import Shards


def cluster(*, user: User | None, **setup: Any) -> Shards:
    """Three shards, by default of one server each; takes the options of `Shards`.

    Nobody takes the place of a server that a test case freezes, or that a busy machine delays.
    """
    return Shards(3, user=user and in_cluster(user), **setup).without_deaths()


def sentinel(**setup: Any) -> Sentinels:
    """A primary that sentinels name; takes the options of `Sentinels`.

    It has no replica, which would take over from a primary that a test case freezes or kills.
    """
    return Sentinels(replicas=0, **setup)


TOPOLOGIES: dict[str, Callable[..., Group]] = {"cluster": cluster, "sentinel": sentinel}
