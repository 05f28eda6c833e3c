"""The programs of the READMEs run, and the first of each page keeps its lock while garbage is collected.

Those in Rust are compiled with the documentation of the crate.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.program import NODE_PACKAGES, ROOT, environment, link_packages
from support.servers import Server

IMPORTS = {"python": "import redlock\n", "node": 'import { lock } from "redlock-rs";\n'}
PRESSURE = {
    "python": "import gc; [[] for _ in range(100_000)]; gc.collect(); print('kept', redlock.lock({name}).locked())\n",
    "node": "for (let turn = 0; turn < 10; turn += 1) {{ gc(); await new Promise((wait) => setTimeout(wait, 10)); }}\n"
    "console.log('kept', await lock({name}).isLocked());\n",
}


def program(page: str, language: str) -> str:
    """The first program of a page, with collections behind the line that acquires its lock."""
    fence = "python" if language == "python" else "[jt]s"
    found = re.search(rf"^```{fence}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found
    code = found[1] if "import" in found[1] else IMPORTS[language] + found[1]
    acquires = re.search(r'^(?!import).*lock\(("[^"]+").*\n', code, re.MULTILINE)
    assert acquires
    indent = "    " if language == "python" else ""
    return code[: acquires.end()] + indent + PRESSURE[language].format(name=acquires[1]) + code[acquires.end() :]


READMES = ["README.md", "python/README.md", "node/README.md"]


def programs(fence: str) -> list[str]:
    """Every program of the READMEs in one language."""
    texts = [(ROOT / page).read_text() for page in READMES]
    return [code for text in texts for code in re.findall(rf"^```{fence}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def run(server: Server, directory: Path, *command: str) -> str:
    done = subprocess.run(
        command, cwd=directory, env=environment([server.url]), capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "core/docs/quick-start.md", "python/README.md"])
def test_python(tmp_path: Path, page: str) -> None:
    with Server() as server:
        said = run(server, tmp_path, sys.executable, "-W", "error", "-c", program(page, "python"))
    assert "kept True" in said


@pytest.mark.parametrize("page", ["README.md", "core/docs/quick-start.md", "node/README.md"])
def test_node(tmp_path: Path, page: str) -> None:
    with Server() as server:
        said = run_in_node(server, tmp_path, program(page, "node"), "--noCheck")
    assert "kept true" in said


def run_in_node(server: Server, directory: Path, code: str, *flags: str) -> str:
    link_packages(directory, NODE_PACKAGES | {"@types/node": ROOT / "node" / "node_modules" / "@types" / "node"})
    (directory / "program.mts").write_text(code)
    tsc = ROOT / "node" / "node_modules" / "typescript" / "bin" / "tsc"
    flags = (*flags, "--target", "es2022", "--module", "nodenext", "--lib", "esnext", "--strict", "--skipLibCheck")
    run(server, directory, "node", str(tsc), "program.mts", "--types", "node", *flags)
    return run(server, directory, "node", "--expose-gc", "program.mjs")


@pytest.mark.parametrize("code", programs("python"))
def test_every_program_in_python(tmp_path: Path, code: str) -> None:
    with Server() as server:
        run(server, tmp_path, sys.executable, "-W", "error", "-c", code)
        left = server.keys()
        assert all(key.startswith(b"redlock:") for key in left), "every lock is released"


@pytest.mark.parametrize("code", programs("(?:js|ts)"))
def test_every_program_in_node(tmp_path: Path, code: str) -> None:
    with Server() as server:
        run_in_node(server, tmp_path, code.replace("redis://127.0.0.1:6379", server.url))
        left = server.keys()
        assert all(key.startswith(b"redlock:") for key in left), "every lock is released"
