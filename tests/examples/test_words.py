"""Names that were given up do not come back."""

from __future__ import annotations

import functools
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
"""The former names, and the names that replace them."""

INSIDE = {
    r"\b[Ll]anes?\b": "connections",
    r"\b(?:Lookout|Sights?)\b": "Wakeup, Probed, KeyState",
    r"\b(?:Gates?|InLine|gates?)\b": "Waiters, WaiterQueue, Waiter",
    r"\b[Aa]gendas?\b|\bRenewal\b": "Schedule",
    r"\bTitles?\b": "Ownership",
    r"(?<!:)\bOwned\b": "LeaseOwner",
    r"\b(?:Hindrance|hindrance|objection)\b": "Precheck, precheck, why_not_counted",
    r"(?<![\"\w])bar(?:s|red)?\b|\bBarred\b|NoBars": "quarantine",
    r"\b[Ss]uspects?\b": "unresponsive",
    r"\b(?:Introduction|introduction|introduced)\b": "ServerInfo",
    r"\b[Bb]undle[rs]?\b": "Batch, Batcher",
    r"\b(?:Dut(?:y|ies)|dut(?:y|ies))\b": "PendingWork",
    r"\b(?:Debts?|debts?|owed|owes?)\b": "PendingRelease",
    r"\b(?:Garbled|Bundler|Taking|Audience|News|Heard|Ear|ears?)\b": "UnexpectedReply, Flush, EventSink, NodeEvent",
    r"\b(?:Holder|Hold)\b": "LockObject, CurrentLease",
    r"\bhome\b": "runtime",
    r"\bWatch\b": "LossSubscription",
    r"\bTaken::(?:Done|Again|Gone)\b|\bReady::(?:Done|Take)\b": "Taken::{Completed, Pending, Cancelled}, Completion",
    r"\b(?:Unread|enlist|pursue)\b": "Unparsed, add_call, run_acquire",
    r"\b(?:part|tried)\(": "take_lease, none_if_denied",
}
"""The same for the engine's own words, in its sources."""

EXEMPT = ("CHANGELOG.md", "tests/examples/test_words.py", "tests/peers/")
"""Files with former names on purpose, and those about other libraries."""


@functools.cache
def sources() -> list[str]:
    """Every file of the repository that may name something of this library."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.splitlines() if not path.startswith(EXEMPT) and (ROOT / path).is_file()]


@functools.cache
def text_of(path: str) -> str:
    """The file at `path`, if it is text."""
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def lines_with(name: str, path: str, flags: re.RegexFlag = re.NOFLAG) -> list[str]:
    """Where the file at `path` has `name`."""
    if not re.search(name, text_of(path), flags):
        return []
    lines = enumerate(text_of(path).splitlines(), 1)
    return [f"{path}:{number}: {line.strip()}" for number, line in lines if re.search(name, line, flags)]


@pytest.mark.parametrize("name", GIVEN_UP)
def test_nobody_uses(name: str) -> None:
    found = [line for path in sources() for line in lines_with(name, path, re.IGNORECASE)]
    assert not found, f"write {GIVEN_UP[name]}:\n" + "\n".join(found)


@pytest.mark.parametrize("name", INSIDE)
def test_the_engine_does_not_use(name: str) -> None:
    engine = [path for path in sources() if path.startswith("core/src/") and path.endswith(".rs")]
    found = [line for path in engine for line in lines_with(name, path)]
    assert not found, f"write {INSIDE[name]}:\n" + "\n".join(found)
