"""The Python worker of the soak; the Rust program and `worker.mjs` beside it do the same. It never judges.

A line of standard input is a number of turns. The worker takes them and reports its live counts in a line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import redlock
import redlock.asyncio

Json = dict[str, Any]

TTL_S = 60
"""Longer than the servers may take to be empty, so that a key that is not deleted is found."""

NODE_TIMEOUT_S = 0.2
"""Short, so that calls give up a node while it is frozen."""

WAITERS = 4
"""How many tasks compete for one name."""

PERMITS = 2
"""How many permits a semaphore has."""

WRITES = 4
"""Of so many turns with a shared lock, one is that of a writer."""

DENIED = 64
"""How many calls are denied at once."""

CROWD = 64
"""How many threads acquire at once."""

MOMENT_S = 0.02
"""Long enough for a call to be denied in the background too."""

TASKS = 8
"""How many tasks cancel at once: few, so that pending releases of a frozen node stay below their limit."""

WANTED = 3
"""How many names the tasks compete for."""

LONGEST_S = 0.02
"""The latest moment of a cancellation."""


def made(client: Any, shape: str, name: str, turn: int) -> Any:
    """A lock of this shape. The names of a set stand around its name, so that it is neither the first nor the last."""
    match shape:
        case "set":
            return client.lock_all([f"a-{name}", name, f"z-{name}"])
        case "slot":
            return client.semaphore(name, PERMITS)
        case "shared":
            return client.lock(name, shared=turn % WRITES > 0)
    return client.lock(name)


class Leaks:
    """The objects that a leaking worker keeps, as a planted fault."""

    def __init__(self, kind: str | None, nodes: list[str]) -> None:
        self.kind, self.nodes = kind, nodes
        self.kept: list[object] = []

    def add(self, count: int, done: int) -> None:
        """Leaks what `count` turns would."""
        match self.kind:
            case "keys":
                lock = redlock.Redlock(self.nodes).lock(f"leaked-{done}")
                lock.acquire()
                self.kept.append(lock)
            case "memory":
                self.kept += [bytearray(256) for _ in range(count)]
            case "descriptors":
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(urlsplit(self.nodes[0]).path)
                self.kept.append(connection)


class Blocking:
    """The repeated actions on the face `python`."""

    def __init__(self, work: str, shape: str, nodes: list[str]) -> None:
        self.work, self.shape, self.nodes = work, shape, nodes
        self.done = 0
        self.client = None if work == "clients" else self._client()

    def _of_turn(self, turn: int) -> contextlib.AbstractContextManager[redlock.Redlock]:
        """The client of a turn. Of those that are made for one, every second is closed; the others are dropped."""
        if self.client or turn % 2:
            return contextlib.nullcontext(self.client or self._client())
        return self._client()

    def _client(self) -> redlock.Redlock:
        return redlock.Redlock(self.nodes, ttl=TTL_S, node_timeout=NODE_TIMEOUT_S)

    def perform(self, count: int) -> Json:
        """Takes `count` turns, and returns with everything released."""
        tasks = {"wait": WAITERS, "denied": DENIED, "crowd": CROWD}.get(self.work, 1)
        work = self._denials if self.work == "denied" else self._turns
        with ThreadPoolExecutor(tasks) as pool:
            for each in [pool.submit(work, task, count // tasks) for task in range(tasks)]:
                each.result()
        self.done += count
        return {}

    def _denials(self, task: int, count: int) -> None:
        """Tries to acquire names that others hold."""
        for turn in range(self.done, self.done + count):
            assert self.client
            # A busy machine may not answer within a moment.
            with contextlib.suppress(redlock.LockUnavailable):
                assert not made(self.client, self.shape, f"name-{task}-{turn}", turn).acquire(timeout=MOMENT_S)

    def _turns(self, task: int, count: int) -> None:
        for turn in range(self.done, self.done + count):
            with self._of_turn(turn) as client:
                name = {"names": f"name-{turn}", "crowd": f"name-{task}-{turn}"}.get(self.work, "name")
                if self.shape == "term":
                    assert client.election(name).run(lambda lock: lock.fence)
                    continue
                lock = made(client, self.shape, name, turn)
                lock.on_lost(lost)
                with lock:
                    pass


class Asyncio:
    """The repeated actions on the face `asyncio`."""

    def __init__(self, work: str, shape: str, nodes: list[str]) -> None:
        self.work, self.shape, self.nodes = work, shape, nodes
        self.done = 0
        self.client = None if work == "clients" else self._client()

    def _of_turn(self, turn: int) -> contextlib.AbstractAsyncContextManager[redlock.asyncio.Redlock]:
        """The client of a turn. Of those that are made for one, every second is closed; the others are dropped."""
        if self.client or turn % 2:
            return contextlib.nullcontext(self.client or self._client())
        return self._client()

    def _client(self) -> redlock.asyncio.Redlock:
        return redlock.asyncio.Redlock(self.nodes, ttl=TTL_S, node_timeout=NODE_TIMEOUT_S)

    async def perform(self, count: int) -> Json:
        """Takes `count` turns, and returns with everything released."""
        tasks = {"wait": WAITERS, "denied": DENIED}.get(self.work, 1)
        work = self._denials if self.work == "denied" else self._turns
        await asyncio.gather(*(work(task, count // tasks) for task in range(tasks)))
        self.done += count
        return {"tasks": len(asyncio.all_tasks())}

    async def _denials(self, task: int, count: int) -> None:
        """Tries to acquire names that others hold."""
        for turn in range(self.done, self.done + count):
            assert self.client
            with contextlib.suppress(redlock.LockUnavailable):
                lock = made(self.client, self.shape, f"name-{task}-{turn}", turn)
                assert not await lock.acquire(timeout=MOMENT_S)

    async def _turns(self, _: int, count: int) -> None:
        for turn in range(self.done, self.done + count):
            async with self._of_turn(turn) as client:
                name = f"name-{turn}" if self.work == "names" else "name"
                if self.shape == "term":
                    assert await client.election(name).run(leading)
                    continue
                lock = made(client, self.shape, name, turn)
                lock.on_lost(lost)
                async with lock:
                    pass


class Cancelling:
    """Acquires and releases that are cancelled at random moments."""

    def __init__(self, shape: str, nodes: list[str], leaks: Leaks, seed: int) -> None:
        self.client = redlock.asyncio.Redlock(nodes, ttl=TTL_S, node_timeout=NODE_TIMEOUT_S)
        self.shape, self.leaks, self.random = shape, leaks, random.Random(seed)
        self.cancelled = self.won = self.releases_cancelled = 0

    async def perform(self, count: int) -> Json:
        """Cancels until `count` more acquires were cancelled, and returns with everything released, or about to be."""
        self.cancelled = self.won = self.releases_cancelled = 0
        await asyncio.gather(*(self._turns(task, count) for task in range(TASKS)))
        return {"cancelled": self.cancelled, "won": self.won, "releases_cancelled": self.releases_cancelled}

    async def _turns(self, task: int, count: int) -> None:
        while self.cancelled < count:
            if self.shape == "term":
                await self._campaign()
                continue
            lock = wanted(self.client, self.shape, task, self.random)
            if await self._cut(lock.acquire()):
                assert not lock.held, "a cancelled acquire holds the lock"
                self.cancelled += 1
            elif lock.held:
                self.won += 1
                await asyncio.sleep(self.random.choice([0, LONGEST_S * self.random.random()]))
                await self._release(lock)

    async def _campaign(self) -> None:
        """An election that is cancelled or stopped at a random moment, in a campaign or in a term."""
        election = self.client.election(str(self.random.randrange(WANTED)))
        term_s, led, resigned = LONGEST_S * self.random.random(), 0, 0

        async def body(_lock: object) -> bool:
            nonlocal led, resigned
            led += 1
            await asyncio.sleep(term_s)
            resigned += 1
            return True

        if self.random.random() < 0.5:
            stop = asyncio.get_running_loop().call_later(LONGEST_S * self.random.random(), election.stop)
            self.cancelled += not await election.run(body)
            stop.cancel()
        else:
            self.cancelled += await self._cut(election.run(body))
        self.won += led
        self.releases_cancelled += led > resigned

    async def _release(self, lock: redlock.asyncio.Lock) -> None:
        if self.leaks.kind == "keys":
            # As if what follows a cancelled release had been forgotten.
            self.leaks.kept.append(lock)
            self.releases_cancelled += 1
        elif await self._cut(lock.release()):
            self.releases_cancelled += 1
            # Either it had not begun, or nothing is left to do.
            if lock.held or self.random.random() < 0.5:
                with contextlib.suppress(redlock.LockUnavailable):
                    await lock.release()
            assert not lock.held, "a released lock is held"

    async def _cut(self, call: Awaitable[object]) -> bool:
        """Whether the call was cancelled before it had ended."""
        task = asyncio.ensure_future(call)
        if self.random.random() < 0.5:
            for _ in range(self.random.randrange(20)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(LONGEST_S * self.random.random())
        asked = task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
        except redlock.LockUnavailable:
            # A frozen node does nothing more.
            return False
        assert not asked, "the cancellation is lost"
        return False


class Interrupting:
    """Acquires and releases that Ctrl-C ends at random moments."""

    def __init__(self, shape: str, nodes: list[str], leaks: Leaks, seed: int) -> None:
        self.client = redlock.Redlock(nodes, ttl=TTL_S, node_timeout=NODE_TIMEOUT_S)
        self.shape, self.leaks, self.random = shape, leaks, random.Random(seed)
        # A shell may start background processes so that they ignore the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def perform(self, count: int) -> Json:
        """Interrupts until `count` acquires were interrupted, while other threads want the same names."""
        counts = {"cancelled": 0, "won": 0, "releases_cancelled": 0}
        over = threading.Event()
        rivals = [threading.Thread(target=self._contend, args=[name, over]) for name in range(WANTED)]
        for rival in rivals:
            rival.start()
        try:
            while counts["cancelled"] < count:
                self._turn(counts)
        finally:
            over.set()
        for rival in rivals:
            rival.join()
        return counts

    def _turn(self, counts: Json) -> None:
        if self.shape == "term":
            self._campaign(counts)
            return
        lock = wanted(self.client, self.shape, 0, self.random)
        interrupted = self._cut(lock.acquire)
        counts["cancelled" if interrupted and not lock.held else "won"] += 1
        if self.leaks.kind == "keys":
            self.leaks.kept.append(lock)
            return
        while lock.held:
            counts["releases_cancelled"] += self._cut(lock.release)

    def _campaign(self, counts: Json) -> None:
        """An election that Ctrl-C ends, or that is stopped, in a campaign or in a term."""
        election = self.client.election(str(self.random.randrange(WANTED)))
        term_s, led, resigned = LONGEST_S * self.random.random(), 0, 0

        def body(_lock: object) -> bool:
            nonlocal led, resigned
            led += 1
            time.sleep(term_s)
            resigned += 1
            return True

        if self.random.random() < 0.5:
            stop = threading.Timer(LONGEST_S * self.random.random(), election.stop)
            stop.start()
            counts["cancelled"] += not election.run(body)
            stop.join()
        else:
            counts["cancelled"] += self._cut(lambda: election.run(body))
        counts["won"] += led
        counts["releases_cancelled"] += led > resigned

    def _contend(self, name: int, over: threading.Event) -> None:
        lengths = random.Random(name)
        lock = self.client.lock(str(name), timeout=1)
        while not over.wait(LONGEST_S * lengths.random()):
            with contextlib.suppress(redlock.LockUnavailable, redlock.LockTimeout), lock:
                over.wait(LONGEST_S * 5 * lengths.random())

    def _cut(self, call: Callable[[], object]) -> bool:
        """Whether Ctrl-C came before the call had ended."""
        ended, main = False, threading.main_thread().ident or 0
        delay_s = self.random.choice([0, 3 * LONGEST_S * self.random.random()])
        timer = threading.Timer(delay_s, signal.pthread_kill, [main, signal.SIGINT])
        try:
            timer.start()
            with contextlib.suppress(redlock.LockUnavailable):
                call()
            ended = True
            time.sleep(TTL_S)
            raise AssertionError("Ctrl-C was not heard")
        except KeyboardInterrupt:
            timer.join()
        return not ended


def wanted(client: Any, shape: str, task: int, dice: random.Random) -> Any:
    """A lock of names that others want as well, or of one's own."""
    if shape == "slot":
        return client.semaphore("pool", PERMITS + dice.randrange(2))
    names = [*range(WANTED), WANTED + task]
    if shape == "set":
        return client.lock_all([str(name) for name in dice.sample(names, 2)])
    if shape == "shared":
        return client.lock(str(dice.randrange(WANTED)), shared=dice.randrange(WRITES) > 0)
    return client.lock(str(dice.randrange(WANTED) if dice.random() < 0.5 else names[-1]))


async def leading(lock: redlock.asyncio.Lock) -> int:
    """A term of a moment."""
    return lock.fence


def lost(error: redlock.LockLost) -> None:
    """Nothing disturbs the nodes."""
    raise error


def arguments() -> argparse.Namespace:
    """The worker's command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--face", choices=["python", "asyncio"], required=True)
    works = ["cycle", "wait", "names", "crowd", "denied", "clients", "cancel"]
    parser.add_argument("--work", choices=works, required=True)
    parser.add_argument("--shape", choices=["one", "set", "slot", "term", "shared"], default="one")
    parser.add_argument("--seed", type=int, default=0, help="for the random moments and names")
    parser.add_argument("--leak", choices=["keys", "memory", "descriptors"])
    parser.add_argument("nodes", nargs="+", help="the nodes' URLs, of unix sockets")
    return parser.parse_args()


def main() -> None:
    """Takes turns until the input ends."""
    args = arguments()
    leaks = Leaks(args.leak, args.nodes)
    worker: Any
    if args.work == "cancel":
        worker = {"python": Interrupting, "asyncio": Cancelling}[args.face](args.shape, args.nodes, leaks, args.seed)
    else:
        worker = {"python": Blocking, "asyncio": Asyncio}[args.face](args.work, args.shape, args.nodes)
    with asyncio.Runner() as runner:
        done = 0
        for line in sys.stdin:
            count = int(line)
            done += count
            counts = worker.perform(count)
            if args.face == "asyncio":
                counts = runner.run(counts)
            if args.work != "cancel" and count:
                leaks.add(count, done)
            gc.collect()
            print(json.dumps({**counts, "live": sys.getallocatedblocks()}), flush=True)


if __name__ == "__main__":
    main()
