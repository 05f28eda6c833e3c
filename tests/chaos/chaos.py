"""Workers in Rust, Python and Node use locks amid every kind of trouble, for as long as you like.

The locks are on five servers (`nodes.py`), on a Redis Cluster (`cluster.py`), or on a primary that sentinels name
(`sentinel.py`).

Troubles are a function of the seed (`schedule.py`). The workers record what they do to the locks, and `redlock-history`
judges the records after each epoch. Exit status 0 only if every promise was kept; 1 if not; 130 after Ctrl-C, with a
report up to then. `--demo` plays a short run with one lock instead (`demo.py`).
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from chaos import demo, holds, live, outcome, screen
from chaos.arena import HANDS, ROLES, Arena, ArenaError
from chaos.cluster import Cluster
from chaos.demo import Demo
from chaos.nodes import Nodes
from chaos.planted import PLANTED
from chaos.run import Run
from chaos.schedule import count, epochs, kinds
from chaos.sentinel import Sentinel
from support.clock import now_ns

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
PLAIN_WIDTH = 110
SHOW_EVERY_S = 0.1
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
    if args.schedule:
        for epoch in scheduled:
            console.print(f"epoch {epoch.number + 1}, {epoch.of}", highlight=False)
            for trouble in epoch.troubles:
                console.print(f"  {trouble}", highlight=False)
        return 0
    # A script's background processes ignore the first signal.
    for number in ENDING:
        signal.signal(number, signal.default_int_handler)
    args.out.mkdir(parents=True, exist_ok=True)
    for old in args.out.glob("epoch-*.jsonl"):
        old.unlink()
    kind, roles, hands = (Demo, demo.CREW, 1) if args.demo else (Run, ROLES, args.hands)
    try:
        with ARENAS[args.arena](args.programs, args.seed, args.fault, roles, hands) as arena:
            checker = args.programs / "redlock-history"
            run = kind(arena=arena, checker=checker, out=args.out, scheduled=scheduled, fail_fast=args.fail_fast)
            introduce(console, run)
            play(console, run)
    except KeyboardInterrupt:
        console.print("\nstopped; nothing is left running")
        return INTERRUPTED
    except (ArenaError, OSError) as error:
        console.print(f"{kind.title} could not go on: {error}", style="red", highlight=False, markup=False)
        return 1
    good = report(console, run)
    return INTERRUPTED if run.interrupted else 0 if good else 1


def introduce(console: Console, run: Run) -> None:
    """Prints what is about to happen."""
    arena, scheduled = run.arena, run.scheduled
    if isinstance(run, Demo):
        run.introduce(console)
        return
    told = f"{len(scheduled)} epochs, {sum(len(epoch.troubles) for epoch in scheduled)} troubles"
    console.print(f"seed {arena.seed}: {told} of {len(kinds(scheduled))} kinds (--schedule lists them)")
    crew = f"{len(arena.roles)} processes with {arena.hands} locks at a time"
    console.print(f"{crew}, {arena.what}\n")


def report(console: Console, run: Run) -> bool:
    """Draws the run and prints its result; `True` if every promise held."""
    from chaos import picture  # noqa: PLC0415 - its library takes a second to load

    histories = sorted(run.out.glob("epoch-*.jsonl"))[-3:]
    if isinstance(run, Demo):
        drawn, held = run.out / "timeline.svg", holds.read(histories[0])
        picture.draw(run, drawn, held)
        return demo.write(console, run, held, [drawn, *histories])
    drawn = run.out / "chaos.svg"
    picture.draw(run, drawn)
    again = f"{run.arena.seed}: the same troubles come again with it, though not the same interleaving"
    return outcome.write(console, run, outcome.tables(run), {"seed": again}, [drawn, *histories])


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="Use locks in three languages amid every kind of trouble.")
    parser.add_argument("--seconds", type=float, default=60, help="how long, about (60)")
    parser.add_argument("--seed", type=int, help="which troubles (random)")
    parser.add_argument("--demo", action="store_true", help="one lock and a few troubles, in about 20 s")
    arena = parser.add_mutually_exclusive_group()
    arena.add_argument("--arena", choices=list(ARENAS), default="nodes", help="what the locks are on (nodes)")
    for name in ARENAS:
        arena.add_argument(f"--{name}", action="store_const", const=name, dest="arena", help=f"--arena {name}")
    parser.add_argument("--schedule", action="store_true", help="only list them")
    parser.add_argument("--fault", choices=list(PLANTED), help="make this mistake, which has to be found")
    parser.add_argument("--hands", type=int, default=HANDS, help=f"how many locks a process uses at once ({HANDS})")
    parser.add_argument("--fail-fast", action="store_true", help="end after the first epoch that is bad")
    parser.add_argument(
        "--programs", type=Path, default=TARGET / "debug", help="where redlock-driver and redlock-history are"
    )
    parser.add_argument("--out", type=Path, help="where the picture and the history go (target/chaos or target/demo)")
    args = parser.parse_args()
    if args.demo and args.arena != "nodes":
        parser.error(f"the demo is not played with --arena {args.arena}")
    if args.fault and args.arena not in PLANTED[args.fault].arenas:
        parser.error(f"the fault {args.fault!r} cannot be planted with --arena {args.arena}")
    args.out = args.out or TARGET / ("demo" if args.demo else "chaos")
    if args.seed is None:
        args.seed = random.SystemRandom().randrange(10**6)
    for name in ("redlock-driver", "redlock-history"):
        if not (args.schedule or (args.programs / name).is_file()):
            parser.error(f"there is no {args.programs / name}: build it, or say --programs")
    return args


def play(console: Console, run: Run) -> None:
    """Plays the run and shows it."""
    with live.opened(console, run, lambda at_ns: screen.screen(run, at_ns), lambda: screen.counts(run)) as view:
        shown_s = 0.0

        def show() -> None:
            nonlocal shown_s
            if time.monotonic() > shown_s + SHOW_EVERY_S:
                view.show(now_ns())
                shown_s = time.monotonic()

        run.show = show
        for number in ENDING:
            signal.signal(number, run.interrupt)
        run.play()


if __name__ == "__main__":
    sys.exit(main())
