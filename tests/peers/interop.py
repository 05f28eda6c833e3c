"""Processes in which locks of other libraries live, and processes in which ours do.

with Peer("redis-py", nodes.urls) as theirs:
    assert theirs.acquire("foo")
    theirs.release()
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from conformance.driver import ANSWER_LIMIT_S, FACES, Driver
from conformance.history import History
from support.process import python, start

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILT = ROOT / "target" / "peers"

PROGRAMS = {
    "python": python("peers.peer_driver"),
    "node": ["node", str(HERE / "node" / "driver.mjs")],
    "rust": [str(BUILT / "release" / "redlock-peers")],
    "go": [str(BUILT / "redlock-peers-go")],
    "java": ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{BUILT}/java:{BUILT}/java/*", "Driver"],
}
"""What runs the peers of a language."""

OURS = {"python": "python", "node": "node", "rust": "rust", "go": "rust-blocking", "java": "rust-blocking"}
"""Our face that competes with the peers of a language."""

TTL_MS = 10_000

START_LIMIT_S = 60
"""Longest wait for a process to start; Java's takes seconds of both cores."""

Json = dict[str, Any]


class PeerError(Exception):
    """What went wrong in the other library."""


class Peer:
    """A process with one lock of another library; a context manager that kills it."""

    def __init__(self, peer: str, language: str, urls: Sequence[str]) -> None:
        self.label = f"{peer} ({language})"
        self._lines: list[str] = []
        self._answers: queue.Queue[Json | None] = queue.Queue()
        self._asked = 0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self._process = start(PROGRAMS[language], self._errors)
        self._reader = threading.Thread(target=self._read, name=self.label, daemon=True)
        self._reader.start()
        try:
            self._start("open", peer=peer, urls=list(urls))
            self.result(START_LIMIT_S)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(ANSWER_LIMIT_S)
        self._reader.join(ANSWER_LIMIT_S)
        self._errors.close()
        if self._process.stdin:
            # What it has not read any more cannot be flushed.
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def start_acquire(self, name: str, wait_ms: int | None = None, ttl_ms: int = TTL_MS) -> None:
        """Begins to acquire: for ever, or with 0 in one try."""
        self._start("acquire", name=name, ttl_ms=ttl_ms, wait_ms=wait_ms)

    def acquire(self, name: str, wait_ms: int | None = 0, ttl_ms: int = TTL_MS) -> bool:
        """Whether it was acquired."""
        self.start_acquire(name, wait_ms, ttl_ms)
        return self.acquired()

    def acquired(self) -> bool:
        """Whether what was begun has succeeded, waited for."""
        acquired: bool = self.result()["acquired"]
        return acquired

    def release(self) -> None:
        """Releases it."""
        self._start("release")
        self.result()

    @property
    def pending(self) -> bool:
        """Whether it has not answered yet."""
        return self._answers.empty()

    def result(self, limit_s: float = ANSWER_LIMIT_S) -> Json:
        """The answer, waited for; raises `PeerError`."""
        try:
            answer = self._answers.get(timeout=limit_s)
        except queue.Empty:
            raise PeerError(f"{self.label} does not answer:\n{self.log()}") from None
        if answer is None:
            raise PeerError(f"{self.label} has ended:\n{self.log()}")
        if "error" in answer:
            raise PeerError(answer["error"])
        assert answer["id"] == self._asked, f"{answer} is no answer to request {self._asked}"
        return answer

    def log(self) -> str:
        """Every line in both directions, then what it wrote to its standard error."""
        # Not moving the position, which the process shares.
        errors = os.pread(self._errors.fileno(), 1 << 16, 0).decode(errors="replace")
        return "\n".join([*self._lines, errors])

    def _start(self, op: str, **of: Any) -> None:
        self._asked += 1
        line = json.dumps({"id": self._asked, "op": op, **of})
        self._lines.append(f"> {line}")
        assert self._process.stdin
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.append(f"< {line.decode().rstrip()}")
            self._answers.put(json.loads(line))
        self._process.stdout.close()
        self._answers.put(None)


def start_ours(face: str, drivers: Path, history: History) -> Driver:
    """A process with locks of ours; those of Rust are in the directory `drivers`."""
    command = {
        "rust": [str(drivers / "redlock-driver")],
        "python": python("conformance.drivers.python_driver"),
        "node": ["node", str(ROOT / "tests/conformance/drivers/node_driver.mjs")],
    }[FACES[face].language]
    return Driver(FACES[face], command, history, face)
