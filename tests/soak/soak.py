"""Worker processes, counts in them and on the servers, and whether they grow."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from conformance.driver import FACES, Face
from conformance.library import started
from soak.turns import Turns
from support.process import python
from support.servers import LIMIT_S, Cluster, Server

ROOT = Path(__file__).parents[2]
DRIVERS = ROOT / "tests" / "conformance" / "drivers"

MIB = 1 << 20

RUNTIME_DESCRIPTORS = 4
"""How many descriptors a runtime has beside its connections, with the one by which it hears of signals."""

LIVE_ALLOWED = {"rust": 96 << 10, "python": 500, "node": MIB // 2}
"""How much more may be alive by a language's own count, for each node: bytes, in Python blocks of memory."""

LOG_THREAD = "redlock-log"

MARKS = 12
"""How often everything is counted."""

WARM_UP = MARKS // 3
"""Marks before all counts have to be flat; the marks after them are two halves."""

# Fence keys are the only ones that may stay, beside the bell of a semaphore. Of a lock that is shared, everybody counts
# who shares it: one member of the sorted set, `redlock:shared:<fence>`, stands for all of them.
COUNT_KEYS = """
local counts = {0, 0}
for _, key in ipairs(redis.call("KEYS", "*")) do
    local stays = string.sub(key, 1, 14) == "redlock:fence:" or string.sub(key, 1, 18) == "redlock:slot:bell:"
    local kind, is_shared = stays and 2 or 1, redis.call("TYPE", key).ok == "zset"
    counts[kind] = counts[kind] + (is_shared and math.max(1, redis.call("ZCARD", key) - 1) or 1)
end
return counts
"""

SHAPES = ("one", "set", "slot", "term", "shared")
"""What a lock is on: one name, several, a permit of a semaphore, an election, or one name that readers share."""

WORKS = ("cycle", "wait", "names", "clients", "drop", "cancel", "denied")

NAMED = {"one": 1, "set": 3, "slot": 2 + 1, "term": 1, "shared": 1}
"""How many keys may stay of each lock: of a semaphore, the fences of its permits, and its bell."""

POLL_S = 0.05

QUIET_S = 0.5
"""Longer than a worker's node_timeout, for which the library keeps unanswered requests."""

FENCE_BYTES = 300
"""The most that a fence key takes on a server, with its expiry and its place in the tables."""

Json = dict[str, Any]


def cases(work: str, shapes: Sequence[str] = SHAPES, faces: Sequence[str] = tuple(FACES)) -> list[Any]:
    """A case for each of these. In `make gate` each language does each work once, and faces and shapes take turns."""
    repeated = pytest.mark.test_all("another face or another shape does this work in this language")
    turn, languages = WORKS.index(work), dict.fromkeys(FACES[face].language for face in faces)
    chosen = set()
    for k, language in enumerate(languages):
        of = [face for face in faces if FACES[face].language == language]
        chosen.add((shapes[(turn * len(languages) + k) % len(shapes)], of[turn % len(of)]))
    return [
        pytest.param(work, shape, face, marks=[] if (shape, face) in chosen else [repeated])
        for shape in shapes
        for face in faces
    ]


def started_worker(face: str, work: str, nodes: Cluster, *, shape: str = "one") -> Worker:
    """A new process that does `work` on this face, with locks of this shape."""
    target = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
    command = {
        "rust": [str(target / "debug" / "redlock-driver")],
        "python": python("conformance.drivers.python_driver", "-W", "default"),
        "node": ["node", "--expose-gc", str(DRIVERS / "node_driver.mjs")],
    }[FACES[face].language]
    return Worker([*command, "--face", face], nodes, FACES[face], work, shape)


class Worker:
    """A driver of the conformance suite that uses the lock repeatedly; a context manager that kills it."""

    def __init__(self, command: Sequence[str], nodes: Cluster, face: Face, work: str, shape: str) -> None:
        self.label = f"{face.name} {work} {shape}"
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the worker)
        self._loop = asyncio.Runner()
        self._process, library = self._loop.run(started(command, self._errors))
        self._alive = psutil.Process(self._process.pid)
        self.turns = Turns(library, nodes.urls, face, work, shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._loop.run(self._process.wait())
        self._loop.close()
        self._errors.close()

    def perform(self, count: int) -> Json:
        """Lets it take so many turns; returns its report."""
        try:
            return self._loop.run(self.turns.perform(count))
        except EOFError:
            raise AssertionError(f"{self.label} has ended:\n{self._complaints()}") from None

    def end(self) -> None:
        """Lets it end by itself; fails if it has complained."""
        self.turns.library.end()
        code = self._loop.run(asyncio.wait_for(self._process.wait(), LIMIT_S))
        assert (code, self._complaints()) == (0, "")

    def memory(self) -> int:
        """Its resident memory, in bytes."""
        return int(self._alive.memory_info().rss)

    def descriptors(self) -> int:
        """How many files and sockets are open."""
        return self._alive.num_fds()

    def threads(self) -> int:
        """How many threads it has, without the first one that hands over events, which begins with the first event."""
        names = []
        for name in Path(f"/proc/{self._alive.pid}/task").glob("*/comm"):
            # A thread may end meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                names.append(name.read_text().strip())
        if LOG_THREAD in names:
            names.remove(LOG_THREAD)
        return len(names) or self._alive.num_threads()

    def _complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


def lock_keys(nodes: Cluster) -> int:
    """How many keys of locks there are, on all nodes."""
    return sum(_keys(node)[0] for node in nodes)


def _keys(node: Server) -> tuple[int, int]:
    counts = node.command("EVAL", COUNT_KEYS, 0)
    assert isinstance(counts, list)
    locks, fences = counts
    assert isinstance(locks, int)
    assert isinstance(fences, int)
    return locks, fences


def told(nodes: Cluster, field: str) -> int:
    """A number in the servers' INFO, summed over all nodes."""
    texts = [node.command("INFO") for node in nodes]
    lines = (line.partition(b":") for text in texts if isinstance(text, bytes) for line in text.splitlines())
    return sum(int(value) for name, _, value in lines if name == field.encode())


def falls(counts: Callable[[], Json], most: Json, limit_s: float = LIMIT_S) -> None:
    """Waits until no count is above `most`. Releasing may take its time, but not longer than the limit."""
    end = time.monotonic() + limit_s
    while above := {what: count for what, count in counts().items() if count > most.get(what, count)}:
        assert time.monotonic() < end, f"too many {', '.join(above)}: {above}, and right are {most}"
        time.sleep(POLL_S)


def empties(nodes: Cluster, limit_s: float = LIMIT_S) -> None:
    """Waits until no lock's key is left."""
    falls(lambda: {"lock keys": lock_keys(nodes)}, {"lock keys": 0}, limit_s)


@dataclass
class Growth:
    """Whether a worker's actions leave anything behind, in it or on the servers.

    names    how many names so many turns use
    limit_s  longest wait until everything is released
    late_runtimes
             how many runtimes of blocking callers may come late: one for each thread but one, because they come when
             threads ask at the same moment
    """

    worker: Worker
    nodes: Cluster
    live_allowed: int
    names: Callable[[int], int] = lambda _: 1
    limit_s: float = LIMIT_S
    late_runtimes: int = 0

    def judge(self, count: int) -> None:
        """Lets the worker take about `count` turns, and fails if anything grows behind the warm-up."""
        # Each of the tasks that share them takes as many.
        turns = max(1, count // MARKS // 4) * 4
        most = {"lock keys": 0}
        sizes = []
        for mark in range(1, MARKS + 1):
            self.worker.perform(turns)
            falls(self._counts, most | {"fence keys": self.names(mark * turns)}, self.limit_s)
            if mark == WARM_UP:
                most |= self._settled()
            sizes.append({"memory": self.worker.memory(), "server memory": told(self.nodes, "used_memory")})
            print(f"{self.worker.label}, {mark * turns} of {MARKS * turns}: {sizes[-1]}, {self._counts()}", flush=True)
        self._judge_sizes(sizes, self.names(MARKS * turns) - self.names(WARM_UP * turns))

    def _counts(self) -> dict[str, int]:
        """The counts that may not grow at all, and `live`, which is counted exactly."""
        locks, fences = zip(*map(_keys, self.nodes), strict=True)
        return {
            "lock keys": sum(locks),
            # On the node with the most.
            "fence keys": max(fences),
            "descriptors": self.worker.descriptors(),
            "threads": self.worker.threads(),
            "connections": told(self.nodes, "connected_clients"),
            **{what: count for what, count in self.worker.perform(0).items() if what in {"live", "tasks"}},
        }

    def _settled(self) -> dict[str, int]:
        """The counts when none falls any more, with allowances for growth.

        The background connects to a node when it first has something to do there, such as an unanswered release. This
        may be late, so one connection for each node is allowed. So is one for each late runtime.
        """
        late = len(self.nodes) * (1 + self.late_runtimes)
        now = self._counts()
        while True:
            time.sleep(QUIET_S)
            before, now = now, self._counts()
            if all(now[what] >= before[what] for what in now):
                descriptors = late + RUNTIME_DESCRIPTORS * self.late_runtimes
                grown = {"live": self.live_allowed * late, "descriptors": descriptors, "connections": late}
                return {what: count + grown.get(what, 0) for what, count in now.items()}

    def _judge_sizes(self, sizes: list[dict[str, int]], fences: int) -> None:
        """Compares the halves after the warm-up by their minimum, because garbage is not a leak."""
        allowed = {"memory": 8 * MIB, "server memory": MIB + FENCE_BYTES * fences * len(self.nodes)}
        half = (MARKS - WARM_UP) // 2
        for what, most in allowed.items():
            before, after = (min(size[what] for size in part) for part in (sizes[WARM_UP:-half], sizes[-half:]))
            assert after <= before + before // 10 + most, f"{what} grows: from {before} to {after}"
