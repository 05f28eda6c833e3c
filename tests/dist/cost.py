"""What a program pays for the crate: the processor's time to compile it, beside that of other crates."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

from dist.workshop import STAGE, DistError, emptied, run, tools

Dependency = tuple[str | Path, ...]
"""What `cargo add` is told."""

PEERS: dict[str, Dependency] = {
    "redis, tokio-comp": ("redis@1", "--features", "tokio-comp"),
    "rslock, tokio-comp": ("rslock@0.10", "--features", "tokio-comp"),
}
"""Others, as their users depend on them."""

OURS: dict[str, Dependency] = {"redlock-core": (), "redlock-core, no default features": ("--no-default-features",)}

MOST = 2.5
"""How many times what rslock costs the crate may cost."""


def table(crate: Path) -> list[str]:
    """Compiles a program for each, for release and from nothing; returns a line with its seconds."""
    own: dict[str, Dependency] = {name: ("--path", crate, *how) for name, how in OURS.items()}
    seconds = {name: _seconds(dependency) for name, dependency in (PEERS | own).items()}
    lines = [f"{took:>5.0f} s  {name}" for name, took in seconds.items()]
    if seconds["redlock-core"] > MOST * seconds["rslock, tokio-comp"]:
        raise DistError("\n".join(["the crate takes too long to compile", *lines]))
    return lines


def _seconds(dependency: Dependency) -> float:
    program = emptied(STAGE / "cost")
    run("cargo", "init", "--quiet", "--vcs", "none", "--name", "cost", program)
    run("cargo", "add", "--quiet", *dependency, cwd=program)
    env = tools() | {"CARGO_TARGET_DIR": str(program / "target"), "CARGO_INCREMENTAL": "0"}
    run("cargo", "fetch", "--quiet", cwd=program, env=env)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run("cargo", "build", "--quiet", "--offline", "--release", cwd=program, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(program)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
