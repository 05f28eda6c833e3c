"""The Python worker of the demo: one process that fights for the lock.

`demo.py` starts it beside its siblings in Rust (`src/`) and Node (`worker.mjs`), which do the same. The lock protects a
file with a counter that each holder reads and writes back increased, so that two holders at once lose an update.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import redlock
import redlock.asyncio

LOOK_S = 0.02
"""How often a holder asks whether it still holds the lock."""

BREATH_S = 0.1
"""The pause after a failed call."""

RENEWED_NS = 100_000_000
"""By how much more must remain than before, so that a renewal is worth a line."""


class Lock(Protocol):
    """The interface of a lock in either face."""

    @property
    def fence(self) -> int:
        """The fencing token."""

    @property
    def remaining(self) -> float:
        """Seconds left of the validity."""

    def check(self) -> None:
        """Raises `LockLost` when the lock is lost."""


def now_ns() -> int:
    """The clock that all processes of the machine share."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def say(event: str, **values: object) -> None:
    """Writes one line at once."""
    line = json.dumps({"event": event, **values}) + "\n"
    try:
        os.write(sys.stdout.fileno(), line.encode())
    except BrokenPipeError:
        # The reader has gone, so there is nothing left to fight for.
        os._exit(1)


def failed(call: str, asked_ns: int, fence: int | None, error: redlock.RedlockError) -> None:
    """Reports a failed call."""
    at_ns = now_ns()
    say("error", call=call, asked_ns=asked_ns, at_ns=at_ns, fence=fence, code=error.code, message=str(error))


class Orders:
    """The first line of input starts the worker, `keep N` makes its next hold N ms long, the end of input stops it."""

    def __init__(self) -> None:
        self.stopped = False
        self._keep_ms = 0
        self._started = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def await_start(self) -> None:
        """Returns when the worker should start."""
        self._started.wait()

    def keep_s(self) -> float | None:
        """How long to keep the hold that begins now, if it was ordered."""
        keep_ms, self._keep_ms = self._keep_ms, 0
        return keep_ms / 1000 if keep_ms else None

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.startswith("keep "):
                self._keep_ms = int(line.removeprefix("keep "))
            self._started.set()
        self.stopped = True
        self._started.set()


@dataclass
class Hold:
    """One hold of the lock, from its acquire to its release or loss."""

    lock: Lock
    file: Path
    orders: Orders
    fence: int = field(init=False)

    def __post_init__(self) -> None:
        # The clock is read first: the recorded end of validity must not be later than the library means it.
        at_ns = now_ns()
        remaining_ns = int(self.lock.remaining * 1e9)
        self.fence = self.lock.fence
        keep_s = self.orders.keep_s()
        self._kept = keep_s is not None
        say("acquired", at_ns=at_ns, fence=self.fence, remaining_ns=remaining_ns, kept=self._kept)
        # 5 to 100 ms, different every time, so that the workers do not fall into step.
        length_s = keep_s if keep_s is not None else (5 + self.fence % 96) / 1000
        self._valid_until_ns = at_ns + remaining_ns
        self._end_ns = at_ns + int(length_s * 1e9)
        self._lost = False
        self._count = self._read()

    def nap_s(self) -> float | None:
        """How long to sleep before the next look at the lock; `None` at the end."""
        left_s = (self._end_ns - now_ns()) / 1e9
        if self._lost or left_s <= 0 or (self._kept and self.orders.stopped):
            return None
        return min(left_s, LOOK_S)

    def look(self) -> None:
        """Records the lock's own view of its state."""
        try:
            self.lock.check()
        except redlock.LockLost as error:
            self.lost(error)
            return
        at_ns = now_ns()
        remaining_ns = int(self.lock.remaining * 1e9)
        if at_ns + remaining_ns > self._valid_until_ns + RENEWED_NS:
            self._valid_until_ns = at_ns + remaining_ns
            say("renewed", at_ns=at_ns, fence=self.fence, remaining_ns=remaining_ns)

    def finish(self) -> bool:
        """Writes the file, unless the lock is lost; returns whether there is something to release."""
        if self._lost:
            return False
        if self._count is not None:
            self.file.write_text(f"{self._count + 1} {self.fence}\n")
            say("counted", fence=self.fence)
        return True

    def released(self, asked_ns: int) -> None:
        """Reports the release."""
        say("released", asked_ns=asked_ns, at_ns=now_ns(), fence=self.fence)

    def lost(self, error: redlock.LockLost) -> None:
        """Reports the loss."""
        self._lost = True
        say("lost", at_ns=now_ns(), fence=self.fence, reason=str(error.reason))

    def pause_s(self) -> float:
        """How long to wait before the next round: 20 to 120 ms, which lets the others come first."""
        return (20 + self.fence // 96 % 101) / 1000

    def _read(self) -> int | None:
        text = self.file.read_text()
        words = text.split()
        if not text.endswith("\n") or len(words) != 2:
            # Another worker is writing the file at this moment.
            say("damage", message=f"found the file half written: {text!r}")
            return None
        count, fence = map(int, words)
        if fence >= self.fence:
            say("damage", message=f"holds fence {self.fence}, but the file has seen {fence} already")
            return None
        return count


def fight_sync(name: str, nodes: Sequence[str], ttl: float, timeout: float, file: Path) -> None:
    """Fights with the sync face."""
    client = redlock.Redlock(nodes, ttl=ttl, timeout=timeout)
    say("ready")
    orders = Orders()
    orders.await_start()
    while not orders.stopped:
        asked_ns = now_ns()
        say("asking", at_ns=asked_ns)
        lock = client.lock(name)
        try:
            if not lock.acquire():
                raise redlock.LockTimeout(f"others held {name} for {timeout} s")
        except redlock.RedlockError as error:
            failed("acquire", asked_ns, None, error)
            time.sleep(BREATH_S)
            continue
        hold = Hold(lock, file, orders)
        while (nap_s := hold.nap_s()) is not None:
            time.sleep(nap_s)
            hold.look()
        if hold.finish():
            asked_ns = now_ns()
            try:
                lock.release()
                hold.released(asked_ns)
            except redlock.LockLost as error:
                hold.lost(error)
            except redlock.RedlockError as error:
                failed("release", asked_ns, hold.fence, error)
        time.sleep(hold.pause_s())


async def fight_asyncio(name: str, nodes: Sequence[str], ttl: float, timeout: float, file: Path) -> None:
    """Fights with the asyncio face."""
    client = redlock.asyncio.Redlock(nodes, ttl=ttl, timeout=timeout)
    say("ready")
    orders = Orders()
    orders.await_start()
    while not orders.stopped:
        asked_ns = now_ns()
        say("asking", at_ns=asked_ns)
        lock = client.lock(name)
        try:
            if not await lock.acquire():
                raise redlock.LockTimeout(f"others held {name} for {timeout} s")
        except redlock.RedlockError as error:
            failed("acquire", asked_ns, None, error)
            await asyncio.sleep(BREATH_S)
            continue
        hold = Hold(lock, file, orders)
        while (nap_s := hold.nap_s()) is not None:
            await asyncio.sleep(nap_s)
            hold.look()
        if hold.finish():
            asked_ns = now_ns()
            try:
                await lock.release()
                hold.released(asked_ns)
            except redlock.LockLost as error:
                hold.lost(error)
            except redlock.RedlockError as error:
                failed("release", asked_ns, hold.fence, error)
        await asyncio.sleep(hold.pause_s())


def main() -> None:
    """Fights until standard input ends."""
    parser = argparse.ArgumentParser(description="Fight for a lock until standard input ends.")
    parser.add_argument("--face", choices=["sync", "asyncio"], required=True)
    parser.add_argument("--name", required=True, help="the name of the lock")
    parser.add_argument("--ttl", type=int, required=True, help="in milliseconds")
    parser.add_argument("--timeout", type=int, required=True, help="how long one acquire may wait, in milliseconds")
    parser.add_argument("--file", type=Path, required=True, help="the file that the lock protects")
    parser.add_argument("nodes", nargs="+")
    args = parser.parse_args()
    given = (args.name, args.nodes, args.ttl / 1000, args.timeout / 1000, args.file)
    if args.face == "asyncio":
        asyncio.run(fight_asyncio(*given))
    else:
        fight_sync(*given)


if __name__ == "__main__":
    main()
