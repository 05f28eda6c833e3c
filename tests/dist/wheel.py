"""The wheel and the sdist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from dist import legal, stranger, workshop
from dist.platforms import Platform
from dist.version import ROOT, version
from dist.workshop import LICENCES, MEGABYTE, NOTICES, OUT, STAGE, Artefact, DistError, emptied, run, strip

PYTHON = ROOT / "python"
MINORS = range(11, 16)
"""Which versions of Python 3 it is tried with, as far as this machine has them."""


def make_sdist(_: Platform) -> list[Artefact]:
    """Packs the sources, builds them as pip does, and tries the result."""
    made = emptied(STAGE / "sdist")
    run("maturin", "sdist", "--manifest-path", PYTHON / "Cargo.toml", "--out", made)
    sdist = _only(made, "*.tar.gz")
    with tarfile.open(sdist) as packed:
        _has({*LICENCES, "PKG-INFO", "Cargo.lock", "redlock/py.typed"}, {_below(name) for name in packed.getnames()})
    run("twine", "check", "--strict", sdist)
    artefact = Artefact(Path(shutil.copy(sdist, OUT)), MEGABYTE)
    _try(sys.executable, artefact, workshop.tools())
    return [artefact]


def make_wheel(platform: Platform) -> list[Artefact]:
    """Builds the wheel without symbols, and tries it with every Python of this machine."""
    made = emptied(STAGE / "wheel")
    linux = ["--compatibility", platform.wheel, "--zig"] if platform.wheel else []
    options = ("--profile", "dist", "--locked", "--strip=false", "--target", platform.triple, *linux)
    notices = PYTHON / NOTICES
    legal.write_notices(PYTHON / "Cargo.toml", notices)
    try:
        run("maturin", "build", "--manifest-path", PYTHON / "Cargo.toml", *options, "--out", made)
    finally:
        notices.unlink()
    built = _only(made, "*.whl")
    unpacked = emptied(STAGE / "wheel-unpacked")
    run("wheel", "unpack", "--dest", unpacked, built)
    strip(_only(unpacked, "*/redlock/_native*.so"))
    bom = _only(unpacked, "*/*.dist-info/sboms/*.json")
    bom.write_text(legal.portable_bom(bom.name, bom.read_text(encoding="utf-8")), encoding="utf-8")
    (OUT / "sbom").mkdir(exist_ok=True)
    shutil.copy(bom, OUT / "sbom" / "python.cdx.json")
    run("wheel", "pack", "--dest-dir", OUT, _only(unpacked, "*"))
    artefact = Artefact(OUT / built.name, 4 * MEGABYTE)
    _check(artefact.path)
    for python in _pythons():
        _try(python, artefact, stranger.environment("sh"))
        if python == sys.executable:
            _freeze(artefact)
    return [artefact]


def _check(wheel: Path) -> None:
    if "-linux_" in wheel.name:
        raise DistError(f"no index takes {wheel.name}: its tag says nothing about the libc it needs")
    run("twine", "check", "--strict", wheel)
    run("check-wheel-contents", wheel)
    run("abi3audit", "--strict", wheel)
    with zipfile.ZipFile(wheel) as packed:
        info = f"redlock_rs-{version()}.dist-info"
        wanted = {f"{info}/licenses/{name}" for name in (*LICENCES, NOTICES)} | {"redlock/py.typed"}
        _has(wanted, set(packed.namelist()))


def _pythons() -> list[str]:
    others = [shutil.which(f"python3.{minor}") for minor in MINORS if minor != sys.version_info.minor]
    return [sys.executable, *(path for path in others if path and _runs(path))]


def _runs(python: str) -> bool:
    # A version manager's name for a version that it does not use here runs nothing.
    return subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0


def _try(python: str, artefact: Artefact, env: dict[str, str]) -> None:
    """Installs a package in an empty environment, and has locks with it and with its program."""
    empty = emptied(STAGE / "venv")
    run(python, "-m", "venv", empty)
    bare = empty / "bin" / "python"
    run(bare, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", artefact.path, cwd=empty, env=env)
    stranger.locks(stranger.ran(bare, "-W", "error", stranger.PROGRAMS / "lock.py", cwd=empty, env=env))
    for program in ([bare.with_name("redlock")], [bare, "-W", "error", "-m", "redlock"]):
        artefact.manuals.add(stranger.commands(*program, cwd=empty, env=env))
    told = subprocess.run([bare, "--version"], capture_output=True, text=True, check=True).stdout
    artefact.tried.append(re.sub(r"\s+", " ", told).strip())


def _freeze(artefact: Artefact) -> None:
    """Makes a program of what was tried last with PyInstaller, which follows imports, and has locks with it alone."""
    packages, frozen = _only(STAGE / "venv" / "lib", "*/site-packages"), emptied(STAGE / "frozen")
    program = ("--paths", packages, stranger.PROGRAMS / "lock.py")
    work = frozen / "work"
    run("pyinstaller", "--log-level", "ERROR", "--distpath", frozen, "--specpath", work, "--workpath", work, *program)
    (STAGE / "venv").rename(work / "away")
    env = stranger.environment("sh")
    stranger.locks(stranger.ran(frozen / "lock" / "lock", cwd=frozen, env=env))
    artefact.tried.append("PyInstaller")


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise DistError(f"{len(found)} files for {pattern} in {folder}")
    return found[0]


def _below(name: str) -> str:
    return name.partition("/")[2]


def _has(wanted: set[str], names: set[str]) -> None:
    if missing := wanted - names:
        raise DistError(f"not in the package: {', '.join(sorted(missing))}")
