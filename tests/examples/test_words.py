"""Names that were given up do not come back, and neither do turns of speech that readers stumble over."""

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

TICS = {
    r"\bso long\b(?! as)": "for that long",
    r"\bfor ever\b": "forever, as long as it takes",
    r"\ball the same\b(?! to)": "anyway, still",
    r"\bby how much\b": "how much earlier",
    r"\bat most so many\b": "at most N",
    r"\bmended\b": "fixed",
    r"\banew\b": "again",
    r"\bin good order\b": "cleanly",
    r"\b[Aa]ll else\b": "everything else",
    r"\b(?:know|knows|known) nothing of\b": "does not use, does not know",
    r"\band the like\b": "the whole list",
    r"\bcounts? suspend\b": "keeps running while the machine sleeps",
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b)[a-z]": "is not a",
    r"\bagain and again\b": "repeatedly, keep coming back",
    r"\bruns? out\b": "expires",
    r"\bit does with\b|\bdo with the\b": "needs only",
    r"(?:^|[.:|] )Who(?:ever)? [a-z]+s\b[^?|]*\.": "a noun: the holder, a process",
    r"\bkeeps? off\b": "holds back",
    r"\btime-outs?\b": "timeout",
    r"\btells? of\b": "reports",
    r"\b(?:is|are|was|were) told\b": "is notified, gets",
    r"\bcomes? to (?:its|their) turn\b": "gets its turn",
    r"\bneeds? a person\b": "needs action",
    r"\bany more\b": "no longer",
    r"\bgo(?:es)? on\b": "continues, is under way",
    r"\bfrom the (?:acquire|release) on\b": "counted from the acquire",
    r"\bThere, ": "the library's name: In rslock,",
    r"\b[Nn]othing of it\b": "none of them",
    r"\boftener\b": "more often",
}
"""Turns of speech of pages and messages, and what to write instead."""

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


# --- Prose ---

PAGES = ("core/docs/", "site/pages/", ".github/", "README.md", "core/README.md", "python/README.md", "node/README.md")

CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
"""What a page quotes: programs, names and the titles of tests."""

LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)* (?:[^"\\\n]|\\.)*)"')


def prose() -> list[tuple[str, str]]:
    """The text of each page, on one line for each of its own."""
    pages = [path for path in sources() if path.startswith(PAGES) and path.endswith(".md")]
    return [(path, CODE.sub(lambda code: "\n" * code[0].count("\n"), text_of(path))) for path in pages]


def messages() -> list[tuple[str, str]]:
    """What the engine and its program say: their strings, without those of unit tests."""
    engine = [path for path in sources() if path.startswith("core/src/") and path.endswith(".rs")]
    engine = [path for path in engine if "/testing/" not in path and not path.endswith("testing.rs")]
    shown = []
    for path in engine:
        code = text_of(path).split("#[cfg(test)]")[0]
        lines = [line for line in code.splitlines() if not line.lstrip().startswith("//")]
        shown.append((path, "\n".join(literal for line in lines for literal in LITERAL.findall(line))))
    return shown


@pytest.mark.parametrize("tic", TICS)
def test_nobody_stumbles_over(tic: str) -> None:
    found = [
        f"{path}: …{text[max(0, match.start() - 40) : match.end() + 20]}…"
        for path, text in [*prose(), *messages()]
        for match in re.finditer(tic.replace(" ", r"\s+") if tic[0] != "(" else tic, text, re.M)
    ]
    assert not found, f"write {TICS[tic]}:\n" + "\n".join(found)


def test_tics_are_found() -> None:
    """Each pattern matches a sentence that has it."""
    sentence = (
        "There, so long a node waits for ever all the same. by how much, at most so many, mended anew in good order. "
        "All else knows nothing of it and the like, counts suspend, it is no holder again and again, runs out, it does "
        "with two. Who waits is counted. It keeps off, time-out, tells of it, is told, comes to its turn, needs a "
        "person, any more, goes on from the acquire on. Nothing of it, oftener."
    )
    assert [tic for tic in TICS if not re.search(tic, sentence, re.M)] == []
