"""Programs of other processes in tests. They are in a module, because a process that is spawned imports it."""

import asyncio
import atexit
import importlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import util
from multiprocessing.context import ForkContext, ForkProcess
from typing import Any

import redlock
from redlock import asyncio as aio
from redlock import testing

kept: list[object] = []
"""Objects that are not collected before their process ends."""


_ends: Any = vars(util)
_exit_function = _ends["_exit_function"]


class NewerProcess(ForkProcess):
    """Ends as since Python 3.13: atexit is emptied at the fork, and finalizers run after the wait for threads."""

    def _bootstrap(self, parent_sentinel: int | None = None) -> int:
        atexit._clear()
        atexit.register(_exit_function)
        _ends["_exit_function"] = lambda: None
        try:
            return super()._bootstrap(parent_sentinel)  # type: ignore[misc,no-any-return]
        finally:
            atexit._run_exitfuncs()


class NewerContext(ForkContext):
    Process = NewerProcess


def context(way: str) -> Any:
    """The context that makes processes in this way."""
    match way:
        case "newer":
            return NewerContext()
        case "billiard":
            return importlib.import_module("billiard").get_context("fork")
        case _:
            return multiprocessing.get_context(way)


def hold(name: str, ttl: float = 60) -> bool:
    """Acquire a lock and hold it until the end of the process, which is killed if it hangs."""
    signal.alarm(20)
    lock = redlock.lock(name, ttl=ttl)
    kept.append(lock)
    return lock.acquire(timeout=5)


def hold_and_exit(name: str) -> None:
    hold(name)
    sys.exit(0)


def hold_at_exit(name: str) -> None:
    """Hold a lock, and acquire another one if the end of the process is an end of the interpreter too."""
    hold(name)
    atexit.register(hold, f"{name}-exit")


def nest(name: str) -> None:
    """Hold a lock, as does a child of this child."""
    hold(name)
    maker = NewerProcess if isinstance(multiprocessing.current_process(), NewerProcess) else ForkProcess
    child = maker(target=hold, args=(f"{name}-nested",))
    child.start()
    child.join()
    assert child.exitcode == 0
    # The end of the child does not release this process's lock.
    assert redlock.inspect(name).state == "held"


def leave_threads(name: str) -> None:
    """Return while a thread works, other threads wait for work or for a lock, and a lock is held."""
    hold(name)

    def work() -> None:
        with redlock.lock(f"{name}-work", ttl=60) as lock:
            began.set()
            over.wait()
            lock.check()
            assert redlock.inspect(name).state == "held"
        print("worked", flush=True)

    def end() -> None:
        # For threads, the main thread ends when it waits for them.
        threading.main_thread().join()
        over.set()

    began, over = threading.Event(), threading.Event()
    for target in (work, end):
        threading.Thread(target=target).start()
    began.wait()
    threading.Thread(target=redlock.lock(name).acquire, daemon=True).start()
    executor = ThreadPoolExecutor(1)
    executor.submit(os.getpid).result()
    kept.append(executor)


def lose(name: str) -> None:
    """Lose a lock right before the end of the process, and log that to standard error."""
    logging.basicConfig(format="%(message)s")
    lock = redlock.Redlock(testing.MemoryServer().url).lock(name)
    lock.acquire()
    testing.lose(lock, "taken")


def use(client: redlock.Redlock, name: str) -> None:
    """Use every call in a forked child, which is killed if it hangs."""
    signal.alarm(20)
    # If this process ends soon, the key on nodes that had not answered the release is gone after the ttl.
    with client.lock(name, ttl=2, node_timeout=1.5) as lock:
        lock.extend()
        lock.check()


class Busy:
    """Locks of both faces that are held, waited for, extended, and acquired at any moment."""

    def __init__(self, urls: list[str], name: str) -> None:
        # An extension that a busy machine answers late is not a failure of theirs.
        self._client = redlock.Redlock(urls, ttl=9, node_timeout=5)
        self._aclient = aio.Redlock(urls, ttl=9, node_timeout=5)
        self._name = name
        self._end = threading.Event()
        # Each is renewed every 3 s, so that a renewal runs at nearly any moment.
        self.held = [self._client.lock(f"{name}-held-{number}") for number in range(90)]
        for lock in self.held:
            lock.acquire()
        self._began = threading.Barrier(4)
        self._failures: list[BaseException] = []
        calls = (self._wait, self._work, self._loop)
        self._threads = [threading.Thread(target=self._run, args=(call,), daemon=True) for call in calls]
        for thread in self._threads:
            thread.start()
        self._began.wait()

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            self._failures.append(error)

    def _wait(self) -> None:
        self._began.wait()
        with self._client.lock(f"{self._name}-held-0"):
            pass

    def _work(self) -> None:
        self._began.wait()
        while not self._end.is_set():
            with self._client.lock(f"{self._name}-busy"):
                self.held[0].extend()
            # This gives others a turn.
            time.sleep(0.001)

    def _loop(self) -> None:
        asyncio.run(self._tasks())

    async def _tasks(self) -> None:
        async with self._aclient.lock(f"{self._name}-loop") as lock:
            waiter = asyncio.create_task(self._wait_for(f"{self._name}-loop"))
            self._began.wait()
            while not self._end.is_set():
                async with self._aclient.lock(f"{self._name}-busy"):
                    await lock.extend()
                await asyncio.sleep(0.001)
        await waiter

    async def _wait_for(self, name: str) -> None:
        async with self._aclient.lock(name):
            pass

    def end(self) -> None:
        """Check that nothing was lost and that all threads continue, and release all locks."""
        self._end.set()
        waiter, *others = self._threads
        for thread in others:
            thread.join()
        for lock in self.held:
            lock.check()
            lock.release()
        waiter.join()
        for failure in self._failures:
            raise failure
