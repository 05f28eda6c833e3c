"""The subjects: our faces, the peers, and sockets without a library."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
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
    """Its name in pictures and tables."""
    command: tuple[str, ...]
    """The command of a worker, without the subject's name and the addresses."""
    needs: Path | str
    """A file or a Python module that it needs."""
    configuration: str
    counterpart: str | None = None
    """Our face that this peer's users could use instead, or that of the most similar language."""
    many_nodes: bool = True
    renews: bool = False
    """Whether the library keeps a held lock by itself."""
    processes: int = 100
    """How many workers a machine can start at once."""
    starts_s: float = 20
    """How long its worker may take to start."""
    tasks: int = 64
    """How many tasks or threads a workload of many gives it."""
    cold: tuple[str, ...] | None = None
    """The command of a cold start, without the addresses, if it is not the worker."""
    semaphore: str = ""
    """The configuration of its semaphore; empty if it has none."""
    shared: str = ""
    """The configuration of its lock for readers and writers; empty if it has none."""
    locks: bool = True
    """Whether it has a lock; without one, it takes part only where semaphores are measured."""

    @property
    def missing(self) -> str | None:
        """The reason why it cannot take part, if there is one."""
        if isinstance(self.needs, Path):
            return None if self.needs.exists() else f"{self.needs.name} is not here"
        return None if importlib.util.find_spec(self.needs) else f"the Python package {self.needs} is not installed"

    def worker(self, urls: Sequence[str], ttl_ms: int = 10_000) -> list[str]:
        """The command of a worker for these nodes."""
        return [*self.command, "--ttl-ms", str(ttl_ms), self.name, *urls]

    def cold_start(self, urls: Sequence[str]) -> list[str]:
        """The command of a process that acquires once."""
        return [*self.cold, *urls] if self.cold else [*self.command, "--cold", self.name, *urls]


_RUST = (str(TARGET / "dist" / "redlock-bench"),)
_RSLOCK = (str(TARGET / "peers" / "release" / "redlock-bench-rslock"),)
_PYTHON = tuple(python("bench.python_worker"))
_NODE = (shutil.which("node") or "node", str(HERE / "node_worker.mjs"))
_MODULES = PEERS / "node" / "node_modules"
_GO = ROOT / "target" / "peers" / "redlock-peers-go"
_JAVA = ROOT / "target" / "peers" / "java"
_WARM_UP = 2_000
_THREADS = 32
_DEFAULTS = "its defaults: a fence with every acquisition, renewal in the background, waiters that are woken"
_SEMAPHORE = "`semaphore` with its defaults: a slot with a fence, renewed in the background; waiters are notified"
_SHARED = "`lock` with `shared`, and its defaults: readers with a fence each, renewed in the background"


def _ours(name: str, title: str, language: str, command: tuple[str, ...], needs: Path | str, **more: Any) -> Subject:
    more = {"renews": True, "semaphore": _SEMAPHORE, "shared": _SHARED, **more}
    return Subject(name, OURS, language, f"redlock · {title}", command, needs, _DEFAULTS, **more)


def _bare(name: str, title: str, configuration: str) -> Subject:
    return Subject(name, LIMIT, "Rust", title, _RUST, Path(_RUST[0]), configuration)


def _python(name: str, module: str, configuration: str, counterpart: str, **more: Any) -> Subject:
    tasks = _THREADS if counterpart == "python-sync" else 64
    more = {"counterpart": counterpart, "tasks": tasks, "cold": _cold_python(name), **more}
    return Subject(name, PEER, "Python", name, _PYTHON, module, configuration, **more)


def _node(name: str, package: str, configuration: str, **more: Any) -> Subject:
    more = {"counterpart": "node", "cold": _cold_node(name), **more}
    return Subject(name, PEER, "Node", name, _NODE, _MODULES / package, configuration, **more)


def _go(name: str, configuration: str, **more: Any) -> Subject:
    return Subject(name, PEER, "Go", name, (str(_GO),), _GO, configuration, counterpart="rust-async", **more)


def _java(name: str, title: str, configuration: str, **more: Any) -> Subject:
    command = (shutil.which("java") or "java", "-cp", f"{_JAVA}{os.pathsep}{_JAVA}/*", "Worker")
    warm = (*command, "--warm-up", str(_WARM_UP))
    # Start and warm-up of each worker take seconds of a core.
    more = {"counterpart": "rust-async", "cold": (*command, "--cold", name), "processes": 10, "starts_s": 90, **more}
    return Subject(name, PEER, "Java", title, warm, _JAVA / "Worker.class", configuration, **more)


def _cold_python(name: str) -> tuple[str, ...]:
    return (sys.executable, str(HERE / "cold.py"), name)


def _cold_node(name: str) -> tuple[str, ...]:
    return (_NODE[0], str(HERE / "cold.mjs"), name)


_REDISSON = (
    "`lock()`, renewed by its watchdog, whose time-out is the ttl; one node, because `RedissonRedLock` is deprecated; "
    f"epoll over a unix socket, else NIO; {_WARM_UP:,} pairs before anything but a cold start is measured; at most 10 "
    "processes at once"
)
_ALONE = "as `redisson`; it takes part only where semaphores are measured"
_PERMITS = (
    "`RPermitExpirableSemaphore`, whose permits are leased for the ttl and not renewed; waiters are notified by "
    "messages of a channel; one node"
)
_COUNTER = (
    "`RSemaphore`, a counter: the permit of a process that crashed never comes back; waiters are notified by messages "
    "of a channel; one node"
)
_READ_WRITE = (
    "`RReadWriteLock`, renewed by its watchdog; waiters are notified by messages of a channel; the mutex is `RLock`"
)
_ZSET = (
    "`Semaphore`, on several nodes `RedlockSemaphore`, which lets in more than its limit if callers reach different "
    "majorities; tried again after 10 ms, which is its default; it renews by default, after 0.8 of the ttl"
)
_RSLOCK_WAITS = "`acquire`, which waits for ever"

SUBJECTS = [
    _bare("bare", "bare socket", "SET NX PX, and EVALSHA of compare and delete"),
    _bare("bare-scripts", "bare socket, our scripts", "the scripts of this library, fence included"),
    _ours("rust-async", "Rust", "Rust", _RUST, Path(_RUST[0])),
    _ours("rust-blocking", "Rust, blocking", "Rust", _RUST, Path(_RUST[0])),
    _ours("python-sync", "Python", "Python", _PYTHON, "redlock", tasks=_THREADS, cold=_cold_python("python-sync")),
    _ours("python-asyncio", "Python, asyncio", "Python", _PYTHON, "redlock", cold=_cold_python("python-asyncio")),
    _ours("node", "Node", "Node", _NODE, ROOT / "node" / "lib" / "index.js", cold=_cold_node("node")),
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
        semaphore=_ZSET,
    ),
    _go("redsync", "`WithFailFast(true)`, tried again after 50 to 250 ms, without end"),
    _go(
        "rueidislock",
        "`KeyMajority: 1` and `NoLoopTracking: true`, which are for one node; it renews, and a try takes 20 ms at most",
        many_nodes=False,
        renews=True,
    ),
    _java(
        "redisson",
        "redisson",
        _REDISSON,
        many_nodes=False,
        renews=True,
        semaphore=_PERMITS,
        shared=_READ_WRITE,
    ),
    _java("redisson-semaphore", "redisson RSemaphore", _ALONE, many_nodes=False, semaphore=_COUNTER, locks=False),
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
