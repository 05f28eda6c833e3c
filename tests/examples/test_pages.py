"""Links of all pages lead somewhere, and the programs and commands of those that answer one question run.

The service that refuses a small fence is a real one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import redlock

from examples.program import EXAMPLES, ROOT, Running, environment
from support.clock import until
from support.ports import free_port
from support.servers import Server

DOCS = ROOT / "core" / "docs"
PROGRAM = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "redlock"


def blocks(page: str, language: str) -> list[str]:
    """The code of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.M | re.S)


def said(urls: list[str], directory: Path, *command: str, **also: str) -> str:
    """The output of a program, which must succeed."""
    environ = environment(urls) | also
    done = subprocess.run(command, cwd=directory, env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


# --- Links ---

REPOSITORY = re.compile(r"https://github\.com/redlock-rs/redlock/blob/(?:main|v\d[^/]*)/")
"""In a release, pages link its tag."""
READMES = [ROOT / "README.md", *(ROOT / name / "README.md" for name in ("core", "core/cli", "python", "node"))]


def rows_alone(text: str) -> list[str]:
    """The rows of tables that begin no table and follow no row, so that they are shown as text."""
    lines = ["", *re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).split("\n"), ""]
    begins = zip(lines, lines[1:], lines[2:], strict=False)
    return [row for above, row, below in begins if row[:1] == "|" != above[:1] and not re.match(r"\| ?:?-", below)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*READMES, *sorted(DOCS.glob("*.md"))], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_tables_are_whole(page: Path) -> None:
    assert not rows_alone(page.read_text())
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "``", page.read_text(), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^()\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.M)
    broken = []
    for target in targets:
        path, _, anchor = REPOSITORY.sub("", target).partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        base = ROOT if REPOSITORY.match(target) else page.parent
        file = base / path if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


# --- Programs and commands ---


def test_a_request_is_paid_once(tmp_path: Path) -> None:
    (program,) = blocks("lock-or-transaction.md", "python")
    assert said([], tmp_path, sys.executable, "-c", program) == "True False\n"
    assert said([], tmp_path, sys.executable, "-c", program) == "False False\n"


def test_commands_for_a_stuck_lock(tmp_path: Path) -> None:
    status, release, check = (code.strip() for code in blocks("stuck-or-lost.md", "sh"))
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    with Server() as server, redlock.Redlock(server.url) as client:
        lock = client.lock("nightly", label="web-2:4711")
        assert lock.acquire()
        assert "web-2:4711" in said([server.url], tmp_path, "sh", "-c", status, PATH=path)
        assert "nightly: released" in said([server.url], tmp_path, "sh", "-c", release, PATH=path)
        with pytest.raises(redlock.LockLost):
            lock.release()
        assert "connected" in said([server.url], tmp_path, "sh", "-c", f"{check} || true", PATH=path)


# --- The fence ---


@pytest.mark.parametrize("name", ["fence_postgres.py", "fence_service.py", "fence_client.py"])
def test_program_stands_on_the_page(name: str) -> None:
    assert f"```python\n{(EXAMPLES / name).read_text()}```\n" in (DOCS / "fence.md").read_text()


def test_a_service_refuses_a_late_holder(tmp_path: Path) -> None:
    port = str(free_port())
    with Server() as server, Running([], tmp_path, sys.executable, str(EXAMPLES / "fence_service.py"), port) as service:
        until(lambda: service.said.startswith("ready"), "it listens")
        for _ in range(2):
            client = [sys.executable, str(EXAMPLES / "fence_client.py"), port]
            assert said([server.url], tmp_path, *client) == "refused: 409\n"
        request = urllib.request.Request(f"http://127.0.0.1:{port}/report", b"x", {"Fence": "7"}, method="PUT")
        with pytest.raises(urllib.error.HTTPError, match="409"):
            urllib.request.urlopen(request)
