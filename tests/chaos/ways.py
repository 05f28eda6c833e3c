"""The ways of one view: a proxy in front of every node, in a process of its own.

Standard input is what to do to them, an object a line, each answered by an empty line when it is done; the end of input
ends the process. The first line of output is the proxies' ports.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.append(str(Path(__file__).resolve().parent.parent / "conformance"))

import uvloop

from proxy import LOSE, NONE, Faults, Network, Proxy

LONGEST_DELAY_S = 0.4
"""Of requests, and of replies too; less than the node_timeout of most locks."""

MOST_BYTES = 4000
"""After which a connection is cut, at most."""


@dataclass(frozen=True)
class Elsewhere:
    """A server of another process."""

    socket: Path


def act(proxy: Proxy, what: str, amount: float, usual: Faults) -> None:
    """Does it, as much of it as `amount` says, from 0 to 1; `usual` is what happens to requests anyway."""
    match what:
        case "delay":
            _both(proxy, replace(usual, delay_s=LONGEST_DELAY_S * amount))
        case "requests lost":
            proxy.requests(LOSE)
        case "replies lost":
            proxy.replies(LOSE)
        case "black hole":
            _both(proxy, replace(usual, hold=True))
        case "cut off":
            _both(proxy, LOSE)
        case "reset":
            proxy.reset()
        case "refused":
            proxy.refuse(True)
            proxy.reset()
        case "cut short":
            _both(proxy, replace(usual, cut_after=round(MOST_BYTES * amount)))
        case "short reads":
            _both(proxy, replace(usual, slices=True))
        case "heal":
            _both(proxy, usual)
            proxy.refuse(False)
        case _:
            raise ValueError(f"no way has {what!r}")


def _both(proxy: Proxy, faults: Faults) -> None:
    proxy.requests(faults)
    proxy.replies(faults)


ALTERED = {
    "overlooked": (b"ours, 'NX', 'PX', argv[2])", b"ours, 'PX', argv[2]      )"),
    "undeleted": (b"redis.call('DEL', keys[1])", b"redis.call('GET', keys[1])"),
    "unextended": (b"< tonumber(ARGV[2]) then redis.call('PEXPIRE'", b"> tonumber(ARGV[2]) then redis.call('PEXPIRE'"),
}
"""What is made of the text of scripts on their way, of the same length. As nodes know them by another hash then, their
texts are sent every time."""


def main() -> None:
    """Passes on what comes until the end of input."""
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
            print(flush=True)


if __name__ == "__main__":
    main()
