"""Workers in Rust, Python and Node use locks amid every kind of trouble, for as long as you like.

The locks are on five servers (`nodes.py`), on a Redis Cluster (`cluster.py`), or on a primary that sentinels name
(`sentinel.py`).

Troubles are a function of the seed (`schedule.py`). The workers record what they do to the locks, and `redlock-history`
judges the records after each epoch. Exit status 0 only if every promise was kept; 1 if not; 130 after Ctrl-C, with a
report of the epochs up to then. `--demo` plays a short run with one lock instead (`demo.py`).
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from pathlib import Path

from rich.console import Console

from chaos import demo, outcome, screen
from chaos.arena import HANDS, ROLES, Arena, ArenaError
from chaos.cluster import Cluster
from chaos.demo import Demo
from chaos.nodes import Nodes
from chaos.planted import PLANTED
from chaos.run import Run
from chaos.schedule import count, epochs
from chaos.sentinel import Sentinel

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
PLAIN_WIDTH = 110
INTERRUPTED = 130
ARENAS: dict[str, type[Arena]] = {"nodes": Nodes, "cluster": Cluster, "sentinel": Sentinel}
"""The kinds of arena, by name."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Runs the program; returns the exit status."""
    args = parse()
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    plan = ARENAS[args.arena].plan
    scheduled = [demo.EPOCH] if args.demo else epochs(plan, args.seed, count(plan, args.seconds))
    # A script's background processes ignore the first signal.
    for number in ENDING:
        signal.signal(number, signal.default_int_handler)
    args.out.mkdir(parents=True, exist_ok=True)
    for old in args.out.glob("epoch-*.jsonl"):
        old.unlink()
    kind, roles, hands = (Demo, demo.CREW, 1) if args.demo else (Run, ROLES, HANDS)
    try:
        with ARENAS[args.arena](TARGET / "debug", args.seed, args.fault, roles, hands) as arena:
            checker = TARGET / "debug" / "redlock-history"
            run = kind(arena=arena, checker=checker, out=args.out, scheduled=scheduled, fail_fast=bool(args.fault))
            run.introduce(console)
            with screen.showing(console, run):
                run.play()
    except KeyboardInterrupt:
        console.print("\nstopped; nothing is left running")
        return INTERRUPTED
    except (ArenaError, OSError) as error:
        console.print(f"{kind.title} could not go on: {error}", style="red", highlight=False, markup=False)
        return 1
    good = outcome.write(console, run)
    return INTERRUPTED if run.interrupted else 0 if good else 1


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="Use locks in three languages amid every kind of trouble.")
    parser.add_argument("--seconds", type=float, default=60, help="how long, about (60)")
    parser.add_argument("--seed", type=int, help="which troubles (random)")
    parser.set_defaults(arena="nodes")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--demo", action="store_true", help="one lock and a few troubles, in about 20 s")
    for name in ARENAS:
        where.add_argument(f"--{name}", action="store_const", const=name, dest="arena", help=f"on a {name}")
    parser.add_argument(
        "--fault", choices=list(PLANTED), help="make this mistake, and end after the epoch that finds it"
    )
    parser.add_argument("--out", type=Path, help="where the histories go (target/chaos or target/demo)")
    args = parser.parse_args()
    args.out = args.out or TARGET / ("demo" if args.demo else "chaos")
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(10**6)
    for name in ("redlock-driver", "redlock-history"):
        if not (TARGET / "debug" / name).is_file():
            parser.error(f"there is no {TARGET / 'debug' / name}: build it")
    return args


if __name__ == "__main__":
    sys.exit(main())
