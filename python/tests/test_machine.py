"""Both faces under random operations, compared with a model of the possible results.

A run is always the same. Longer runs, with other operations each time: `pytest python/tests/test_machine.py
--hypothesis-profile long`.
"""

import asyncio
import functools
import gc
import inspect
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from model import BRIEF, GRAIN, THEIRS, Lock, Outcomes, Owner, Times, World
from server import LIMIT, Nodes, Server
from support.clock import until

import redlock
from redlock import asyncio as aio

LONG, SHORT = 600.0, 0.4
"""The ttl of a lock that needs no renewal here, and of one that is left to expire."""

TTLS = (LONG, LONG, LONG, SHORT)
"""The numbers of the locks."""

SECOND = (2, 3)
"""The locks of a client that may be closed."""

MOMENT = 0.1
"""Seconds for which others may have the key."""

WARMING = 1.0
"""Seconds for which a call waits that makes connections."""

BODIES = ["nothing", "raise", "steal", "delete", "release", "expire"]
"""The events in a block."""

numbers = st.sampled_from(range(len(TTLS)))
holders = st.one_of(st.none(), st.none(), numbers)
"""`None` means a lock that is held."""

subsets = st.sets(st.sampled_from(range(3)), min_size=1)
counter = itertools.count()


class Machine(RuleBasedStateMachine):
    """Four locks of one name, on one node or on three, and other users of the same key."""

    nodes: Sequence[Server]
    module: Any

    @initialize(count=st.sampled_from([1, 3]))
    def begin(self, count: int) -> None:
        self.servers = self.nodes[:count]
        self.name = f"machine-{os.getpid()}-{next(counter)}"
        self.clients = [self.client(), self.client()]
        self.closed = False
        self.story: list[str] = []
        self.locks: list[Any] = [None] * len(TTLS)
        self.owners: dict[str, Owner] = {THEIRS: THEIRS, BRIEF: BRIEF}
        self.told = [0] * len(TTLS)
        self.fences = [0] * len(TTLS)
        self.worlds = {World((None,) * count, (Lock(),) * len(TTLS))}
        for number in range(len(TTLS)):
            self.make(number)

    def client(self) -> Any:
        return self.module.Redlock([server.url for server in self.servers])

    def make(self, number: int) -> None:
        ttl, told = TTLS[number], self.told
        label = f"{number} of {len(self.owners)}"
        self.owners[label] = number
        lock = self.clients[number in SECOND].lock(
            self.name, ttl=ttl, timeout=0, label=label, auto_renew=ttl == LONG, node_timeout=min(5, 0.9 * ttl)
        )

        def tell(_: redlock.LockLost) -> None:
            told[number] += 1

        told[number] = 0
        lock.on_lost(tell)
        self.locks[number] = lock

    # The faces differ in the following.

    def finish(self, value: Any) -> Any:
        """Return the result of a call when it has one."""
        raise NotImplementedError

    def block(self, lock: Any, body: Callable[[], Any]) -> Any:
        raise NotImplementedError

    def both(self, first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
        """Make two calls at once."""
        raise NotImplementedError

    # Calls are judged by the following.

    def judge(self, what: str, call: Callable[[], str], predict: Callable[[World, Times], Outcomes]) -> str:
        """Make a call, and keep the worlds in which its result is possible."""
        begun = time.monotonic()
        said = call()
        times = begun - GRAIN, time.monotonic() + GRAIN
        outcomes = [outcome for world in self.worlds for now in world.passed(times) for outcome in predict(now, times)]
        self.worlds = {world for result, world in outcomes if result == said}
        expected = sorted({result for result, _ in outcomes})
        assert self.worlds, "\n".join([f"{what}: {said}, but expected one of {expected}, after", *self.story])
        self.story.append(f"{what}: {said}")
        return said

    def said(self, call: Callable[[], Any]) -> str:
        """Make a call, and return its result in a word."""
        try:
            value = self.finish(call())
        except redlock.LockLost as lost:
            return f"lost: {lost.reason}"
        except redlock.RedlockError as error:
            return error.code
        except asyncio.CancelledError:
            return "cancelled"
        except KeyError:
            return "raised"
        return {True: "acquired", False: "denied"}.get(value, "done")

    def acquired(self, number: int, fence: int) -> None:
        assert fence > max(self.fences), "fences rise"
        self.fences[number] = fence

    def closed_for(self, number: int) -> bool:
        return self.closed and number in SECOND

    def seen(self) -> tuple[tuple[Owner, ...], list[int]]:
        """The owner of the key on each node, and how many losses were reported."""

        def owner(value: bytes | None) -> Owner:
            return None if value is None else self.owners[value.decode().rsplit(":", 1)[-1]]

        return tuple(owner(server.command("GET", self.name)) for server in self.servers), list(self.told)

    @invariant()
    def servers_agree(self) -> None:
        """The servers' keys and the reported losses are those of some world, at once or soon."""
        end = time.monotonic() + LIMIT
        while True:
            begun = time.monotonic()
            seen = self.seen()
            times = begun - GRAIN, time.monotonic() + GRAIN
            worlds = {now.settled() for world in self.worlds for now in world.passed(times)}
            same = {world for world in worlds if (world.keys, [lock.told for lock in world.locks]) == seen}
            if same:
                self.worlds = same
                return
            assert time.monotonic() < end, "\n".join([f"{seen}, but expected one of {worlds}, after", *self.story])
            self.finish(self.pause())

    def pause(self) -> Any:
        """Let a moment pass in which late answers arrive."""
        raise NotImplementedError

    @invariant()
    def locks_agree(self) -> None:
        """A lock's own view of its state is consistent, and agrees with some world."""
        for number in range(len(TTLS)):
            self.check(number)

    def check(self, number: int) -> None:
        self.judge(f"check {number}", lambda: self.ask(number), lambda world, _: world.check(number))

    def ask(self, number: int) -> str:
        lock = self.locks[number]
        before, held, remaining = lock.held, lock.held, lock.remaining
        said = self.said(lock.check)
        assert before >= held >= (remaining > 0) >= (said == "done"), "only ever from held to not held"
        assert remaining < 2 * LONG
        if said == "not_held":
            assert self.said(lambda: lock.fence) == "not_held"
        else:
            assert lock.fence == self.fences[number]
        return said

    # Operations on the locks.

    def acquire_by(self, number: int, call: Callable[[], Any], patience: float = 0) -> None:
        ttl, closed = TTLS[number], self.closed_for(number)
        said = self.judge(
            f"acquire {number}",
            lambda: self.said(call),
            lambda world, times: world.acquire(number, ttl, times, closed=closed, patience=patience),
        )
        if said == "acquired":
            self.acquired(number, self.locks[number].fence)

    @rule(number=numbers, how=st.sampled_from([{}, {}, {"blocking": False}, {"timeout": 0}, {"timeout": 0.1}]))
    def acquire(self, number: int, how: dict[str, Any]) -> None:
        self.acquire_by(number, lambda: self.locks[number].acquire(**how), how.get("timeout", 0))

    @rule(number=numbers)
    def outwait(self, number: int) -> None:
        """Wait until a brief key of others is gone."""
        if not all(BRIEF in world.keys and world.could(number, (None, BRIEF)) for world in self.worlds):
            return
        ttl, closed, lock = TTLS[number], self.closed_for(number), self.locks[number]

        def acquire() -> str:
            said = self.said(lambda: lock.acquire(timeout=LIMIT))
            return f"{said} {self.regain(said, number, BRIEF)}"

        self.judge(f"outwait {number}", acquire, lambda world, times: world.outwait(number, ttl, times, closed=closed))

    def regain(self, said: str, number: int, other: Owner) -> str:
        """Extend, so that it also has the nodes where another's key was gone too late."""
        if said != "acquired":
            return ""
        self.acquired(number, self.locks[number].fence)
        until(lambda: other not in self.seen()[0])
        return self.said(self.locks[number].extend)

    def whose(self, number: int | None) -> int:
        held = (other for other, lock in enumerate(self.locks) if lock.held)
        return next(held, 0) if number is None else number

    @rule(chosen=holders)
    def release(self, chosen: int | None) -> None:
        number = self.whose(chosen)
        release = self.locks[number].release
        self.judge(f"release {number}", lambda: self.said(release), lambda world, _: world.release(number))

    @rule(chosen=holders, times_ttl=st.sampled_from([None, 0, 0.5, 2]))
    def extend(self, chosen: int | None, times_ttl: float | None) -> None:
        number = self.whose(chosen)
        ttl = None if times_ttl is None else times_ttl * TTLS[number]
        fence_key = f"redlock:fence:{{{self.name}}}"
        fences = [int(server.command("GET", fence_key) or 0) for server in self.servers]
        later = frozenset(node for node, fence in enumerate(fences) if fence > self.fences[number])
        self.judge(
            f"extend {number} to {ttl}",
            lambda: self.said(lambda: self.locks[number].extend(*([] if ttl is None else [ttl]))),
            lambda world, times: world.extend(number, ttl, times, later),
        )

    @rule(number=numbers, event=st.sampled_from(BODIES))
    def block_of(self, number: int, event: str) -> None:
        lock, ttl, closed = self.locks[number], TTLS[number], self.closed_for(number)
        if event == "expire" and ttl == LONG:
            event = "nothing"

        def body() -> Any:
            self.acquired(number, lock.fence)
            match event:
                case "raise":
                    raise KeyError
                case "steal":
                    self.command(range(3), "SET", THEIRS)
                case "delete":
                    self.command(range(3), "DEL")
                case "release":
                    return lock.release()
                case "expire":
                    return self.wait_for_end(lock)
                case _:
                    pass
            return None

        self.judge(
            f"block {number}, {event}",
            lambda: self.said(lambda: self.block(lock, body)),
            lambda world, times: world.block(number, ttl, times, event, closed=closed),
        )

    def wait_for_end(self, lock: Any) -> Any:
        while lock.held:
            time.sleep(0.001)

    @rule(number=numbers)
    def expire(self, number: int) -> None:
        """Let time pass until a lock expires."""
        soon = time.monotonic() + LIMIT
        if all(world.locks[number].end[1] < soon for world in self.worlds):
            self.finish(self.wait_for_end(self.locks[number]))

    @rule(chosen=holders, waiter=numbers)
    def hand_over(self, chosen: int | None, waiter: int) -> None:
        """Release while another object waits."""
        holder = self.whose(chosen)
        if holder == waiter or not all(world.could(waiter, (None, holder)) for world in self.worlds):
            return
        ttl, closed = TTLS[waiter], self.closed_for(waiter)
        releasing, waiting = self.locks[holder], self.locks[waiter]

        def both() -> str:
            released, acquired = self.both(releasing.release, lambda: waiting.acquire(timeout=LIMIT))
            return f"{released} {acquired} {self.regain(acquired, waiter, holder)}"

        what = f"hand over from {holder} to {waiter}"
        self.judge(what, both, lambda world, times: world.hand_over(holder, waiter, ttl, times, closed=closed))

    # Operations of other clients.

    def command(self, nodes: Iterable[int], verb: str, *words: str) -> None:
        for node in nodes:
            if node < len(self.servers):
                self.servers[node].command(verb, self.name, *words)

    @rule(nodes=subsets, way=st.sampled_from(["delete", "delete", "delete", "steal", "steal for a moment"]))
    def others(self, nodes: set[int], way: str) -> None:
        """Delete or overwrite the key, whoever has it."""
        owner: Owner = {"steal": THEIRS, "steal for a moment": BRIEF}.get(way)
        more = [] if owner is None else [str(owner)] if owner == THEIRS else [str(owner), "PX", str(int(MOMENT * 1000))]

        def put(world: World, times: Times) -> Outcomes:
            yield "done", world.put(nodes, owner, (times[0] + MOMENT, times[1] + MOMENT))

        command = functools.partial(self.command, nodes, "DEL" if owner is None else "SET", *more)
        self.judge(f"{way} on {nodes}", lambda: self.said(command), put)

    # Operations on clients and objects.

    @rule()
    def close_or_open(self) -> None:
        """Close the second client, or make another one with other locks."""
        if not self.closed:
            close = functools.partial(self.said, self.clients[1].close)
            self.judge("close", close, lambda world, _: iter([("done", world.close(*SECOND))]))
        else:
            self.clients[1] = self.client()
        self.closed = not self.closed
        for number in () if self.closed else SECOND:
            self.collect(number)

    @rule(number=st.sampled_from([0, 1]))
    def collect(self, number: int) -> None:
        """Forget an object, whose lock stays held, and make another."""
        left_to = THEIRS if TTLS[number] == LONG else BRIEF

        def drop() -> str:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.locks[number] = None
                gc.collect(1)  # an exception may still know it
            return "warned" if any(self.name in str(warning.message) for warning in caught) else "done"

        self.judge(f"collect {number}", drop, lambda world, _: world.collect(number, left_to))
        self.owners = {label: left_to if owner == number else owner for label, owner in self.owners.items()}
        self.make(number)

    def teardown(self) -> None:
        for lock in getattr(self, "locks", ()):
            if lock is not None:
                self.said(lock.release)
        for client in getattr(self, "clients", ()):
            client.close()


class Blocking(Machine):
    module = redlock

    def finish(self, value: Any) -> Any:
        return value

    def pause(self) -> Any:
        time.sleep(0.002)
        # Between calls, no task reads the nodes' answers.
        self.clients[0].inspect(self.name)

    def block(self, lock: Any, body: Callable[[], Any]) -> Any:
        with lock:
            body()

    def both(self, first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
        with ThreadPoolExecutor(1) as executor:
            other = executor.submit(self.said, second)
            return [self.said(first), other.result()]


class Asyncio(Machine):
    module = aio

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()

    def finish(self, value: Any) -> Any:
        return self.runner.run(value) if inspect.iscoroutine(value) else value

    async def pause(self) -> Any:
        await asyncio.sleep(0.001)

    async def wait_for_end(self, lock: Any) -> Any:
        while lock.held:
            await asyncio.sleep(0.001)

    async def block(self, lock: Any, body: Callable[[], Any]) -> Any:
        async with lock:
            value = body()
            if value is not None:
                await value

    def both(self, first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
        async def both() -> list[Any]:
            other = asyncio.create_task(second())
            await asyncio.sleep(0)
            return [*await asyncio.gather(first(), other, return_exceptions=True)]

        def raised(value: Any) -> Any:
            if isinstance(value, BaseException):
                raise value
            return value

        return [self.said(functools.partial(raised, result)) for result in self.runner.run(both())]

    @rule(number=numbers, turns=st.integers(0, 6))
    def cancel(self, number: int, turns: int) -> None:
        """Cancel an acquire after some turns of the loop."""
        ttl, closed = TTLS[number], self.closed_for(number)

        async def acquire() -> Any:
            task = asyncio.create_task(self.locks[number].acquire(timeout=LIMIT))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            return await task

        said = self.judge(
            f"cancel {number} after {turns}",
            lambda: self.said(acquire),
            lambda world, times: world.cancel(number, ttl, times, closed=closed),
        )
        if said == "acquired":
            self.acquired(number, self.locks[number].fence)

    def teardown(self) -> None:
        super().teardown()
        self.runner.close()


@pytest.fixture(scope="session")
def warm(one_and_five: dict[int, Nodes]) -> Iterator[Sequence[Server]]:
    """Three servers with all connections that will be used. Without them a lock may be acquired without some node."""
    servers = one_and_five[5].servers[:3]
    kept = {count: redlock.Redlock([server.url for server in servers[:count]]) for count in (1, 3)}
    for server in servers:
        server.command("SET", "warm", THEIRS)
    with ThreadPoolExecutor(2) as executor:
        for count, client in kept.items():
            # Concurrent calls, as later, connect for each thread, and calls that wait connect for notifications.
            waits = [executor.submit(client.lock("warm").acquire, timeout=WARMING) for _ in range(2)]
            assert not any(wait.result() for wait in waits)
            asyncio.run(denied([server.url for server in servers[:count]]))
    yield servers
    for client in kept.values():
        client.close()


async def denied(urls: list[str]) -> None:
    """Wait in a loop as well, because its calls have separate connections."""
    assert not await aio.Redlock(urls).lock("warm").acquire(timeout=WARMING)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("face", [Blocking, Asyncio])
def test_random_operations(face: type[Machine], warm: Sequence[Server]) -> None:
    class Here(face):  # type: ignore[misc, valid-type]
        nodes = warm

    run_state_machine_as_test(Here)
