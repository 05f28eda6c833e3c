"""Servers remember the names that clients wait for, and forget them when no client waits any more."""

from __future__ import annotations

import pytest

from soak.soak import cases, falls, started_worker, told
from soak.turns import WRITES
from support.servers import Cluster

pytestmark = pytest.mark.test_all("a leak takes hundreds of turns to show", gate=True)

SHORT = 0.001

NAMES = 100_000
"""At full scale."""

BATCHES = 4

DENIED = 64
"""How many tasks of a worker are denied at once."""

LEAST = BATCHES * DENIED * 5
"""At any scale."""

KEYS = {
    "one": ["name-%d-%d"],
    "set": ["name-%d-%d"],
    "slot": ["redlock:slot:0:{name-%d-%d}", "redlock:slot:1:{name-%d-%d}"],
    "shared": ["name-%d-%d"],
}
"""The keys that others have. Of a set, the other names are free."""

BELL = "redlock:slot:bell:{name-%d-%d}"
"""The key by which those who wait for a permit are woken. It expires a minute after the last ring."""

# In the turns in which workers want a shared lock for themselves, others share it.
OTHERS_TAKE = f"""
for task = 0, ARGV[1] - 1 do
    for turn = ARGV[2], ARGV[3] - 1 do
        for key = 5, #ARGV do
            local name = string.format(ARGV[key], task, turn)
            if ARGV[4] == "shared" and turn % {WRITES} == 0 then
                redis.call("ZADD", name, 600000, "theirs", "inf", "redlock:shared:7")
                redis.call("PEXPIRE", name, 600000)
            else
                redis.call("SET", name, "theirs", "PX", 600000)
            end
        end
    end
end
"""

# Those of half of the turns are deleted, of each kind, and the rest expires, and so does each bell.
OTHERS_LEAVE = f"""
for task = 0, ARGV[1] - 1 do
    for turn = ARGV[2], ARGV[3] - 1 do
        local bell = string.format(ARGV[4], task, turn)
        if redis.call("PTTL", bell) > 0 then redis.call("PEXPIRE", bell, 1) end
        for key = 5, #ARGV do
            local name = string.format(ARGV[key], task, turn)
            if turn % {2 * WRITES} < {WRITES} then redis.call("DEL", name) else redis.call("PEXPIRE", name, 1) end
        end
    end
end
"""


@pytest.mark.parametrize(("work", "shape", "face"), cases("denied", shapes=list(KEYS)))
def test_servers_remember_nothing(pytestconfig: pytest.Config, work: str, shape: str, face: str) -> None:
    """The number of names does not matter."""
    names = max(LEAST, int(NAMES * (pytestconfig.getoption("--scale") or SHORT)))
    turns = -(-names // BATCHES // DENIED)
    with Cluster(1) as nodes, started_worker(face, work, nodes, shape=shape) as worker:
        done, waited = 0, 0
        for _ in range(BATCHES):
            nodes[0].command("EVAL", OTHERS_TAKE, 0, DENIED, done, done + turns, shape, *KEYS[shape])
            worker.perform(turns * DENIED)
            # On a busy machine, all calls of a batch but the first may end before they wait.
            waited += tracked(nodes)["tracked keys"]
            nodes[0].command("EVAL", OTHERS_LEAVE, 0, DENIED, done, done + turns, BELL, *KEYS[shape])
            falls(lambda: tracked(nodes), {"tracked keys": 0, "tracked items": 0})
            done += turns * DENIED
        assert waited > 0, "no call has waited"
        worker.end()


def tracked(nodes: Cluster) -> dict[str, int]:
    """How many names the servers remember."""
    return {f"tracked {what}": told(nodes, f"tracking_total_{what}") for what in ("keys", "items")}
