"""Somebody who has neither this checkout nor Rust, and tries what was built."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from dist.workshop import DistError, run
from support.servers import Server

PROGRAMS = Path(__file__).resolve().parent / "strangers"
"""Each locks the name `stranger` on the nodes that its argument names, and prints the fence."""


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
