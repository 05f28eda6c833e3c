"""What `make demo` compiles is not compiled again for `make test`: dependencies have the same features in both."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_dependencies_have_the_features_that_they_have_in_the_whole_workspace() -> None:
    build = printed("make", "--dry-run", "--no-print-directory", "build")
    packages = re.findall(r"--package (\S+)", build)
    assert packages, build
    others = features("--edges", "normal,build", *(f"--package={name}" for name in packages))
    assert not others - features("--edges", "all", "--workspace"), "the driver asks for features: see its Cargo.toml"


def features(*which: str) -> set[str]:
    """Each crate, its version and its features."""
    listed = printed("cargo", "tree", "--locked", "--offline", "--prefix", "none", "--format", "{p} {f}", *which)
    return {line.removesuffix(" (*)") for line in listed.splitlines()}


def printed(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
