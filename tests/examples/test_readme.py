"""The README's code is that of the examples, and runs. Rust's is tested beside the crate, in `core/tests/readme.rs`."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from examples.program import EXAMPLES, NODE_PACKAGES, ROOT, environment, link_packages
from support.servers import Server

README = (ROOT / "README.md").read_text()


def run(server: Server, directory: Path, *command: str) -> str:
    """Runs a program, which has `server` as its node and must succeed; returns its output."""
    done = subprocess.run(
        command, cwd=directory, env=environment([server.url]), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("quickstart.py", "python"),
        ("quickstart_asyncio.py", "python"),
        ("quickstart.mjs", "js"),
        ("fenced_account.py", "python"),
    ],
)
def test_example_stands_in_the_readme(name: str, language: str) -> None:
    assert f"```{language}\n{(EXAMPLES / name).read_text()}```\n" in README


def test_fenced_store_stands_in_the_readme() -> None:
    text = (EXAMPLES / "fenced_store.py").read_text()
    quoted = text.split("# docs: begin\n")[1].split("# docs: end\n")[0].strip()
    assert f"```python\nimport sqlite3\n\n\n{quoted}\n```\n" in README


def test_python(tmp_path: Path) -> None:
    with Server() as server:
        said = run(server, tmp_path, sys.executable, str(EXAMPLES / "quickstart.py"))
        assert [line.split()[0] for line in said.splitlines()] == ["held", "3", "others"]
        assert "others get it: False" in said
        assert not server.get("cron:nightly")


def test_asyncio(tmp_path: Path) -> None:
    with Server() as server:
        assert run(server, tmp_path, sys.executable, str(EXAMPLES / "quickstart_asyncio.py")).startswith("held for ")
        assert not server.get("invoice:17")


def test_node(tmp_path: Path) -> None:
    link_packages(tmp_path, NODE_PACKAGES)
    shutil.copy(EXAMPLES / "quickstart.mjs", tmp_path)
    with Server() as server:
        said = run(server, tmp_path, "node", "quickstart.mjs")
        assert "3 lines" in said
        assert "held by another owner" in said
        assert not server.get("cron:nightly")


def test_fenced_account(tmp_path: Path) -> None:
    with Server() as server:
        for _ in range(3):
            run(server, tmp_path, sys.executable, str(EXAMPLES / "fenced_account.py"))
    with sqlite3.connect(tmp_path / "accounts.db") as accounts:
        assert accounts.execute("SELECT value FROM store").fetchall() == [("3",)]
