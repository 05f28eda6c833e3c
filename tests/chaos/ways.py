"""The ways of one view: a proxy in front of every node, as a separate process.

Standard input has what to do to them, one object a line. Each line is answered when it is done, with the number of
connections that were made to these nodes so far. The end of input ends the process. The first line of output has the
proxies' ports.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

from support.proxy import LOSE, NONE, Faults, Network, Proxy

LONGEST_DELAY_S = 0.4
"""The delay of requests, and of replies too; less than the node_timeout of most locks."""

DISTANCE_S = 0.15
"""The delay of requests and of replies for a node that is far away: a round trip of 300 ms."""

UNKNOWN = ((b"$4\r\nINFO", b"$4\r\nOFNI"), (b"$5\r\nHELLO", b"$5\r\nOLLEH"), (b"$8\r\nTRACKING", b"$8\r\nGNIKCART"))
"""Commands that a server may not know or a proxy may refuse, and replacements, to which the answer is an error."""

ANEW = frozenset({"reset", "refused", "far away", "hang-up", "unknown command"})
"""Troubles that break present connections, because they affect new ones."""

MOST_BYTES = 4000
"""The most bytes after which a connection is cut."""


@dataclass(frozen=True)
class Elsewhere:
    """A server of another process."""

    socket: Path


def act(proxy: Proxy, what: str, amount: float, usual: Faults) -> None:
    """Begins a trouble of the size `amount`, from 0 to 1; `usual` is what happens to requests anyway."""
    held_up = {
        "delay": replace(usual, delay_s=LONGEST_DELAY_S * amount),
        "far away": replace(usual, delay_s=DISTANCE_S),
        "black hole": replace(usual, hold=True),
        "cut off": LOSE,
        "cut short": replace(usual, cut_after=round(MOST_BYTES * amount)),
        "forgotten": usual,
        "short reads": replace(usual, slices=True),
        "heal": usual,
        "refused": usual,
        "reset": usual,
    }
    requests = {
        "requests lost": LOSE,
        "replies lost": usual,
        "hang-up": usual,
        "unknown command": replace(usual, swap=UNKNOWN[min(int(len(UNKNOWN) * amount), len(UNKNOWN) - 1)]),
    }
    # This comes with the first byte of the first answer.
    replies = {"requests lost": usual, "replies lost": LOSE, "hang-up": replace(usual, cut_after=0)}
    proxy.refuse(what == "refused")
    proxy.requests((held_up | requests)[what])
    proxy.replies((held_up | {"unknown command": usual} | replies)[what])
    if what in ANEW:
        proxy.reset()
    if what == "forgotten":
        proxy.forget()


ALTERED = {
    "overlooked": (b"ours, 'NX', 'PX', ttl)", b"ours, 'PX', ttl      )"),
    "undeleted": (b"redis.call('DEL', keys[1])", b"redis.call('GET', keys[1])"),
    "unextended": (b"< tonumber(ARGV[2]) then redis.call('PEXPIRE'", b"> tonumber(ARGV[2]) then redis.call('PEXPIRE'"),
    "takes free": (b"if value then\n    local foreign", b"if false then\n    local foreign"),
    "first floor": (b"2 * locks do\n  local last", b"1 + locks do\n  local last"),
    "first released": (b"redis.call('DEL', KEYS[i])", b"redis.call('DEL', KEYS[1])"),
    "slot kept": (b"  call('DEL', KEYS[1])", b"  call('GET', KEYS[1])"),
    "leaves for all": (b"if rest then\n  call(", b"if nil  then\n  call("),
    "shortest end": (b"math.max(last, ends) - now", b"math.min(last, ends) - now"),
    "not at least": (b"if rest > 0 then\n  if kept", b"if rest < 0 then\n  if kept"),
}
"""Replacements in the text of scripts on their way, of the same length. Nodes then know the scripts by other hashes, so
their texts are sent every time."""


def main() -> None:
    """Passes on traffic until the end of input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=list(ALTERED))
    parser.add_argument("sockets", nargs="+", type=Path, help="of the servers")
    args = parser.parse_args()
    uvloop.install()
    usual = Faults(swap=ALTERED[args.fault]) if args.fault else NONE
    with Network([Elsewhere(socket) for socket in args.sockets], forget=True) as network:
        for proxy in network.proxies:
            proxy.requests(usual)
        print(json.dumps([urlsplit(url).port for url in network.urls]), flush=True)
        for line in sys.stdin:
            order: dict[str, Any] = json.loads(line)
            for node in order["nodes"]:
                act(network.proxies[node], order["do"], order["amount"], usual)
            print(sum(network.proxies[node].accepted for node in order["nodes"]), flush=True)


if __name__ == "__main__":
    main()
