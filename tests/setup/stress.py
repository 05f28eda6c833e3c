"""Runs the tests while the CPU is scarce, in the order of a seed, and reports each test case that ever differed.

    make stress                                                   # the tests of `make test`, three rounds
    make stress ARGS='--rounds 5 --quota 0.5 --only conformance'
    make stress ARGS='--busy --seed 7 --only core/tests/suite/main.rs node/test/loss.test.mjs tests/cli -k loss'

The CPU is scarce in three ways, which take turns: a quota of half a core, one of a quarter, and two processes that spin
beside the tests. The examples in the documentation of Rust are left out. Logs are in `target/stress`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from setup.outcomes import (
    FAILED,
    PARTS,
    PASSED,
    Condition,
    Round,
    is_steady,
    report,
    rounds,
    rust_outcomes,
    shuffled,
    tap_outcomes,
)
from setup.parts import ROOT, Program, programs
from setup.scarcity import END_S, scarce
from support.process import dying

LOGS = ROOT / "target" / "stress"
HANG_S = 3600
"""The time limit of a program in Rust, whose tests have none of their own."""


def run(program: Program, prefix: Sequence[str], number: Round, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Runs one program; returns each test case, what came of it, and the text of a failure."""
    log, outcomes = folder / f"{file_name(program.name)}.log", folder / f"{program.part}.jsonl"
    command, env = list(program.command), dict(os.environ)
    if program.part == "rust":
        # The order of a seed is not in a stable libtest, except with this variable.
        env |= {"RUSTC_BOOTSTRAP": "1", "CARGO_MANIFEST_DIR": str(program.cwd)}
        command += ["-Z", "unstable-options", "--shuffle-seed", str(number.seed)]
    elif program.part != "node":
        command += ["--order-seed", str(number.seed), "--outcomes", str(outcomes)]
    interrupt: KeyboardInterrupt | None = None
    try:
        status = wait([*prefix, *command], program.cwd, env, log, HANG_S if program.part == "rust" else None)
    except KeyboardInterrupt as error:
        interrupt = error
    output = log.read_text(encoding="utf-8", errors="replace")
    cases: list[tuple[str, str, str]] = []
    if program.part in {"rust", "node"}:
        read = rust_outcomes if program.part == "rust" else tap_outcomes
        cases += [(f"{program.name}::{name}", outcome, output) for name, outcome in read(output)]
    elif outcomes.exists():
        front = f"{program.part}:" if program.part in {"cluster", "sentinel"} else ""
        lines = map(json.loads, outcomes.read_text(encoding="utf-8").splitlines())
        cases += [(front + line["case"], line["outcome"], line["text"]) for line in lines]
    yield from cases
    if interrupt:
        raise interrupt
    # It failed as a whole, if none of its tests says why.
    failed = status != 0 and not any(outcome == FAILED for _, outcome, _ in cases)
    yield program.name, FAILED if failed else PASSED, output


def wait(command: Sequence[str], cwd: Path, env: dict[str, str], log: Path, limit_s: float | None) -> int:
    """Runs a command to its end; ends it if this program is interrupted, or after the time limit."""
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            dying(command),
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            # Ctrl-C is for this process alone, which ends the others.
            start_new_session=True,
        )
        try:
            return process.wait(limit_s)
        except (KeyboardInterrupt, subprocess.TimeoutExpired) as reason:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
            if isinstance(reason, KeyboardInterrupt):
                raise
            return status


def file_name(case: str) -> str:
    """A name of a file for a test case."""
    return re.sub(r"[^\w.-]+", "-", case)[:200]


def main() -> int:
    """Runs the program; returns exit status 1 if a test case failed or differed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how many rounds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first round (default: %(default)s)")
    parser.add_argument("--quota", type=float, action="append", help="a quota in cores; can be repeated")
    parser.add_argument("--busy", action="store_true", help="busy neighbours; with --quota, beside the quotas")
    parser.add_argument("--only", nargs="+", help=f"{', '.join(PARTS)}, a folder of tests/, files or test cases")
    parser.add_argument("-k", help="only tests of pytest that this expression matches")
    parser.add_argument("--workers", type=int, default=2, help="processes of pytest (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="the tests of `make test-all`")
    parser.add_argument("--suites", default="tests/conformance", help=argparse.SUPPRESS)
    parser.add_argument("--telling", default="tests/conformance/test_life.py", help=argparse.SUPPRESS)
    args = parser.parse_args()
    # A shell lets a program in the background ignore Ctrl-C, and its children would inherit that.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    conditions = [Condition(quota) for quota in args.quota or ([] if args.busy else [0.5, 0.25])]
    conditions += [Condition()] if args.busy or not args.quota else []
    shutil.rmtree(LOGS, ignore_errors=True)
    seen = defaultdict[str, dict[Round, str]](dict)
    logs: dict[tuple[Round, str], str] = {}
    found = programs(args)
    interrupted = False
    try:
        for number in rounds(args.rounds, args.seed, conditions):
            folder = LOGS / f"{number.number}"
            folder.mkdir(parents=True)
            with scarce(number.condition) as (prefix, way):
                print(f"round {number.number} of {args.rounds}: {number} ({way})", flush=True)
                for program in shuffled(found, number.seed):
                    begun, counts = time.monotonic(), Counter[str]()
                    for case, outcome, text in run(program, prefix, number, folder):
                        # A test that passed may fail in its clean-up.
                        if seen[case].get(number) != FAILED:
                            seen[case][number] = outcome
                        counts[outcome] += 1
                        if outcome == FAILED:
                            log = folder / f"{file_name(case)}.failed.log"
                            log.write_text(text, encoding="utf-8")
                            logs[number, case] = str(log.relative_to(ROOT))
                    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
                    print(f"  {program.name}: {told} ({time.monotonic() - begun:.0f} s)", flush=True)
    except KeyboardInterrupt:
        interrupted = True
        print("\ninterrupted; the report is about the test cases that have ended")
    outcomes = {case: list(by_round.items()) for case, by_round in seen.items()}
    print("", *report(outcomes, logs, ["--all"] if args.all else []), sep="\n")
    return 0 if is_steady(outcomes) and not interrupted else 1


if __name__ == "__main__":
    sys.exit(main())
