"""What commands have written down about themselves; see work.py."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from support.clock import until

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def diary_ns() -> int:
    """Reads the clock of the diaries."""
    return time.clock_gettime_ns(_CLOCK)


@dataclass(frozen=True)
class Entry:
    """One line."""

    at_ns: int
    pid: int
    fence: int
    """0 without a lock."""
    event: str
    detail: str


@dataclass(frozen=True)
class Life:
    """The time in which processes with one fence are known to have lived."""

    fence: int
    from_ns: int
    to_ns: int


class Diary:
    """The file of all commands of a test case."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        """Everything so far, in the order in which it was written."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                # The last line may be incomplete.
                lines, end, _ = file.read().rpartition(b"\n")
            self._read += len(lines) + len(end)
            for line in lines.decode().splitlines():
                at_ns, pid, fence, event, *detail = line.split(" ")
                number = int(fence) if fence != "-" else 0
                self._entries.append(Entry(int(at_ns), int(pid), number, event, " ".join(detail)))
        return self._entries

    def of(self, event: str) -> list[Entry]:
        """The entries about an event, so far."""
        return [entry for entry in self.entries() if entry.event == event]

    def begun(self, count: int = 1) -> list[Entry]:
        """Waits until so many processes have begun; returns their first entries."""
        until(lambda: len(self.of("begin")) >= count, f"{count} begin: {self.entries()[-20:]}")
        return self.of("begin")

    def signals(self) -> list[str]:
        """The signals that were caught so far."""
        return [entry.detail for entry in self.of("signal")]

    def caught(self, name: str, count: int = 1) -> Entry:
        """Waits until so many signals of a kind were caught; returns the last of them."""
        until(lambda: self.signals().count(name) >= count, f"{count} SIG{name}, and not only {self.signals()}")
        return [entry for entry in self.of("signal") if entry.detail == name][-1]

    def last_ns(self) -> int:
        """When the last line of any process was written."""
        return max(entry.at_ns for entry in self.entries())

    def lives(self) -> list[Life]:
        """The lives of all holders, in the order in which they began."""
        times: dict[int, list[int]] = {}
        for entry in self.entries():
            times.setdefault(entry.fence, []).append(entry.at_ns)
        lives = [Life(fence, min(each), max(each)) for fence, each in times.items()]
        return sorted(lives, key=lambda life: life.from_ns)

    def judge(self) -> Sequence[Life]:
        """Fails if two holders were alive at once, or if fences do not rise; returns the lives."""
        lives = self.lives()
        for before, after in pairwise(lives):
            assert before.to_ns < after.from_ns, f"two at once: {before} and {after}"
            assert before.fence < after.fence, f"fences do not rise: {before} and {after}"
        return lives
