"""The ways of one view: a proxy in front of every node, as a separate process.

Standard input has what to do to them, one object a line. Each line is answered when it is done, with the number of
connections that were made to these nodes so far. The end of input ends the process. The first line of output has the
proxies' ports.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

from support.proxy import LOSE, NONE, Faults, Network, Proxy
from support.rules import unknown

LONGEST_DELAY_S = 0.4
"""The delay of requests, and of replies too; less than the node_timeout of most locks."""

DISTANCE_S = 0.15
"""The delay of requests and of replies for a node that is far away: a round trip of 300 ms."""

UNKNOWN = ("INFO", "HELLO", "CLIENT TRACKING")
"""Commands that a server may not know or a proxy may refuse."""

ANEW = frozenset({"reset", "refused", "far away", "hang-up", "unknown command"})
"""Troubles that break present connections, because they affect new ones."""

MOST_BYTES = 4000
"""The most bytes after which a connection is cut."""


@dataclass(frozen=True)
class Elsewhere:
    """A server of another process."""

    socket: Path


def act(proxy: Proxy, what: str, amount: float) -> None:
    """Begins a trouble of the size `amount`, from 0 to 1."""
    both = {
        "delay": Faults(delay_s=LONGEST_DELAY_S * amount),
        "far away": Faults(delay_s=DISTANCE_S),
        "black hole": Faults(hold=True),
        "cut off": LOSE,
        "cut short": Faults(cut_after=round(MOST_BYTES * amount)),
        "short reads": Faults(slices=True),
        **dict.fromkeys(("forgotten", "heal", "refused", "reset", "unknown command"), NONE),
    }
    # Of requests, and of replies. A hang-up comes with the first byte of the first answer.
    faults = {name: (each, each) for name, each in both.items()} | {
        "requests lost": (LOSE, NONE),
        "replies lost": (NONE, LOSE),
        "hang-up": (NONE, Faults(cut_after=0)),
    }
    requests, replies = faults[what]
    refused = UNKNOWN[min(int(len(UNKNOWN) * amount), len(UNKNOWN) - 1)]
    proxy.rules = [unknown(refused)] if what == "unknown command" else []
    proxy.refuse(what == "refused")
    proxy.requests(requests)
    proxy.replies(replies)
    if what in ANEW:
        proxy.reset()
    if what == "forgotten":
        proxy.forget()


def main() -> None:
    """Passes on traffic to the servers' sockets until the end of input."""
    uvloop.install()
    with Network([Elsewhere(Path(socket)) for socket in sys.argv[1:]], forget=True) as network:
        print(json.dumps([urlsplit(url).port for url in network.urls]), flush=True)
        for line in sys.stdin:
            order: dict[str, Any] = json.loads(line)
            for node in order["nodes"]:
                act(network.proxies[node], order["do"], order["amount"])
            print(sum(network.proxies[node].accepted for node in order["nodes"]), flush=True)


if __name__ == "__main__":
    main()
