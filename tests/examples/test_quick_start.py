"""The quick start and the fenced store are examples, and run. That in Rust is run by `core/tests/suite/readme.rs`."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from examples.program import EXAMPLES, NODE_PACKAGES, ROOT, environment, link_packages
from support.servers import Server

QUICK_START, FENCE = ((ROOT / "core" / "docs" / f"{page}.md").read_text() for page in ("quick-start", "fence"))


def run(server: Server, directory: Path, *command: str) -> str:
    """Runs a program, which has `server` as its node and must succeed; returns its output."""
    done = subprocess.run(
        command, cwd=directory, env=environment([server.url]), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("name", "language", "page"),
    [
        ("quickstart.py", "python", QUICK_START),
        ("quickstart_asyncio.py", "python", QUICK_START),
        ("quickstart.mjs", "js", QUICK_START),
        ("shapes.py", "python", QUICK_START),
        ("fenced_account.py", "python", FENCE),
    ],
    ids=lambda value: None if value in (QUICK_START, FENCE) else value,
)
def test_example_stands_on_its_page(name: str, language: str, page: str) -> None:
    assert f"```{language}\n{(EXAMPLES / name).read_text()}```\n" in page


def test_fenced_store_stands_on_its_page() -> None:
    text = (EXAMPLES / "fenced_store.py").read_text()
    quoted = text.split("# docs: begin\n")[1].split("# docs: end\n")[0].strip()
    assert f"```python\nimport sqlite3\n\n\n{quoted}\n```\n" in FENCE


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
        assert "held by this process" in said
        assert not server.get("cron:nightly")


def test_shapes(tmp_path: Path) -> None:
    with Server() as server:
        said = run(server, tmp_path, sys.executable, str(EXAMPLES / "shapes.py"))
        move, compute, lead = said.splitlines()
        assert move == "move between account:7 account:8"
        assert compute in {f"compute on {slot}" for slot in range(4)}
        assert re.fullmatch(r"lead in term \d+", lead)
        left = server.keys()
        assert {key.partition(b"fence:")[0] for key in left} == {b"redlock:"}, "all are released"


def test_fenced_account(tmp_path: Path) -> None:
    with Server() as server:
        for _ in range(3):
            run(server, tmp_path, sys.executable, str(EXAMPLES / "fenced_account.py"))
    with sqlite3.connect(tmp_path / "accounts.db") as accounts:
        assert accounts.execute("SELECT value FROM store").fetchall() == [("3",)]
