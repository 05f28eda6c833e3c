"""What a program pays for the crate: the processor's time to compile it, beside that of the crate `redis`."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

from dist.workshop import STAGE, emptied, run, tools

PROGRAMS = {
    "redis, tokio-comp": ("redis", "--features", "tokio-comp"),
    "redlock-core": (),
    "redlock-core, no default features": ("--no-default-features",),
}
"""What each program depends on; `redlock-core` stands for the crate at hand."""


def table(crate: Path) -> list[str]:
    """Compiles a program for each, for release and from nothing; returns a line with its seconds."""
    return [f"{_seconds(crate, name, arguments):>5.0f} s  {name}" for name, arguments in PROGRAMS.items()]


def _seconds(crate: Path, name: str, arguments: tuple[str, ...]) -> float:
    program = emptied(STAGE / "cost")
    run("cargo", "init", "--quiet", "--vcs", "none", "--name", "cost", program)
    own: tuple[str | Path, ...] = () if name.startswith("redis") else ("--path", crate)
    run("cargo", "add", "--quiet", "--offline", *own, *arguments, cwd=program)
    env = tools() | {"CARGO_TARGET_DIR": str(program / "target"), "CARGO_INCREMENTAL": "0"}
    run("cargo", "fetch", "--quiet", "--offline", cwd=program, env=env)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run("cargo", "build", "--quiet", "--offline", "--release", cwd=program, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(program)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
