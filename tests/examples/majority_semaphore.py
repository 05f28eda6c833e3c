"""Why this library does not count permits by majority: three callers are in a semaphore that has two permits.

    python tests examples.majority_semaphore

A caller is in when two of three real servers let it in. Each server lets in two callers, as a semaphore on one server
does. The requests of each caller arrive in another order at each server, as they may on any network.
"""

from __future__ import annotations

from collections.abc import Mapping

from support.servers import Cluster

PERMITS = 2
QUORUM = 2

SORTED_SET = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
return redis.call('ZADD', KEYS[1], now + 60, ARGV[1])
"""
"""Lets a caller in for a minute: a member of a sorted set, whose score is the end of its lease."""

COUNTER = """
if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[2]) then return 0 end
redis.call('INCR', KEYS[1])
return 1
"""
"""Lets a caller in: one more in a counter."""

FIRST = {"A": (0, 1), "B": (0, 2), "C": (1, 2)}
"""The servers that get the request of each caller first. The other server gets it last, when it is full."""


def votes(servers: Cluster, script: str) -> Mapping[str, list[int]]:
    """Sends every caller's request to every server, and returns which servers let each caller in."""
    arrivals = [(caller, server) for caller, servers_of_it in FIRST.items() for server in servers_of_it]
    arrivals += [(caller, 3 - sum(servers_of_it)) for caller, servers_of_it in FIRST.items()]
    let_in: dict[str, list[int]] = {caller: [] for caller in FIRST}
    for caller, server in arrivals:
        if servers[server].command("EVAL", script, 1, "pool", caller, PERMITS) == 1:
            let_in[caller].append(server)
    return let_in


def told(let_in: Mapping[str, list[int]]) -> str:
    """What the votes come to."""
    lines = [
        f"server {server} lets in {', '.join(caller for caller, servers in let_in.items() if server in servers)}\n"
        for server in range(3)
    ]
    inside = [caller for caller, servers in let_in.items() if len(servers) >= QUORUM]
    return f"{''.join(lines)}{len(inside)} callers are in, with {PERMITS} permits: {', '.join(inside)}\n"


def main() -> None:
    """Shows it with both kinds of semaphores."""
    for script in (SORTED_SET, COUNTER):
        with Cluster(3) as servers:
            print(told(votes(servers, script)))


if __name__ == "__main__":
    main()
