"""Plants each wrong step in a copy of the tree, and demands that it is found: `make planted`.

    python tests mutants.planted                    every patch
    python tests mutants.planted no-drift no-margin these
    python tests mutants.planted --sample           one of each kind, as `make gate` does

All have one folder for what is built, so that only the engine and what finds the fault are compiled again. The crates
of others are those of the main build. Exit code 1: one was not found, or did not build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from mutants.patches import ROOT, Patch, named
from support.servers import programs

MAIN = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug"
PLACE = ROOT / "target" / "planted"
TREE, BUILT = PLACE / "tree", PLACE / "build" / "debug"

SEEDS = 20_000
"""How many seeds look for a fault, the first of which finds it as long as nothing else changes what a seed plays."""

STORY_S = 60
"""A story takes seconds. One that no longer ends is red too."""


def main() -> int:
    """Plants the patches that are asked for; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="patch", help="only these")
    parser.add_argument("--sample", action="store_true", help="only one of each kind")
    options = parser.parse_args()
    wanted = [patch for patch in named(options.names) if patch.is_sample or not options.sample]
    copy()
    if MAIN.exists() and not BUILT.exists():
        share()
    missed = [patch.name for patch in wanted if not is_found(patch)]
    if missed:
        print(f"not found: {', '.join(missed)}")
    return 1 if missed else 0


def copy() -> None:
    """Brings the copy up to date. What has not changed keeps its time, or it would be compiled again."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        bring(name)
    for path in TREE.rglob("*"):
        if path.is_file() and str(path.relative_to(TREE)) not in names | {"Cargo.lock"}:
            path.unlink()


def share() -> None:
    """Links what the main build has made of the crates of others, whose code does not depend on where the tree is."""

    def unit(path: Path) -> str:
        return path.name.partition(".")[0].rpartition("-")[2]

    others = {unit(path) for path in (MAIN / ".fingerprint").iterdir() if not path.name.startswith("redlock-")}
    for path in (path for folder in (".fingerprint", "build", "deps") for path in (MAIN / folder).iterdir()):
        target = BUILT / path.relative_to(MAIN)
        if unit(path) in others and path.is_dir():
            shutil.copytree(path, target, copy_function=os.link)
        elif unit(path) in others:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)


def bring(name: str) -> None:
    """Copies one file, if it differs."""
    source, target = ROOT / name, TREE / name
    if not target.is_file() or target.read_bytes() != source.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def is_found(patch: Patch) -> bool:
    """Whether the seed, the story or the test case of a patch fails as it has to."""
    began = time.monotonic()
    applied = patch.apply(TREE)
    try:
        line = applied.stderr if applied.returncode else shown(patch)
    finally:
        for name in patch.files:
            bring(name)
    seconds = time.monotonic() - began
    print(f"{patch.name}: {line.strip() if line else 'NOT FOUND'} ({seconds:.0f} s)", flush=True)
    return not applied.returncode and line is not None


def shown(patch: Patch) -> str | None:
    """The line that shows the fault, if there is one."""
    # With all of the tree and an example, the crates of others have the features that they have in the main build.
    usual = ["--workspace", "--example", "quickstart"]
    if patch.story is not None:
        which = ["--package", "redlock-simulation", "--test", "suite"]
    elif patch.case is not None:
        which = [*usual, "--bin", "redlock-driver", "--bin", "redlock-history"]
    else:
        which = [*usual, "--bin", "simulate"]
    build = ["cargo", "build", "--quiet", "--locked", *which]
    # What is left over of a step that was taken out is warned of, and is no concern.
    built = subprocess.run(build, cwd=TREE, env=environment(), capture_output=True, text=True, check=False)
    if built.returncode:
        print(built.stderr[-2_000:])
        return None
    if patch.story is not None:
        return told_by_story(patch)
    return told_by_seed(patch) if patch.case is None else told_by_case(patch)


def told_by_seed(patch: Patch) -> str | None:
    """The line of a seed that shows the fault."""
    command = [str(BUILT / "simulate"), "--seed", str(patch.seed), "--seeds", str(SEEDS), "--all"]
    meant = re.compile(rf"seed \d+: (?!Plan).*({patch.shows})")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as search:
        assert search.stdout is not None
        line = next(filter(meant.match, search.stdout), None)
        search.kill()
    return line


def told_by_story(patch: Patch) -> str | None:
    """The line of a story that shows the fault."""
    assert patch.story is not None
    command = [
        "cargo",
        "test",
        "--locked",
        "--package",
        "redlock-simulation",
        "--test",
        "suite",
        "--",
        "--exact",
        patch.story,
    ]
    try:
        played = subprocess.run(
            command, cwd=TREE, env=environment(), capture_output=True, text=True, timeout=STORY_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "it does not end"
    if f"test {patch.story} ... FAILED" not in played.stdout:
        return None
    return next((line for line in played.stdout.splitlines() if re.search(patch.shows, line)), None)


def told_by_case(patch: Patch) -> str | None:
    """The failing line of a test case of the conformance suite, with the driver in Rust that has the fault."""
    where = [f"tests/conformance/{patch.case}", "--driver-dir", str(BUILT), "--server", str(programs()[0])]
    command = [sys.executable, "-m", "pytest", "-q", "--all", *where]
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    failing = (line for line in played.stdout.splitlines() if line.startswith((">", "E ")))
    return next((line for line in failing if re.search(patch.shows, line)), None)


def environment() -> dict[str, str]:
    """One folder for what is built, in which the engine is compiled again as quickly as can be."""
    return os.environ | {"CARGO_TARGET_DIR": str(PLACE / "build"), "CARGO_INCREMENTAL": "1"}


if __name__ == "__main__":
    sys.exit(main())
