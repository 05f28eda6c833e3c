"""Runs one step of a make goal: says what it is and how long it takes, and keeps what it prints for a failure.

    step.py "building the packages" --about 100 -- cargo build
    step.py "unit tests" --show -- cargo test
    step.py "unit tests" --show --beside "lints" "cargo clippy" -- cargo test
    step.py --times --budget 900 --strict

The output goes to a file below `target/steps`, of which a failure prints the end. `--show` lets it through.
`--beside` is another step, by a command of the shell, for the processor's time that this one leaves.
`--times` prints the seconds of every step since it was last printed, and of all of them together beside their budget.
With `--strict` it fails if they took half as long again.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

STEPS = Path(__file__).parents[2] / "target" / "steps"
TIMES = STEPS / "times.txt"
NOTICED_S = 1.0
"""A step that takes less is done already, and is not worth a line."""

TOLD_EVERY_S = 20.0
"""How often a step says that it goes on, where nobody sees a line change."""

SHOWN_LINES = 40

OVERRUN = 1.5
"""How much longer than its budget a goal may take, because machines differ."""


def main() -> int:
    """Runs the step; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("title", nargs="?", help="what the step does")
    parser.add_argument("--about", type=int, help="how many seconds it takes the first time")
    parser.add_argument("--show", action="store_true", help="let its output through")
    parser.add_argument("--beside", nargs=2, metavar=("TITLE", "COMMAND"), help="another step, on what time is left")
    parser.add_argument("--times", action="store_true", help="print the seconds of all steps, and forget them")
    parser.add_argument("--budget", type=int, default=0, help="how many seconds all steps may take together")
    parser.add_argument("--strict", action="store_true", help="fail if they take half as long again")
    own, command = sys.argv[1:], []
    if "--" in own:
        place = own.index("--")
        own, command = own[:place], own[place + 1 :]
    args = parser.parse_args(own)
    STEPS.mkdir(parents=True, exist_ok=True)
    if args.times:
        return int(print_times(args.budget) > OVERRUN * args.budget and args.strict)
    beside = start_beside(*args.beside) if args.beside else None
    begun = time.monotonic()
    status = subprocess.run(command, check=False).returncode if args.show else quiet(args.title, args.about, command)
    took = time.monotonic() - begun
    if took >= NOTICED_S:
        with TIMES.open("a", encoding="utf-8") as times:
            times.write(f"{begun:.0f}\t{took:.0f}\t{args.title}\n")
    other = beside.wait() if beside else 0
    return status or other


def start_beside(title: str, command: str) -> subprocess.Popen[bytes]:
    """Starts another step, which runs while this one waits."""
    return subprocess.Popen(["nice", "-n", "19", sys.executable, __file__, title, "--", "sh", "-c", command])


def quiet(title: str, about: int | None, command: list[str]) -> int:
    """Runs a command whose output only a failure shows."""
    path = STEPS / f"{title.replace(' ', '-').replace('/', '-')}.log"
    with path.open("w", encoding="utf-8") as log:
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            watch(running, title + (f" (about {about} s the first time)" if about else ""), path)
        except KeyboardInterrupt:
            running.terminate()
            running.wait()
            raise
    if running.returncode:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        print(f"{title} failed:", *lines[-SHOWN_LINES:], f"all of it: {path}", sep="\n", file=sys.stderr)
    return running.returncode


def watch(running: subprocess.Popen[bytes], title: str, log: Path, out: TextIO = sys.stdout) -> None:
    """Waits for the end, and meanwhile shows the time and how far it is."""
    begun = time.monotonic()
    told = 0.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(0.2)
        took, ended = time.monotonic() - begun, running.returncode is not None
        compiled = log.read_text(encoding="utf-8", errors="replace").count("   Compiling ")
        line = f"  {title}: {took:.0f} s" + (f", {compiled} crates" if compiled else "")
        if took < NOTICED_S and not (ended and running.returncode):
            line = ""
        if out.isatty():
            out.write(f"\r\033[K{line}" + ("\n" if ended and line else ""))
        elif line and (not told or ended or took - told >= TOLD_EVERY_S):
            told = took
            out.write(f"{line}{', done' if ended else ' …'}\n")
        out.flush()
        if ended:
            return


def print_times(budget: int) -> int:
    """Prints the seconds of every step in one line; returns those of all together."""
    lines = TIMES.read_text(encoding="utf-8").splitlines() if TIMES.exists() else []
    TIMES.unlink(missing_ok=True)
    steps = sorted((int(begun), int(took), title) for begun, took, title in (line.split("\t") for line in lines))
    # Steps may run beside each other.
    whole = max((begun + took for begun, took, _ in steps), default=0) - min((begun for begun, *_ in steps), default=0)
    print(f"{whole} s of {budget}: " + ", ".join(f"{title} {took}" for _, took, title in steps))
    return whole


if __name__ == "__main__":
    sys.exit(main())
