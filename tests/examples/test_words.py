"""Names that were given up do not come back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

GIVEN_UP = {
    r"farewell": "shutdown",
    r"redlock:want": "redlock:waiters",
    r"fence_?keep": "fence_ttl, fenceTtl",
    r"LockInvalid\b|ErrorKind::Invalid\b": "LockInvalidArgument, ErrorKind::InvalidArgument",
    r"extend_to\b": "extend_for",
    r"Redlock::setnx\b": "Redlock::setnx_lock",
    r"NodeState::Failed": "NodeState::Unavailable",
    r"redlock::(?:holder|queue|given|model|simulation)\b": "redlock::bindings, redlock::testing",
    r"crate::(?:lane|gate|lookout|held|wait|cleanup|script|pool|spawn)::": "the folders of core/src",
}
"""What is not written any more, and what is written instead."""

EXEMPT = ("CHANGELOG.md", "tests/examples/test_words.py", "tests/peers/")
"""What tells of former names, and what is other libraries'."""


def sources() -> list[str]:
    """Every file of the repository that says something of this library."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.splitlines() if not path.startswith(EXEMPT) and (ROOT / path).is_file()]


@pytest.mark.parametrize("name", GIVEN_UP)
def test_nobody_uses(name: str) -> None:
    found = []
    for path in sources():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        lines = enumerate(text.splitlines(), 1)
        found += [f"{path}:{number}: {line.strip()}" for number, line in lines if re.search(name, line, re.IGNORECASE)]
    assert not found, f"write {GIVEN_UP[name]}:\n" + "\n".join(found)
