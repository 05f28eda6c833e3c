"""Where things are built, the tools for it, and the table of what came of it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dist.version import ROOT

OUT = ROOT / "target" / "dist"
"""What would be published, and beside it the debug symbols and the bills of materials."""
STAGE = Path(tempfile.mkdtemp(prefix="redlock-dist-"))
"""What is thrown away: packages before they are packed, and the strangers' projects. It is not in the checkout, whose
workspace and configuration they must not find."""
atexit.register(shutil.rmtree, STAGE, ignore_errors=True)
BUILT = ROOT / "target" / "dist-build"
"""What Cargo builds for them. It would put some of it into `OUT`, which is emptied each time."""
CARGO_TOOLS = ROOT / "target" / "tools" / "bin"
NODE_TOOLS = Path(__file__).resolve().parent / "node" / "node_modules" / ".bin"
LICENCES = ("LICENSE-MIT", "LICENSE-APACHE")
NOTICES = "THIRD-PARTY.html"

MEGABYTE = 1_000_000


class DistError(Exception):
    """What was built is not fit to be published."""


@dataclass
class Artefact:
    """A file that would be published."""

    path: Path
    most_bytes: int | None = None
    """How large it may be."""
    tried: list[str] = field(default_factory=list)
    """What it was tried with."""
    manuals: set[str] = field(default_factory=set)
    """What the programs `redlock` in it say of themselves."""

    def check_size(self) -> None:
        """Fails if it is too large."""
        size = self.path.stat().st_size
        if self.most_bytes and size > self.most_bytes:
            raise DistError(f"{self.path.name} has {size:,} bytes, and may have {self.most_bytes:,}")


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Runs a command, and returns its output; shows it and fails if the command does."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env or tools(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        shown = " ".join(map(str, command))
        raise DistError(f"exit status {done.returncode} of: {shown}\n{done.stdout.strip()}")
    return done.stdout


def tools() -> dict[str, str]:
    """The environment in which things are built: the tools of this directory come before those of the system."""
    folders = [Path(sys.executable).parent, CARGO_TOOLS, NODE_TOOLS]
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    return os.environ | {"PATH": path, "CARGO_TARGET_DIR": str(BUILT)}


def emptied(folder: Path) -> Path:
    """Makes a folder, or empties it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def copied(files: Sequence[Path], folder: Path) -> None:
    """Copies files into a folder; a link becomes a file."""
    for file in files:
        shutil.copy(file, folder)


def strip(library: Path, *, foreign: bool = False) -> None:
    """Moves the debug symbols of a library into a file of their own, which debuggers find by its name."""
    # Each platform has its files by itself when they are published.
    folder = OUT / "debug" / ("foreign" if foreign else "")
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "darwin":
        run("dsymutil", library, "-o", folder / f"{library.name}.dSYM")
        run("strip", "-x", library)
        return
    symbols = folder / f"{library.name}.debug"
    # That of binutils knows this machine's alone.
    objcopy = "llvm-objcopy" if foreign else "objcopy"
    run(objcopy, "--only-keep-debug", "--compress-debug-sections", library, symbols)
    run(objcopy, "--strip-unneeded", library)
    run(objcopy, f"--add-gnu-debuglink={symbols}", library)
