"""Every program of `core/docs/frameworks.md` is run, with the versions that the page names."""

from __future__ import annotations

import json
import re
from pathlib import Path

from frameworks.page import COMMANDS, FILES, PAGE

HERE = Path(__file__).parent
RUN = "".join((HERE / name).read_text(encoding="utf-8") for name in ("test_python.py", "test_node.py"))


def test_every_program_is_run() -> None:
    assert len(re.findall(r"^```\w+$", PAGE, re.M)) == len(FILES) + len(COMMANDS)
    assert [name for name in FILES if f'"{name}"' not in RUN] == []
    assert [name for name, *_ in COMMANDS if f'command("{name}")' not in RUN] == []


def test_versions() -> None:
    pins = [HERE / "requirements.txt", HERE.parent / "setup" / "tools.txt"]
    python = dict(re.findall(r"^(\w\S*)==(\d+\.\d+)", "\n".join(pin.read_text() for pin in pins), re.M))
    node = json.loads((HERE / "node" / "package.json").read_text())["devDependencies"]
    versions = python | {name: ".".join(version.split(".")[:2]) for name, version in node.items()}
    versions["nestjs"] = versions["@nestjs/core"]
    named = re.findall(r"\b([A-Z]?[a-zA-Z]+) (\d+\.\d+)\b", PAGE.split("Electron", 1)[0])
    assert len(named) > 14
    assert {name: version for name, version in named if versions[name.lower()] != version} == {}
