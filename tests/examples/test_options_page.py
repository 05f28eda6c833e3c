"""The example of each option stands on its page, and runs. Those in Rust are an example of the crate."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redlock

from examples.program import NODE_PACKAGES, link_packages
from setup.options_page import (
    ELECTION,
    NAME,
    NAMES,
    PAGE,
    PROGRAM,
    READERS,
    SEMAPHORE,
    SETNX,
    SHAPES,
    USES,
    Use,
    node,
    program,
    python,
    written,
)
from support.tls import CA, CLIENT, CLIENT_KEY


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that examples name, in which the program runs."""
    for file, name in {CA: "ca.pem", CLIENT: "client.pem", CLIENT_KEY: "client.key"}.items():
        shutil.copy(file, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_page_and_program_are_those_of_today() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run: python tests setup.options_page"
    assert list(USES) == re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", page, re.M), (
        "each option of the table has a row in USES"
    )
    assert PROGRAM.read_text(encoding="utf-8") == program(), "run: python tests setup.options_page"


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_in_python(use: Use, files: Path) -> None:
    eval(python(use), {"redlock": redlock})


def test_in_node(files: Path) -> None:
    link_packages(files, NODE_PACKAGES)
    code = ['import { lock, Redlock } from "redlock-rs";', *(f"{node(use)};" for use in USES.values())]
    (files / "options.mjs").write_text("\n".join(code))
    subprocess.run(["node", "options.mjs"], check=True, timeout=30)


@pytest.mark.parametrize("shape", SHAPES)
def test_who_takes_it(shape: str) -> None:
    """What the page says of a kind of lock is what this kind refuses."""
    client = redlock.Redlock("memory://options")
    made: dict[str, Callable[[dict[str, Any]], object]] = {
        NAME: lambda options: client.lock("report", **options),
        SEMAPHORE: lambda options: client.semaphore("report", 2, **options),
        NAMES: lambda options: client.lock_all(["report", "index"], **options),
        READERS: lambda options: client.lock("report", shared=True, **options),
        ELECTION: lambda options: client.election("report", **options),
        SETNX: lambda options: client.lock("report", **{"protocol": "setnx"} | options),
    }
    refused = set()
    for name, use in USES.items():
        value = use.values[name]
        try:
            made[shape]({name: value.total_seconds() if isinstance(value, timedelta) else value})
        except redlock.LockInvalidArgument:
            refused.add(name)
    assert refused == {name for name, use in USES.items() if shape in use.refused}
