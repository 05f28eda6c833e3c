"""The Python worker of the benchmark: both Python faces, and the peers of `tests/peers`. README.md has its protocol.

    python python_worker.py --ttl-ms 10000 redis-py redis://127.0.0.1:6379

The requests are written once, as coroutines. Those of blocking locks wait only for the lock, and run on threads instead
of tasks.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from importlib.metadata import version
from typing import Any, Protocol, cast

Json = dict[str, Any]

MOST_SAMPLES = 2_000
"""The most samples of a turn; more are thinned out."""

HANDS = 32
"""How many tasks or threads acquire the locks for `hold`."""

OURS = {"python-sync": "redlock", "python-asyncio": "redlock.asyncio"}

DISTRIBUTIONS = {"redis-py": "redis", "redis-py-asyncio": "redis", "pottery-aio": "pottery"}
"""The modules of peers with another name than theirs."""

now_ns = time.monotonic_ns
cpu_ns = time.process_time_ns


class Handle(Protocol):
    """A lock of any library."""

    def acquire(self) -> Any:
        """Returns whether it was acquired, or a coroutine that does."""

    def release(self) -> Any:
        """Releases it, or is a coroutine that does."""


class Threads:
    """Runs blocking locks: concurrent works are threads."""

    is_async = False

    @staticmethod
    def serve(perform: Callable[[Json], Coroutine[Any, Any, Json]]) -> None:
        """Answers requests until the end of the input."""
        for line in sys.stdin:
            say(drive(answered(perform, line)))

    @staticmethod
    async def each(works: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Runs all works concurrently; returns their results."""
        results: list[Any] = []
        threads = [threading.Thread(target=lambda work=work: results.append(outcome(work))) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    @staticmethod
    def start(work: Coroutine[Any, Any, Any]) -> None:
        """Starts a work beside everything else, until the process is killed."""
        threading.Thread(target=drive, args=(work,), daemon=True).start()

    @staticmethod
    async def sleep(seconds: float) -> None:
        """Sleeps."""
        time.sleep(max(seconds, 0))


class Tasks:
    """Runs asynchronous locks: concurrent works are tasks of one loop."""

    is_async = True

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    @staticmethod
    def serve(perform: Callable[[Json], Coroutine[Any, Any, Json]]) -> None:
        """Answers requests until the end of the input."""

        async def main() -> None:
            # It runs in a thread, so that renewals and waiters continue.
            while line := await asyncio.to_thread(sys.stdin.readline):
                say(await answered(perform, line))

        asyncio.run(main())

    @staticmethod
    async def each(works: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Runs all works concurrently; returns their results."""
        return list(await asyncio.gather(*works))

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Starts a work beside everything else, until the process is killed."""
        self._running.add(asyncio.get_running_loop().create_task(work))

    @staticmethod
    async def sleep(seconds: float) -> None:
        """Sleeps."""
        await asyncio.sleep(seconds)


class Worker:
    """One client of a subject, and the locks that it holds."""

    def __init__(self, subject: str, urls: Sequence[str], ttl_s: float) -> None:
        self.runner: Threads | Tasks = Threads()
        self.held: list[Handle] = []
        # Only the subject's library is imported, because it counts in the memory.
        if subject in OURS:
            library: Any = importlib.import_module(OURS[subject])
            self.runner = Tasks() if subject == "python-asyncio" else Threads()
            client = library.Redlock(urls, ttl=ttl_s)
            self.lock: Callable[[str], Handle] = client.lock
        else:
            peer: Any = importlib.import_module("peers.peers").PEERS[subject]
            self.runner = Tasks() if peer.is_async else Threads()
            session = peer.open(urls)
            self.lock = lambda name: cast("Handle", session.lock(name, ttl_s, None))

    async def perform(self, request: Json) -> Json:
        """Performs a request."""
        op = request.pop("op")
        ops = {"pairs", "acquire", "release", "contend", "hold", "wait", "usage"}
        if op not in ops:
            raise ValueError(f"no such op: {op}")
        answer: Json = await getattr(self, op)(**request)
        return answer

    async def take(self, lock: Handle) -> Handle:
        """Acquires a lock without a time limit."""
        taken = lock.acquire()
        if self.runner.is_async:
            taken = await taken
        if not taken:
            raise RuntimeError("the lock was not acquired")
        return lock

    async def give_back(self, lock: Handle) -> None:
        """Releases it."""
        released = lock.release()
        if self.runner.is_async:
            await released

    async def pairs(self, names: Sequence[str], seconds: float | None = None, count: int = 0) -> Json:
        """Acquires and releases repeatedly, one task for each name."""
        end_ns = None if seconds is None else now_ns() + int(seconds * 1e9)
        most = sys.maxsize if seconds is not None else count // len(names)

        async def turn(name: str) -> list[int]:
            samples: list[int] = []
            while len(samples) < most:
                begun_ns = now_ns()
                await self.give_back(await self.take(self.lock(name)))
                now = now_ns()
                samples.append(now - begun_ns)
                if end_ns is not None and now >= end_ns:
                    break
            return samples

        wall_ns, cpu = now_ns(), cpu_ns()
        samples = [sample for turns in await self.runner.each(turn(name) for name in names) for sample in turns]
        return tally(samples, now_ns() - wall_ns, cpu_ns() - cpu)

    async def acquire(self, name: str) -> Json:
        """Acquires one lock."""
        asked_ns = now_ns()
        self.held.append(await self.take(self.lock(name)))
        return {"asked_ns": asked_ns, "held_ns": now_ns()}

    async def release(self) -> Json:
        """Releases the lock that was acquired last."""
        lock, asked_ns = self.held.pop(), now_ns()
        await self.give_back(lock)
        return {"asked_ns": asked_ns, "released_ns": now_ns()}

    async def contend(self, name: str, start_ns: int, end_ns: int, hold_ms: int) -> Json:
        """Acquires, holds and releases a lock that others want too."""
        await self.runner.sleep((start_ns - now_ns()) / 1e9)
        cpu, waits, held = cpu_ns(), [], []
        while (asked_ns := now_ns()) < end_ns:
            lock = await self.take(self.lock(name))
            since_ns = now_ns()
            await self.runner.sleep(hold_ms / 1000)
            waits.append(since_ns - asked_ns)
            if since_ns < end_ns:
                held.append(now_ns() - since_ns)
            await self.give_back(lock)
        answer = tally(waits, end_ns - start_ns, cpu_ns() - cpu)
        return answer | {"count": len(held), "held_ns": sum(held)}

    async def hold(self, prefix: str, count: int) -> Json:
        """Acquires many locks and keeps them."""
        begun_ns = now_ns()

        async def hand(first: int) -> None:
            for i in range(first, count, HANDS):
                self.held.append(await self.take(self.lock(f"{prefix}{i}")))

        await self.runner.each(hand(first) for first in range(HANDS))
        return {"held": len(self.held), "wall_ns": now_ns() - begun_ns}

    async def wait(self, names: Sequence[str]) -> Json:
        """Starts waiters that are never asked again."""
        for name in names:
            self.runner.start(self.take(self.lock(name)))
        return {"waiting": len(names)}

    async def usage(self) -> Json:
        """Processor time so far."""
        return {"cpu_ns": cpu_ns()}


async def answered(perform: Callable[[Json], Coroutine[Any, Any, Json]], line: str) -> Json:
    """The answer to a line."""
    try:
        return await perform(json.loads(line))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def tally(samples: Sequence[int], wall_ns: int, cpu: int) -> Json:
    """Counts the result of a turn."""
    step = max(-(-len(samples) // MOST_SAMPLES), 1)
    return {"count": len(samples), "wall_ns": wall_ns, "cpu_ns": cpu, "samples_ns": samples[::step]}


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never needs a loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a blocking lock does not wait for a loop")


def outcome(work: Coroutine[Any, Any, Any]) -> Any:
    """As `drive`, with errors as results."""
    try:
        return drive(work)
    except BaseException as error:
        return error


def say(value: Json) -> None:
    """Writes one line."""
    print(json.dumps(value, separators=(",", ":")), flush=True)


def main() -> None:
    """Answers requests until the end of the input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ttl-ms", type=int, default=10_000)
    parser.add_argument("subject")
    parser.add_argument("urls", nargs="+")
    args = parser.parse_args()
    worker = Worker(args.subject, args.urls, args.ttl_ms / 1000)
    distribution = "redlock-rs" if args.subject in OURS else DISTRIBUTIONS.get(args.subject, args.subject)
    say({"ready": {"version": version(distribution)}})
    worker.runner.serve(worker.perform)


if __name__ == "__main__":
    main()
