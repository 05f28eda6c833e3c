"""Somebody who has neither this checkout nor Rust, and tries what was built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from dist.version import program_version
from dist.workshop import DistError, run
from support.servers import Server

PROGRAMS = Path(__file__).resolve().parent / "strangers"
"""Each locks the name `stranger` on the nodes that its argument names, and prints the fence."""

ANSWERS = [
    (["--version"], 0, re.escape(f"redlock {program_version()}\n")),
    (["run", "stranger", "--", "sh", "-c", 'echo "$REDLOCK_NAME $REDLOCK_FENCE"; exit 7'], 7, r"stranger \d+\n"),
    (["run", "--permits", "1", "stranger", "--", "sh", "-c", 'echo "$REDLOCK_SLOT"'], 0, "0\n"),
    (["run", "--shared", "stranger", "--", "echo", "shared"], 0, "shared\n"),
    (["run", "stranger", "--", "./no-such-command"], 127, r"redlock: [^\n]+\n"),
    (["status", "stranger"], 1, r"stranger: free\n(?:  [^\n]+\n)+"),
    (["wait", "stranger"], 0, ""),
    (["release", "stranger"], 64, r"redlock: [^\n]+\n"),
    (["check"], 0, r"\S+: ok\n(?: +[^\n]+\n)+"),
    (["no-such-command"], 64, r"redlock: [^\n]+\n"),
]
"""Arguments of `redlock`, and how it has to end: the status, and a pattern for all that it prints."""

COMMANDS = ("run", "acquire", "extend", "status", "wait", "list", "release", "check")
PAGES = [["manual"], *(["manual", command] for command in COMMANDS)]
"""What shows all that a program can do."""


def environment(*tools: str) -> dict[str, str]:
    """An environment in which only these tools and those of the system are found, and no Rust."""
    folders = {str(Path(found).parent) for tool in tools if (found := shutil.which(tool))} | {"/usr/bin", "/bin"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CARGO", "RUST", "PYTHON"))}
    return kept | {"PATH": os.pathsep.join(sorted(folders))}


def locks(program: Callable[[str], str]) -> None:
    """Runs a program on `memory://` and on a real server, and checks that it had a lock on both."""
    with Server() as server:
        for url in ("memory://stranger", server.url):
            said = program(url).strip().splitlines()
            if not said or not said[-1].isdigit() or int(said[-1]) < 1:
                raise DistError(f"no lock on {url}: {said}")


def ran(*command: str | Path, cwd: Path, env: dict[str, str]) -> Callable[[str], str]:
    """A program that is given the node as its last argument."""
    return lambda url: run(*command, url, cwd=cwd, env=env)


def commands(*program: str | Path, cwd: Path, env: dict[str, str]) -> str:
    """Uses a program as `redlock` on a real server, and returns its manual."""
    with Server() as server:
        for words, status, pattern in ANSWERS:
            done = _ended(*program, *words, cwd=cwd, env=env | {"REDLOCK_URLS": server.url})
            if done.returncode != status or not re.fullmatch(pattern, done.stdout):
                raise DistError(f"exit status {done.returncode} of {program} {words}, not {status}: {done.stdout!r}")
    return "".join(_ended(*program, *words, cwd=cwd, env=env).stdout for words in PAGES)


def _ended(*command: str | Path, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
    )
