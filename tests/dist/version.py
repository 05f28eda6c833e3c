"""The version of the crate, the wheel and the npm packages: that of the workspace in Cargo.toml."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def version() -> str:
    """The version, as Cargo writes it."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    found = manifest["workspace"]["package"]["version"]
    assert isinstance(found, str)
    return found


def program_version() -> str:
    """That of the program `redlock` and of the tag, which may be ahead of the library's."""
    manifest = tomllib.loads((ROOT / "core" / "cli" / "Cargo.toml").read_text(encoding="utf-8"))
    found = manifest["package"]["version"]
    assert isinstance(found, str)
    return found


if __name__ == "__main__":
    print(program_version() if sys.argv[1:] == ["--program"] else version())
