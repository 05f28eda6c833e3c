"""Servers remember the names that clients wait for, and forget them when no client waits any more."""

from __future__ import annotations

import pytest

from soak.soak import LANGUAGES, Programs, falls, told
from support.servers import Cluster

SHORT = 0.001

NAMES = 100_000
"""At full scale."""

BATCHES = 4

DENIED = 64
"""How many tasks of a worker are denied at once."""

LEAST = BATCHES * DENIED * 5
"""At any scale."""

OTHERS_TAKE = """
for task = 0, ARGV[1] - 1 do
    for turn = ARGV[2], ARGV[3] - 1 do
        redis.call("SET", string.format("name-%d-%d", task, turn), "theirs", "PX", 600000)
    end
end
"""

# Every other one is deleted, and the rest expires.
OTHERS_LEAVE = """
for task = 0, ARGV[1] - 1 do
    for turn = ARGV[2], ARGV[3] - 1 do
        local name = string.format("name-%d-%d", task, turn)
        if turn % 2 == 0 then redis.call("DEL", name) else redis.call("PEXPIRE", name, 1) end
    end
end
"""


@pytest.mark.parametrize("face", LANGUAGES)
def test_servers_remember_nothing(programs: Programs, pytestconfig: pytest.Config, face: str) -> None:
    """The number of names does not matter."""
    names = max(LEAST, int(NAMES * (pytestconfig.getoption("--scale") or SHORT)))
    turns = -(-names // BATCHES // DENIED)
    with programs.nodes(1) as nodes, programs.worker(face, "denied", nodes) as worker:
        done = 0
        for _ in range(BATCHES):
            nodes[0].command("EVAL", OTHERS_TAKE, 0, DENIED, done, done + turns)
            worker.perform(turns * DENIED)
            assert tracked(nodes)["tracked keys"] > 0, "nobody has waited"
            nodes[0].command("EVAL", OTHERS_LEAVE, 0, DENIED, done, done + turns)
            falls(lambda: tracked(nodes), {"tracked keys": 0, "tracked items": 0})
            done += turns * DENIED
        worker.end()


def tracked(nodes: Cluster) -> dict[str, int]:
    """How many names the servers remember."""
    return {f"tracked {what}": told(nodes, f"tracking_total_{what}") for what in ("keys", "items")}
