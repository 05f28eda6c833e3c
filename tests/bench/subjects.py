"""The subjects: our faces, the peers, and a socket without a library."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.process import python

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
PEERS = HERE.parent / "peers"

OURS, PEER, LIMIT = "ours", "peer", "limit"


@dataclass(frozen=True)
class Subject:
    """A subject and its worker."""

    name: str
    kind: str
    language: str
    title: str
    """Its name in tables."""
    command: tuple[str, ...]
    """The command of a worker, without the subject's name and the addresses."""
    needs: Path | str
    """A file or a Python module that it needs."""
    configuration: str
    counterpart: str | None = None
    """Our face that this peer's users could use instead."""
    many_nodes: bool = True
    renews: bool = False
    """Whether the library keeps a held lock by itself."""
    tasks: int = 64
    """How many tasks or threads a workload of many gives it."""

    @property
    def missing(self) -> str | None:
        """The reason why it cannot take part, if there is one."""
        if isinstance(self.needs, Path):
            return None if self.needs.exists() else f"{self.needs.name} is not here"
        return None if importlib.util.find_spec(self.needs) else f"the Python package {self.needs} is not installed"

    def worker(self, urls: Sequence[str], ttl_ms: int = 10_000) -> list[str]:
        """The command of a worker for these nodes."""
        return [*self.command, "--ttl-ms", str(ttl_ms), self.name, *urls]


_RUST = (str(TARGET / "dist" / "redlock-bench"),)
_RSLOCK = (str(TARGET / "peers" / "release" / "redlock-bench-rslock"),)
_PYTHON = tuple(python("bench.python_worker"))
_NODE = (shutil.which("node") or "node", str(HERE / "node_worker.mjs"))
_MODULES = PEERS / "node" / "node_modules"
_THREADS = 32
_DEFAULTS = "its defaults: a fence with every acquisition, renewal in the background, waiters that are woken"


def _ours(name: str, title: str, language: str, command: tuple[str, ...], needs: Path | str, **more: Any) -> Subject:
    return Subject(name, OURS, language, f"redlock · {title}", command, needs, _DEFAULTS, renews=True, **more)


def _python(name: str, module: str, configuration: str, counterpart: str, **more: Any) -> Subject:
    tasks = _THREADS if counterpart == "python-sync" else 64
    return Subject(name, PEER, "Python", name, _PYTHON, module, configuration, counterpart, tasks=tasks, **more)


def _node(name: str, package: str, configuration: str, **more: Any) -> Subject:
    return Subject(name, PEER, "Node", name, _NODE, _MODULES / package, configuration, "node", **more)


_BARE = "SET NX PX, and EVALSHA of compare and delete"
_RSLOCK_WAITS = "`acquire`, which waits for ever"

SUBJECTS = [
    Subject("bare", LIMIT, "Rust", "bare socket", _RUST, Path(_RUST[0]), _BARE),
    _ours("rust-async", "Rust", "Rust", _RUST, Path(_RUST[0])),
    _ours("rust-blocking", "Rust, blocking", "Rust", _RUST, Path(_RUST[0])),
    _ours("python-sync", "Python", "Python", _PYTHON, "redlock", tasks=_THREADS),
    _ours("python-asyncio", "Python, asyncio", "Python", _PYTHON, "redlock"),
    _ours("node", "Node", "Node", _NODE, ROOT / "node" / "lib" / "index.js"),
    Subject("rslock", PEER, "Rust", "rslock", _RSLOCK, Path(_RSLOCK[0]), _RSLOCK_WAITS, counterpart="rust-async"),
    _python("redis-py", "redis", "`Lock` with `timeout`", "python-sync", many_nodes=False),
    _python("redis-py-asyncio", "redis", "`redis.asyncio` `Lock` with `timeout`", "python-asyncio", many_nodes=False),
    _python("pottery", "pottery", "`Redlock` with `auto_release_time`", "python-sync"),
    _python("pottery-aio", "pottery", "`AIORedlock` with `auto_release_time`", "python-asyncio"),
    _python(
        "python-redis-lock", "redis_lock", "`expire` and `auto_renewal`", "python-sync", many_nodes=False, renews=True
    ),
    _node("node-redlock", "redlock", "`acquire`, tried again after 200 ms ± 200 ms, without end"),
    _node("redlock-universal", "redlock-universal", "`createLock`, `createRedlock`, tried again after 100 ms"),
    _node(
        "redis-semaphore",
        "redis-semaphore",
        "`Mutex`, `RedlockMutex`: it renews by default",
        renews=True,
    ),
]
"""All subjects, in the order of the pages."""


def built_in(subjects: Sequence[Subject], directory: Path) -> list[Subject]:
    """The same, with the Rust worker from another directory of cargo's."""
    program = directory / Path(_RUST[0]).name
    return [
        replace(subject, command=(str(program),), needs=program) if subject.command == _RUST else subject
        for subject in subjects
    ]


def chosen(only: Sequence[str]) -> list[Subject]:
    """The subjects in `only`, and the limits; all subjects if `only` is empty."""
    if not any(subject.name in only for subject in SUBJECTS):
        return SUBJECTS
    return [subject for subject in SUBJECTS if subject.kind == LIMIT or subject.name in only]
