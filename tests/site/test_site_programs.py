"""The programs that only the site shows run, and those of one example print the same in every language.

`make site ARGS=--try` builds those in Rust first.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redlock

from examples.program import NODE_PACKAGES, ROOT, Running, environment, interpreted, link_packages
from support.clock import until
from support.servers import Cluster, Server

EXAMPLES = ROOT / "site" / "examples"
BUILT = ROOT / "target" / "site-cargo" / "debug"

TABS = sorted(file.parent.relative_to(EXAMPLES).as_posix() for file in EXAMPLES.rglob("output.txt"))
LANGUAGES = ["python", "asynchronous", "node", "rust"]

GPUS = 4
HELD: dict[str, Callable[[redlock.Redlock], bool]] = {
    "mutex": lambda client: client.inspect("invoice:17").state == "held",
    "several": lambda client: all(client.inspect(name).state == "held" for name in ("account:7", "account:8")),
    "semaphore": lambda client: [view.state for view in client.inspect_semaphore("gpu", GPUS)].count("held") == 1,
    "election": lambda client: client.election("scheduler").leader() is not None,
}
"""What others see while the program of a tab of `which-lock.md` works."""


def command(example: str, language: str, directory: Path) -> list[str]:
    """Makes a program ready, and returns how it is started."""
    folder = EXAMPLES / example
    if language == "rust":
        return [str(BUILT / example.replace("/", "-"))]
    if language == "node":
        link_packages(directory, NODE_PACKAGES)
        return ["node", str(shutil.copy(folder / "node.mjs", directory))]
    return [sys.executable, str(folder / f"{language}.py")]


def test_every_program_is_run() -> None:
    programs = {
        file.relative_to(EXAMPLES).as_posix() for file in EXAMPLES.rglob("*") if file.suffix in {".py", ".mjs", ".rs"}
    }
    names = {"python": "python.py", "asynchronous": "asynchronous.py", "node": "node.mjs", "rust": "rust.rs"}
    run = {f"{example}/{names[language]}" for example in TABS for language in LANGUAGES}
    assert programs == run | {f"which-lock/{name}/asynchronous.py" for name in HELD}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("example", TABS)
def test_tab_prints_what_the_page_says(example: str, language: str, tmp_path: Path) -> None:
    with Server() as server:
        done = subprocess.run(
            command(example, language, tmp_path),
            cwd=tmp_path,
            env=environment([server.url]),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.stderr == ""
        assert done.stdout == (EXAMPLES / example / "output.txt").read_text()
        assert done.returncode == 0
        left = server.keys()
        assert all(key.startswith(b"redlock:") for key in left), "all locks are released"


@pytest.mark.parametrize("name", HELD)
def test_tab_of_which_lock(name: str, tmp_path: Path) -> None:
    code = (EXAMPLES / "which-lock" / name / "asynchronous.py").read_text()
    is_held = HELD[name]
    with Cluster(3) as nodes, redlock.Redlock(nodes.urls) as client:
        with Running(nodes.urls, tmp_path, *interpreted(tmp_path, "python", code)) as program:
            program.wait_for_work()
            assert is_held(client)
            assert program.end(), program.said
        assert program.said == "working\n"
        until(lambda: not is_held(client), "it is released")
