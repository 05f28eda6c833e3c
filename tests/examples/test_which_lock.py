"""The programs of `core/docs/which-lock.md` run. Those in Rust are run with the crate's documentation."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redlock

from conformance.story import Asked
from examples.majority_semaphore import COUNTER, PERMITS, SORTED_SET, told, votes
from examples.program import NODE_PACKAGES, ROOT, Running, environment, interpreted, link_packages
from support.clock import until
from support.servers import Cluster, Server

PAGE = (ROOT / "core" / "docs" / "which-lock.md").read_text(encoding="utf-8")

_SECTION = re.compile(r"^## (.+)\n", re.M)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def _programs() -> dict[str, dict[str, str]]:
    """The code in each section of the page, by its language."""
    _, *sections = _SECTION.split(PAGE)
    found: dict[str, dict[str, str]] = {}
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        blocks = _BLOCK.findall(text)
        if blocks:
            found[title] = dict(blocks)
            assert len(found[title]) == len(blocks), f"{title}: two programs in one language"
    return found


PROGRAMS = _programs()

GPUS = 4


def are_held(client: redlock.Redlock, *names: str) -> bool:
    """Whether each of these names is a held lock."""
    return all(client.inspect(name).state == "held" for name in names)


def all_answer(client: redlock.Redlock) -> bool:
    """Whether every server of a client answers."""
    return all(node.state == "free" for node in client.inspect("another name").nodes)


def holders(client: redlock.Redlock) -> list[int | None]:
    """The slots of the page's semaphore that are held."""
    return [view.slot for view in client.inspect_semaphore("gpu", GPUS) if view.state == "held"]


HELD: dict[str, Callable[[redlock.Redlock], bool]] = {
    "A mutex": lambda client: are_held(client, "invoice:17"),
    "A shared lock": lambda client: client.inspect("page").state == "shared",
    "Several names": lambda client: are_held(client, "account:7", "account:8"),
    "A semaphore": lambda client: len(holders(client)) == 1,
    "A lock that changes hands": lambda client: are_held(client, "report:17"),
    "An election": lambda client: client.election("scheduler").leader() is not None,
}
"""What others see while the program of a section works. After it, they see the opposite."""


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    """Three servers, because every lock of the page works on a quorum too."""
    with Cluster(3) as nodes:
        yield nodes


def test_every_program_is_run() -> None:
    run = {title: {"rust", "python", "js"} for title in HELD} | {
        "The same lock again": {"python"},
        "Waiting without taking it": {"python"},
        "The fence": {"python"},
        "Why permits are not counted by majority": {"text"},
    }
    assert {title: set(blocks) for title, blocks in PROGRAMS.items()} == run
    assert len(re.findall(r"^```\w+$", PAGE, re.M)) == sum(len(blocks) for blocks in run.values())


@pytest.mark.parametrize("language", ["python", "js"])
@pytest.mark.parametrize("title", HELD)
def test_what_others_see(nodes: Cluster, tmp_path: Path, title: str, language: str) -> None:
    link_packages(tmp_path, NODE_PACKAGES)
    command = interpreted(tmp_path, language, PROGRAMS[title][language])
    with redlock.Redlock(nodes.urls) as client, Running(nodes.urls, tmp_path, *command) as program:
        program.wait_for_work()
        assert HELD[title](client), program.said
        assert program.end(), program.said
        until(lambda: not HELD[title](client), "it is released")
    assert program.said == "working\n"


def test_the_same_lock_again(nodes: Cluster, tmp_path: Path) -> None:
    command = interpreted(tmp_path, "python", PROGRAMS["The same lock again"]["python"])
    with redlock.Redlock(nodes.urls) as client, Running(nodes.urls, tmp_path, *command) as program:
        program.wait_for_work()
        assert are_held(client, "invoice:17"), program.said
        assert program.end(), program.said
        until(lambda: not are_held(client, "invoice:17"), "it is released")


def test_waiting_without_taking_it(nodes: Cluster, tmp_path: Path) -> None:
    """Who gets the lock does the work, and who waits for it does not."""
    command = interpreted(tmp_path, "python", PROGRAMS["Waiting without taking it"]["python"])
    with redlock.Redlock(nodes.urls) as client:
        with Running(nodes.urls, tmp_path, *command) as program:
            program.wait_for_work()
            assert are_held(client, "report:17"), program.said
            assert program.end(), program.said
        with client.lock("report:17", ttl=60):
            asked = Asked(nodes)
            program = Running(nodes.urls, tmp_path, *command)
            asked.wait()
        with program:
            assert program.end(), program.said
        assert program.said == ""


def test_the_fences(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAMS["The fence"]["python"])
    before: dict[str, int] = {}
    with Server() as server:
        for _ in range(2):
            subprocess.run(
                [sys.executable, str(path)], cwd=tmp_path, env=environment([server.url]), timeout=30, check=True
            )
            with sqlite3.connect(tmp_path / "store.db") as store:
                fences: dict[str, int] = dict(store.execute("SELECT name, fence FROM store"))
            assert {re.sub(r"^gpu:[0-3]$", "gpu", name) for name in fences} == {
                "account:7",
                "account:8",
                "gpu",
                "schedule",
            }
            assert fences["account:7"] == fences["account:8"], "one fence for all names"
            for name in ("account:7", "schedule"):
                assert fences[name] > before.get(name, 0)
            before = fences


@pytest.mark.parametrize("script", [SORTED_SET, COUNTER], ids=["sorted set", "counter"])
def test_a_majority_lets_in_one_caller_too_many(nodes: Cluster, script: str) -> None:
    let_in = votes(nodes, script)
    assert told(let_in) == PROGRAMS["Why permits are not counted by majority"]["text"]
    for server in range(3):
        assert sum(server in servers for servers in let_in.values()) == PERMITS, "no server lets in more"


def test_slots_let_in_as_many_callers_as_there_are_permits(nodes: Cluster) -> None:
    """The callers reach the same two servers as those of the majority."""
    with contextlib.ExitStack() as clients:
        acquired = []
        for unreachable in (2, 1, 0):
            # Servers that were frozen answer late on a busy machine.
            client = clients.enter_context(redlock.Redlock(nodes.urls, timeout=0, node_timeout=2))
            permit = client.semaphore("pool", PERMITS)
            nodes[unreachable].freeze()
            acquired.append(permit.acquire())
            nodes[unreachable].thaw()
            # Until it has answered again, it does not say that others have a slot.
            until(lambda: all_answer(client), "every server answers")  # noqa: B023
            if acquired[-1]:
                clients.callback(permit.release)
        assert acquired == [True, True, False]
