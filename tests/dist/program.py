"""The program `redlock` without Python, Node or Rust: one static file, in an archive, a deb package and an image."""

from __future__ import annotations

import gzip
import json
import os
import platform as machine
import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

from dist import legal, stranger
from dist.platforms import Platform
from dist.version import ROOT, program_version
from dist.workshop import BUILT, LICENCES, MEGABYTE, NOTICES, OUT, STAGE, Artefact, DistError, emptied, run, strip
from support.servers import Server

CRATE = ROOT / "core" / "cli"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
STATIC = [f"{cpu}-unknown-linux-musl" for cpu in ("x86_64", "aarch64")]
COMPLETIONS = {"bash": "redlock.bash", "zsh": "_redlock", "fish": "redlock.fish"}
EXTRAS = ROOT / "target" / "program"
"""The licences, the manual pages and the completions, where the metadata of the deb package looks for them."""

DEB = ROOT / "target" / "deb"
"""The program, likewise."""

SHARED = {
    "man/man1/redlock.1.gz": ".TH REDLOCK 1",
    "man/man1/redlock-run.1.gz": ".TH REDLOCK-RUN 1",
    "zsh/vendor-completions/_redlock": "#compdef redlock",
    "fish/vendor_completions.d/redlock.fish": "complete -c redlock",
    "doc/redlock/copyright": "Permission is hereby granted, free of charge",
    "doc/redlock/THIRD-PARTY.html": "rustls",
}
"""Files of the deb package in /usr/share, and what each has to say."""


def name_of(target: str) -> str:
    """The name of the archive for a target, without its end, and of the folder in it."""
    return f"redlock-{program_version()}-{target}"


def make(platform: Platform) -> list[Artefact]:
    """Builds the program for each target that this machine can build it for, and tries those that it can run."""
    targets = [target for target in STATIC if platform.os == "linux" and _is_installed(target)]
    for target in set(STATIC if platform.os == "linux" else []) - set(targets):
        print(f"left out: the program for {target}; add it with `rustup target add {target}`", flush=True)
    if platform.os != "linux":
        targets = [platform.triple]
    # What runs here comes first: it writes the manual pages of all.
    targets.sort(key=lambda target: not _is_native(target))
    if not targets or not _is_native(targets[0]):
        raise DistError("no program that runs here can be built: `rustup target add` one of the targets above")
    return [artefact for target in targets for artefact in _make(target)]


def _is_installed(target: str) -> bool:
    told = subprocess.run(
        ["rustc", "--print", "target-libdir", "--target", target], capture_output=True, text=True, check=False
    )
    return told.returncode == 0 and Path(told.stdout.strip()).is_dir()


def _is_native(target: str) -> bool:
    return target.startswith({"arm64": "aarch64"}.get(machine.machine(), machine.machine()))


def _runner(target: str) -> list[str] | None:
    """What a command begins with that runs a program for a target here; none if nothing runs it."""
    if _is_native(target):
        return []
    emulators = (f"qemu-{target.partition('-')[0]}{end}" for end in ("-static", ""))
    return next(([found] for emulator in emulators if (found := shutil.which(emulator))), None)


def _make(target: str) -> list[Artefact]:
    build = "zigbuild" if target in STATIC else "build"
    run("cargo", build, "--locked", "--profile", "dist", "--package", "redlock-cli", "--target", target)
    name = name_of(target)
    folder = emptied(STAGE / "program" / name)
    program = Path(shutil.copy(BUILT / target / "dist" / "redlock", folder))
    strip(program, foreign=not _is_native(target))
    if _is_native(target):
        _write_extras(program)
    for file in (*LICENCES, "README.md"):
        shutil.copy(CRATE / file, folder)
    shutil.copytree(EXTRAS, folder, dirs_exist_ok=True)
    archive = Artefact(OUT / f"{name}.tar.gz", round(4.5 * MEGABYTE))
    with tarfile.open(archive.path, "w:gz") as packed:
        packed.add(folder, name)
    unpacked = emptied(STAGE / "program-unpacked")
    with tarfile.open(archive.path) as packed:
        packed.extractall(unpacked, filter="data")
    tried = unpacked / name / "redlock"
    _try(target, archive, tried)
    if target not in STATIC:
        return [archive]
    if _is_native(target):
        archive.tried.append(_tried_as_image(tried))
    return [archive, _deb(target, program)]


def _try(target: str, artefact: Artefact, program: Path) -> None:
    """Uses a program. Neither a shared library nor anything else of the system is needed."""
    runner = _runner(target)
    if runner is None:
        artefact.tried.append("not run: another machine")
        return
    artefact.manuals.add(stranger.commands(*runner, program, cwd=program.parent, env=stranger.environment("sh")))
    artefact.tried.append(" in ".join(["a shell", *(Path(emulator).name for emulator in runner)]))


def _write_extras(program: Path) -> None:
    """Writes the licences of what is in the program, and has it write its manual pages and completions."""
    pages, completions = emptied(EXTRAS / "man"), emptied(EXTRAS / "completions")
    main = run(program, "manual")
    names = re.findall(r"^redlock\\-(\w+)\(1\)$", main, re.MULTILINE)
    if "run" not in names:
        raise DistError(f"the manual page of the program names no commands: {names}")
    for page, text in [("redlock", main), *((f"redlock-{name}", run(program, "manual", name)) for name in names)]:
        (pages / f"{page}.1").write_text(text, encoding="utf-8")
    for shell, file in COMPLETIONS.items():
        (completions / file).write_text(run(program, "completions", shell), encoding="utf-8")
    legal.write_notices(CRATE / "Cargo.toml", EXTRAS / NOTICES)


def _deb(target: str, program: Path) -> Artefact:
    """Packs the deb package, unpacks it as if it were installed, and uses what is in it."""
    made, root = emptied(STAGE / "deb"), emptied(STAGE / "deb-root")
    shutil.copy(program, emptied(DEB))
    options = ("--no-build", "--no-strip", "--target", target, "--profile", "dist", "--output", made)
    run("cargo", "deb", "--package", "redlock-cli", *options)
    (built,) = made.glob("*.deb")
    artefact = Artefact(Path(shutil.copy(built, OUT)), round(4.5 * MEGABYTE))
    run("dpkg-deb", "--extract", artefact.path, root)
    share = root / "usr" / "share"
    for file, text in SHARED.items():
        found = share / file
        said = (gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes()).decode()
        if text not in said:
            raise DistError(f"{file} of the deb package does not say {text!r}")
    completions = share / "bash-completion" / "completions" / "redlock"
    run("bash", "-euc", f". {shlex.quote(str(completions))}; complete -p redlock")
    _try(target, artefact, root / "usr" / "bin" / "redlock")
    return artefact


def _tried_as_image(program: Path) -> str:
    """Lays out the image of deploy/Containerfile, and runs the program there as the first process, alone."""
    place = emptied(STAGE / "image")
    shutil.copy(program, place / "redlock")
    shutil.copy(CERTIFICATES, place) if CERTIFICATES.exists() else (place / CERTIFICATES.name).touch()
    root = emptied(STAGE / "image-root")
    env, entry = _laid_out((ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8"), place, root)
    # Every container has these.
    (root / "proc").mkdir()
    (root / "dev").mkdir()
    (root / "dev" / "null").touch()
    # The image's PATH is not the one to find it by.
    unshare = shutil.which("unshare") or "unshare"
    namespaces = ("--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount")
    with Server(tcp=True) as server:
        command = [unshare, *namespaces, f"--root={root}", "--mount-proc=/proc", *entry]
        command += ["run", "image", "--", "/redlock", "status", "--json", "image"]
        done = subprocess.run(
            command, env=env | {"REDLOCK_URLS": server.url}, capture_output=True, text=True, timeout=60, check=False
        )
    if done.returncode:
        if "unshare" in done.stderr and not os.environ.get("CI"):
            return f"not as an image: {done.stderr.strip()}"
        raise DistError(f"exit status {done.returncode} of {command}: {done.stdout}{done.stderr}")
    (lock,) = json.loads(done.stdout)["locks"]
    if (lock["state"], lock["label"].rpartition(":")[2]) != ("held", "1"):
        raise DistError(f"not held by the first process: {lock}")
    return "an image from scratch"


def _laid_out(text: str, place: Path, root: Path) -> tuple[dict[str, str], list[str]]:
    """Does what a Containerfile of an image from scratch says; returns its environment and entry."""
    env: dict[str, str] = {}
    entry: list[str] = []
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "COPY":
            *files, to = (each for each in rest.split() if not each.startswith("--"))
            (root / to.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            for file in files:
                shutil.copy(place / file, root / to.lstrip("/"))
        elif word == "ENV":
            env |= dict(each.split("=", 1) for each in shlex.split(rest))
        elif word == "ENTRYPOINT":
            entry = json.loads(rest)
        elif line != "FROM scratch" and word != "USER":
            raise DistError(f"deploy/Containerfile: nobody tries this line: {line}")
    return env, entry
