"""Workers in Rust, Python and Node fight for one lock on five servers, while nodes and workers freeze and die.

Shows the fight while it continues, then a report, and draws who held the lock when. Exit status 0 only if the history
checker found nothing wrong, every language acquired, no update was lost and no worker failed; 1 if not; 130 after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from rich.console import Console

from chaos import checker, live
from demo import faults, report, timeline, view
from demo.fight import NODES, Fight
from demo.stage import Stage, StageError, cast
from support.clock import now_ns

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLAIN_WIDTH = 110


def main() -> int:
    """Runs the program; returns the exit status."""
    args = parse()
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    signals: list[int] = []
    try:
        fight = asyncio.run(run(console, args.programs, signals))
    except KeyboardInterrupt:
        console.print("\nstopped; nothing is left running")
        return 130
    except asyncio.CancelledError:
        return 128 + signals[0]
    except (StageError, OSError) as error:
        console.print(f"the demo could not begin: {error}", style="red", highlight=False, markup=False)
        return 1
    return close(console, fight, args.programs, args.out)


def parse() -> argparse.Namespace:
    """Parses the command line."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description="Watch workers in three languages fight for one lock.")
    parser.add_argument(
        "--programs", type=Path, default=target / "release", help="where redlock-demo and redlock-history are"
    )
    parser.add_argument("--out", type=Path, default=target / "demo", help="where the picture and the history go")
    args = parser.parse_args()
    for name in ("redlock-demo", "redlock-history"):
        if not (args.programs / name).is_file():
            parser.error(f"there is no {args.programs / name}: build it, or say --programs")
    return args


async def run(console: Console, programs: Path, signals: list[int]) -> Fight:
    """The fight from its first server to its last worker. Signals beside Ctrl-C that end it come into the list."""
    task = asyncio.current_task()
    assert task

    def stop(number: int) -> None:
        signals.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    async with Stage(cast(programs)) as stage:
        fight = stage.fight
        names = ", ".join(f"{worker.name} ({worker.face})" for worker in fight.workers)
        console.print(f"One lock on {NODES} servers ({stage.program}), fought for by {len(fight.workers)} processes:")
        console.print(f"{names}\n", highlight=False)
        with live.opened(console, fight, lambda at_ns: view.screen(fight, at_ns), lambda: view.counts(fight)) as shown:
            stage.begin()
            showing = asyncio.create_task(keep_showing(shown))
            try:
                await faults.commit(stage)
            except StageError as error:
                if str(error) not in fight.troubles:
                    fight.troubles.append(str(error))
            finally:
                showing.cancel()
            await stage.finish()
    return fight


async def keep_showing(shown: live.View) -> None:
    """Shows the fight until cancelled."""
    while True:
        shown.show(now_ns())
        await asyncio.sleep(view.TICK_S)


def close(console: Console, fight: Fight, programs: Path, out: Path) -> int:
    """Judges, draws and reports."""
    out.mkdir(parents=True, exist_ok=True)
    history, picture = out / "history.jsonl", out / "timeline.svg"
    history.write_text("".join(fight.history()))
    judgement = checker.judge(programs / "redlock-history", history)
    timeline.draw(fight, picture)
    return 0 if report.write(console, fight, judgement, [picture, history]) else 1


if __name__ == "__main__":
    sys.exit(main())
