"""Runs the tests while the CPU is scarce, in the order of a seed, and reports each test case that ever differed.

    make stress                                                   # the tests of `make test`, three rounds
    make stress ARGS='--rounds 5 --quota 0.5 --only conformance'
    make stress ARGS='--busy --seed 7 --only core/tests/suite/main.rs node/test/loss.test.mjs tests/cli'

The CPU is scarce in three ways, which take turns: a quota of half a core, one of a quarter, and two processes that spin
beside the tests. The examples in the documentation of Rust are left out. Logs are in `target/stress`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.process import dying

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "target" / "stress"
PARTS = ("rust", "python", "node", "suites", "cluster", "sentinel")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

LIMIT_S = 600
"""The time limit of a test. It only ends tests that hang."""

HANG_S = 3600
"""The time limit of a program in Rust, whose tests have none of their own."""

END_S = 10

READY = 2
"""How many processes of the tests want the CPU at a time, about."""

NEIGHBOURS = 2
SPIN = [sys.executable, "-S", "-c", "while True: pass"]
ONE_CORE = (
    "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execvp(sys.argv[1], sys.argv[1:])"
)
PIN = [sys.executable, "-S", "-c", ONE_CORE]


@dataclass(frozen=True)
class Round:
    """One run of all that is chosen, under a quota of the CPU in cores, or beside busy neighbours."""

    number: int
    quota: float | None
    seed: int

    def __str__(self) -> str:
        return f"{'busy neighbours' if self.quota is None else f'quota {self.quota:g}'}, seed {self.seed}"


@dataclass(frozen=True)
class Program:
    """A program that runs tests, by its name in the report."""

    name: str
    part: str
    command: Sequence[str]
    cwd: Path = ROOT


# --- How the CPU becomes scarce ---


@contextlib.contextmanager
def scarce(quota: float | None) -> Iterator[tuple[list[str], str]]:
    """Makes it scarce for the block, with the start of each command and a sentence about the way."""
    if quota is None:
        with spinning(NEIGHBOURS, []):
            yield [], f"{NEIGHBOURS} processes spin"
        return
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--property", f"CPUQuota={quota:.0%}", "--"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if subprocess.run([*scope, "true"], capture_output=True, check=False, timeout=END_S).returncode == 0:
            yield scope, "systemd-run"
            return
    pin = PIN if hasattr(os, "sched_setaffinity") else []
    cores = 1 if pin else os.cpu_count() or 1
    with spinning(round(READY * cores * (1 / quota - 1)), pin):
        yield pin, "neighbours that spin, because no quota can be set here"


@contextlib.contextmanager
def spinning(count: int, prefix: Sequence[str]) -> Iterator[None]:
    """Lets so many processes spin for the block."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(dying([*prefix, *SPIN]), start_new_session=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


# --- What runs ---


def chosen(words: Iterable[str]) -> dict[str, list[str]]:
    """The parts to run, and what of each; an empty list is all of it.

    A word is a part, a part with one of its test cases behind a colon, a path with or without a test case, or a folder
    of `tests/`.
    """
    parts = defaultdict[str, list[str]](list)
    for word in words:
        part, colon, rest = word.partition(":")
        if part in PARTS and not rest.startswith(":"):
            parts[part] += [rest] if colon else []
        elif word.partition("::")[0].endswith(".rs"):
            parts["rust"].append(word)
        elif word.startswith(("python/", "node/")):
            parts[word.partition("/")[0]].append(word)
        else:
            parts["suites"].append(word if word.startswith("tests/") else f"tests/{word}")
    return dict(parts)


def rust(only: Sequence[str]) -> Iterator[Program]:
    """Builds the test programs in Rust, in the way of `make test`."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format", "json", "--workspace"]
    lines = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    for artifact in map(json.loads, lines):
        if artifact["reason"] == "compiler-artifact" and artifact["profile"]["test"] and artifact["executable"]:
            name = str(Path(artifact["target"]["src_path"]).relative_to(ROOT))
            tests = [word.partition("::")[2] for word in only if word.partition("::")[0] == name]
            if tests or not only:
                options = [] if "" in tests else [*tests, "--exact"] if tests else []
                yield Program(name, "rust", [artifact["executable"], *options], Path(artifact["manifest_path"]).parent)


def node(only: Sequence[str]) -> Iterator[Program]:
    """The test programs of the package for Node; whole ones, as its runner matches names of tests only by pattern."""
    every = (str(path.relative_to(ROOT)) for path in ROOT.glob("node/test/*.test.mjs"))
    for file in sorted({word.partition("::")[0] for word in only} or every):
        command = ["node", "--test", f"--test-timeout={LIMIT_S * 1000}", "--test-reporter=tap"]
        yield Program(file, "node", [*command, file.removeprefix("node/")], ROOT / "node")


def programs(args: argparse.Namespace) -> list[Program]:
    """All that is chosen."""
    pytest = [sys.executable, str(ROOT / "tests"), "pytest", "-q", "-p", "setup.seeded", f"--timeout={LIMIT_S}"]
    pytest += ["-n", str(args.workers), "--dist", "worksteal"]
    suites = [word for word in args.suites.split() if not word.startswith("--")]
    by_part = {
        "python": (["python/tests"], []),
        "suites": (suites, [word for word in args.suites.split() if word.startswith("--")]),
        "cluster": (args.telling.split(), ["--topology", "cluster"]),
        "sentinel": (args.telling.split(), ["--topology", "sentinel"]),
    }
    found: list[Program] = []
    for part, only in chosen(args.only or PARTS).items():
        if part in by_part:
            every, options = by_part[part]
            found.append(Program(part, part, [*pytest, *options, *(only or every)]))
        else:
            found += rust(only) if part == "rust" else node(only)
    return found


def run(program: Program, prefix: Sequence[str], seed: int, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Runs one program; returns each test case, what came of it, and the text of a failure."""
    log, outcomes = folder / f"{file_name(program.name)}.log", folder / f"{program.part}.jsonl"
    command, env = list(program.command), dict(os.environ)
    if program.part == "rust":
        # The order of a seed is not in a stable libtest, except with this variable.
        env |= {"RUSTC_BOOTSTRAP": "1", "CARGO_MANIFEST_DIR": str(program.cwd)}
        command += ["-Z", "unstable-options", "--shuffle-seed", str(seed)]
    elif program.part != "node":
        command += ["--order-seed", str(seed), "--outcomes", str(outcomes)]
    status = wait([*prefix, *command], program.cwd, env, log, HANG_S if program.part == "rust" else None)
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
        except subprocess.TimeoutExpired:
            return 1
        finally:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGINT)
                process.wait(END_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def file_name(case: str) -> str:
    """A name of a file for a test case."""
    return re.sub(r"[^\w.-]+", "-", case)[:200]


# --- What came of it ---


def rust_outcomes(output: str) -> Iterator[tuple[str, str]]:
    """The tests in the output of a test program in Rust."""
    words = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}
    for name, word in re.findall(r"^test (\S+).* \.\.\. (ok|FAILED|ignored)\b", output, re.MULTILINE):
        yield name, words[word]


def tap_outcomes(output: str) -> Iterator[tuple[str, str]]:
    """The tests in the output of Node's test runner, in the form TAP; the names of suites are in front of theirs."""
    place: list[tuple[int, str]] = []
    for line in output.splitlines():
        if begun := re.fullmatch(r"( *)# Subtest: (.*)", line):
            place = [each for each in place if each[0] < len(begun[1])] + [(len(begun[1]), begun[2])]
        elif ended := re.fullmatch(r"( *)(not )?ok \d+ - (.*?)(?: # (SKIP|TODO)\b.*)?", line):
            above = [name for depth, name in place if depth < len(ended[1])]
            outcome = SKIPPED if ended[4] else FAILED if ended[2] else PASSED
            yield " > ".join([*above, ended[3]]), outcome


def report(seen: Mapping[str, Mapping[Round, str]], logs: Mapping[tuple[Round, str], str]) -> tuple[list[str], bool]:
    """The lines of the report, and whether each test case had the same outcome in every round, and none failed."""
    found = {case: set(outcomes.values()) for case, outcomes in seen.items()}
    differ = sorted(case for case, kinds in found.items() if len(kinds) > 1)
    failed = sorted(case for case, kinds in found.items() if kinds == {FAILED})
    lines = []
    for title, cases in (("not the same in every round", differ), ("failed in every round", failed)):
        lines += [f"{title}:"] if cases else []
        for case in cases:
            lines.append(f"  {case}")
            for number, outcome in seen[case].items():
                lines.append(f"    {outcome:8}{number!s:26}{logs.get((number, case), '')}".rstrip())
            if repeated := next((number for number, outcome in seen[case].items() if outcome == FAILED), None):
                how = ["--busy"] if repeated.quota is None else ["--quota", f"{repeated.quota:g}"]
                words = ["--rounds", "1", *how, "--seed", str(repeated.seed), "--only", case]
                lines.append(f'    make stress ARGS="{shlex.join(words)}"')
    lines.append(f"{len(seen)} test cases: {len(differ)} differed, {len(failed)} failed in every round")
    return lines, not (differ or failed)


def main() -> int:
    """Runs the program; returns exit status 1 if a test case failed or differed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how many rounds (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first round (default: %(default)s)")
    parser.add_argument("--quota", type=float, action="append", default=[], help="a quota in cores; can be repeated")
    parser.add_argument("--busy", action="store_true", help="busy neighbours; with --quota, beside the quotas")
    parser.add_argument("--only", nargs="+", help=f"{', '.join(PARTS)}, a folder of tests/, files or test cases")
    parser.add_argument("--workers", type=int, default=2, help="processes of pytest (default: %(default)s)")
    parser.add_argument("--suites", default="tests/conformance", help=argparse.SUPPRESS)
    parser.add_argument("--telling", default="tests/conformance/test_life.py", help=argparse.SUPPRESS)
    args = parser.parse_args()
    # A shell lets a program in the background ignore Ctrl-C, and its children would inherit that.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    quotas = [*args.quota, *([None] if args.busy else [])] or [0.5, 0.25, None]
    rounds = [Round(i + 1, quotas[i % len(quotas)], args.seed + i) for i in range(args.rounds)]
    shutil.rmtree(LOGS, ignore_errors=True)
    seen = defaultdict[str, dict[Round, str]](dict)
    logs: dict[tuple[Round, str], str] = {}
    found = programs(args)
    for number in rounds:
        folder = LOGS / f"{number.number}"
        folder.mkdir(parents=True)
        with scarce(number.quota) as (prefix, way):
            print(f"round {number.number} of {args.rounds}: {number} ({way})", flush=True)
            for program in random.Random(number.seed).sample(found, len(found)):
                begun, counts = time.monotonic(), Counter[str]()
                for case, outcome, text in run(program, prefix, number.seed, folder):
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
    lines, is_steady = report(seen, logs)
    print("", *lines, sep="\n")
    return 0 if is_steady else 1


if __name__ == "__main__":
    sys.exit(main())
