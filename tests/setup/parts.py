"""The parts of the tests that `make stress` can run, each as the programs that run its tests."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from setup.outcomes import PARTS, chosen

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600
"""The time limit of a test. It only ends tests that hang."""


@dataclass(frozen=True)
class Program:
    """A program that runs tests, by its name in the report."""

    name: str
    part: str
    command: Sequence[str]
    cwd: Path = ROOT


def rust(only: Sequence[str], every: bool) -> Iterator[Program]:
    """Builds the test programs in Rust, in the way of the make goals."""
    packages = [f"redlock-{name}" for name in ("model", "simulation")]
    rest = ["--workspace", *(f"--exclude={name}" for name in packages)]
    builds = [rest, ["--release", *(f"--package={name}" for name in packages)]] if every else [["--workspace"]]
    for build in builds:
        command = ["cargo", "test", "--locked", "--no-run", "--message-format", "json", *build]
        lines = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        for artifact in map(json.loads, lines):
            if artifact["reason"] == "compiler-artifact" and artifact["profile"]["test"] and artifact["executable"]:
                name = str(Path(artifact["target"]["src_path"]).relative_to(ROOT))
                tests = [word.partition("::")[2] for word in only if word.partition("::")[0] == name]
                if tests or not only:
                    options = [] if "" in tests else [*tests, "--exact"] if tests else []
                    options += ["--include-ignored"] if every else []
                    folder = Path(artifact["manifest_path"]).parent
                    yield Program(name, "rust", [artifact["executable"], *options], folder)


def node(only: Sequence[str]) -> Iterator[Program]:
    """The test programs of the package for Node; whole ones, as its runner matches names of tests only by pattern."""
    every = (str(path.relative_to(ROOT)) for path in ROOT.glob("node/test/*.test.mjs"))
    for file in sorted({word.partition("::")[0] for word in only} or every):
        command = ["node", "--test", f"--test-timeout={LIMIT_S * 1000}", "--test-reporter=tap"]
        yield Program(file, "node", [*command, file.removeprefix("node/")], ROOT / "node")


def programs(args: argparse.Namespace) -> list[Program]:
    """All that is chosen."""
    everything = ["--all"] if args.all else []
    pytest = [sys.executable, str(ROOT / "tests"), "pytest", "-q", "-p", "setup.seeded", f"--timeout={LIMIT_S}"]
    pytest += ["-n", str(args.workers), "--dist", "worksteal", *(["-k", args.k] if args.k else [])]
    suites = [word for word in args.suites.split() if not word.startswith("--")]
    options = [word for word in args.suites.split() if word.startswith("--")]
    by_part = {
        "python": (["python/tests"], []),
        "suites": (suites, [*everything, *options]),
        "cluster": (args.telling.split(), [*everything, "--topology", "cluster"]),
        "sentinel": (args.telling.split(), [*everything, "--topology", "sentinel"]),
    }
    found: list[Program] = []
    for part, only in chosen(args.only or PARTS).items():
        if part in by_part:
            every, with_options = by_part[part]
            found.append(Program(part, part, [*pytest, *with_options, *(only or every)]))
        else:
            found += rust(only, args.all) if part == "rust" else node(only)
    return found
