"""The crates: the library, and the program."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from dist import cost, legal, stranger
from dist.platforms import Platform
from dist.version import ROOT, program_version, version
from dist.workshop import BUILT, LICENCES, MEGABYTE, OUT, STAGE, Artefact, DistError, emptied, run

NAME = "redlock-core"
PROGRAM = "redlock-cli"
KEPT = ("src/", "docs/", "examples/", "README.md", "Cargo.", "LICENSE-", ".cargo_vcs_info.json")
"""How the names of its files begin: tests and their tables are of no use to its users."""


def make(_: Platform) -> list[Artefact]:
    """Packs the crates, runs a program that depends on nothing else of this checkout, and installs `redlock`."""
    both = ("--package", NAME, "--package", PROGRAM)
    run("cargo", "package", "--locked", *both, "--allow-dirty")
    unpacked = emptied(STAGE / "crate")
    library, program = (_packed(name, unpacked) for name in (f"{NAME}-{version()}", f"{PROGRAM}-{program_version()}"))
    legal.write_bom(ROOT / "core" / "Cargo.toml", "core")
    legal.write_bom(ROOT / "core" / "cli" / "Cargo.toml", "cli")
    print(*cost.table(unpacked / library.path.stem), sep="\n", flush=True)
    library.tried.append(_tried(unpacked / library.path.stem))
    program.manuals.add(_manual(unpacked / program.path.stem, unpacked / library.path.stem))
    program.tried.append("cargo install")
    return [library, program]


def _packed(name: str, unpacked: Path) -> Artefact:
    artefact = Artefact(OUT / f"{name}.crate", MEGABYTE)
    shutil.copy(BUILT / "package" / artefact.path.name, OUT)
    with tarfile.open(artefact.path) as packed:
        packed.extractall(unpacked, filter="data")
    _check(unpacked / name)
    return artefact


def _check(folder: Path) -> None:
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    for name in [*LICENCES, "README.md"]:
        if name not in names:
            raise DistError(f"the crate has no {name}")
    for name in names:
        if not name.startswith(KEPT):
            raise DistError(f"the crate has {name}, which is not for its users")
        legal.check_places(f"{name} of the crate", (folder / name).read_text(encoding="utf-8"))


def _tried(crate: Path) -> str:
    """Runs a program that depends on the unpacked crate; returns the compiler's name."""
    program = emptied(STAGE / "crate-program")
    run("cargo", "init", "--quiet", "--vcs", "none", "--name", "stranger", program)
    run("cargo", "add", "--quiet", "--offline", "--path", crate, cwd=program)
    run("cargo", "add", "--quiet", "--offline", "tokio", "--features", "macros,rt-multi-thread", cwd=program)
    shutil.copy(stranger.PROGRAMS / "main.rs", program / "src")
    run("cargo", "build", "--quiet", "--offline", cwd=program)
    stranger.locks(stranger.ran(BUILT / "debug" / "stranger", cwd=program, env=stranger.environment("sh")))
    return " ".join(run("rustc", "--version").split()[:2])


def _manual(crate: Path, library: Path) -> str:
    """Installs the program of the unpacked crate with the unpacked library, uses it, and returns its manual."""
    root = emptied(STAGE / "crate-installed")
    # The lock file knows the library as one of crates.io.
    instead = f'patch.crates-io.{NAME}.path="{library}"'
    options = ("--quiet", "--offline", "--debug", "--no-track", "--config", instead)
    run("cargo", "install", *options, "--path", crate, "--root", root, cwd=root)
    return stranger.commands(root / "bin" / "redlock", cwd=root, env=stranger.environment("sh"))
