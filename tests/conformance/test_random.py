"""Random operations on locks of one name, compared with a model of their possible results.

Every run is the same. `pytest tests/conformance/test_random.py --random 2000` looks further, elsewhere each time, and
for the shortest way to a failure.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from conformance.conftest import Drivers
from conformance.driver import FACES, Call, Driver, Json, LockError
from conformance.worlds import BRIEF, GRAIN, THEIRS, Lock, Outcomes, Owner, Times, World
from support.clock import until
from support.servers import LIMIT_S, Cluster

LONG, SHORT = 600.0, 0.4
"""The ttl of a lock that needs no renewal here, and of one that is left to expire."""
TTLS = (LONG, LONG, LONG, SHORT)
"""The ttl of each lock, by its number."""
SECOND = (2, 3)
"""The numbers of the locks of a client that may be closed."""
MOMENT = 0.1
"""Seconds for which others may have the key."""
WARMING_MS = 1_000
"""For how long a call waits that makes connections."""
LIMIT_MS = 5_000
PAUSE_S = 0.002

numbers = st.sampled_from(range(len(TTLS)))
holders = st.one_of(st.none(), st.none(), numbers)
"""`None` means a lock that is held."""
subsets = st.sets(st.sampled_from(range(3)), min_size=1)
names = itertools.count()


def said(call: Call | Callable[[], object]) -> str:
    """The result of a call, in a word."""
    try:
        answer = call.result() if isinstance(call, Call) else call()
    except LockError as error:
        # A timeout is an error in some languages.
        return f"lost: {error.reason}" if error.code == "lost" else {"timeout": "denied"}.get(error.code, error.code)
    if isinstance(answer, dict) and answer.get("cancelled"):
        return "cancelled"
    acquired = answer.get("acquired") if isinstance(answer, dict) else None
    return {True: "acquired", False: "denied", None: "done"}[acquired]


class Machine(RuleBasedStateMachine):
    """Four locks of one name, on one node or on three, and other users of the same key."""

    driver: Driver
    nodes: Cluster
    name: str

    @initialize(count=st.sampled_from([1, 3]))
    def begin(self, count: int) -> None:
        """Makes the locks."""
        self.servers = list(self.nodes)[:count]
        self.key = f"{self.name} {next(names)}"
        self.clients = [self.client(), self.client()]
        self.closed = False
        self.story: list[str] = []
        self.locks = [0] * len(TTLS)
        self.owners: dict[str, Owner] = {THEIRS: THEIRS, BRIEF: BRIEF}
        self.fences = [0] * len(TTLS)
        self.worlds = {World((None,) * count, (Lock(),) * len(TTLS))}
        for number in range(len(TTLS)):
            self.make(number)

    def client(self) -> int:
        """Another client."""
        return self.driver.client([server.url for server in self.servers]).handle

    def make(self, number: int) -> None:
        """Another lock."""
        ttl_ms = TTLS[number] * 1000
        label = f"{number} of {len(self.owners)}"
        self.owners[label] = number
        options = {"ttl_ms": ttl_ms, "timeout_ms": 0, "label": label, "auto_renew": TTLS[number] == LONG}
        options["node_timeout_ms"] = min(5_000, int(0.9 * ttl_ms))
        client, name = self.clients[number in SECOND], self.key.encode().hex()
        self.locks[number] = self.driver.call("lock", client=client, name=name, options=options)["handle"]

    def ask(self, op: str, number: int, **fields: Any) -> Call:
        """Starts a call on a lock."""
        return self.driver.start(op, lock=self.locks[number], **fields)

    def state(self, number: int) -> Json:
        """A lock's own view of its state."""
        return self.ask("state", number).result()

    # Calls are judged by the following.

    def judge(self, what: str, call: Callable[[], str], predict: Callable[[World, Times], Outcomes]) -> str:
        """Makes a call, and keeps the worlds in which its result is possible."""
        begun = time.monotonic()
        result = call()
        times = begun - GRAIN, time.monotonic() + GRAIN
        outcomes = [outcome for world in self.worlds for now in world.passed(times) for outcome in predict(now, times)]
        self.worlds = {world for possible, world in outcomes if possible == result}
        expected = sorted({possible for possible, _ in outcomes})
        assert self.worlds, "\n".join([f"{what}: {result}, but expected one of {expected}, after", *self.story])
        self.story.append(f"{what}: {result}")
        return result

    def acquired(self, number: int) -> None:
        """Looks at the fence of a lock that was acquired."""
        fence = self.state(number)["fence"]
        # It may be over already.
        if fence is not None:
            assert fence > max(self.fences), "fences rise"
            self.fences[number] = fence

    def seen(self) -> tuple[tuple[Owner, ...], list[bool]]:
        """The owner of the key on each node, and which locks were told of their loss."""

        def owner(value: bytes | None) -> Owner:
            return None if value is None else self.owners[value.decode().rsplit(":", 1)[-1]]

        told = [self.ask("wait_lost", number, limit_ms=0).result()["lost"] is not None for number in range(len(TTLS))]
        return tuple(owner(server.get(self.key)) for server in self.servers), told

    @invariant()
    def servers_agree(self) -> None:
        """The servers' keys and the losses that were told are those of some world, at once or soon."""
        end = time.monotonic() + LIMIT_S
        while True:
            begun = time.monotonic()
            keys, told = self.seen()
            times = begun - GRAIN, time.monotonic() + GRAIN
            worlds = {now.settled() for world in self.worlds for now in world.passed(times)}

            def agrees(lock: Lock, is_told: bool) -> bool:
                return not is_told if lock.held else is_told or not lock.state.startswith("lost")

            same = {each for each in worlds if each.keys == keys and all(map(agrees, each.locks, told))}
            if same:
                self.worlds = same
                return
            assert time.monotonic() < end, "\n".join(
                [f"{keys} {told}, but expected one of {worlds}, after", *self.story]
            )
            time.sleep(PAUSE_S)
            # Between the calls of a blocking face, no task reads the nodes' answers.
            self.driver.call("inspect", client=self.clients[0], name=self.key.encode().hex())

    @invariant()
    def locks_agree(self) -> None:
        """A lock's own view of its state is consistent, and agrees with some world."""
        for number in range(len(TTLS)):
            self.look(number)

    def look(self, number: int) -> None:
        """Judges whether a lock is held."""
        self.judge(f"check {number}", lambda: self.check(number), lambda world, _: world.check(number))

    def check(self, number: int) -> str:
        """Asks whether it is held."""
        before = self.state(number)
        result = said(self.ask("check", number))
        after = self.state(number)
        assert before["held"] >= (result == "done") >= after["held"], "only ever from held to not held"
        assert (before["remaining_ms"] > 0) >= after["held"]
        assert after["remaining_ms"] < 2 * LONG * 1000
        if after["fence"] is not None:
            assert after["fence"] == self.fences[number]
        return result

    # Operations on the locks.

    @rule(number=numbers, how=st.sampled_from([{}, {}, None, {"timeout_ms": 0}, {"timeout_ms": 100}]))
    def acquire(self, number: int, how: Json | None) -> None:
        """Acquires, tries, or waits for a moment."""
        patience = how.get("timeout_ms", 0) / 1000 if how else 0.0
        call = functools.partial(self.ask, "acquire", number, **how) if how is not None else None
        self.end_of_acquire(number, call or functools.partial(self.ask, "try_acquire", number), patience)

    def end_of_acquire(self, number: int, call: Callable[[], Call], patience: float) -> None:
        """Judges an acquire."""
        ttl, closed = TTLS[number], self.closed and number in SECOND

        def predict(world: World, times: Times) -> Outcomes:
            return world.acquire(number, ttl, times, closed=closed, patience=patience)

        if self.judge(f"acquire {number}", lambda: said(call()), predict) == "acquired":
            self.acquired(number)

    @rule(number=numbers)
    def outwait(self, number: int) -> None:
        """Waits until a brief key of others is gone."""
        if not all(BRIEF in world.keys and world.could(number, (None, BRIEF)) for world in self.worlds):
            return
        ttl, closed = TTLS[number], self.closed and number in SECOND

        def acquire() -> str:
            result = said(self.ask("acquire", number, timeout_ms=LIMIT_MS))
            return f"{result} {self.regain(result, number, BRIEF)}"

        self.judge(f"outwait {number}", acquire, lambda world, times: world.outwait(number, ttl, times, closed=closed))

    def regain(self, result: str, number: int, other: Owner) -> str:
        """Extends, so that it also has the nodes where another's key was gone too late."""
        if result != "acquired":
            return ""
        self.acquired(number)
        until(lambda: other not in self.seen()[0], "the other's key is gone")
        return said(self.ask("extend", number))

    def whose(self, number: int | None) -> int:
        """A lock that is held, unless another one is chosen."""
        held = (other for other in range(len(TTLS)) if self.state(other)["held"])
        return next(held, 0) if number is None else number

    @rule(chosen=holders, op=st.sampled_from(["release", "release", "leave"]))
    def release(self, chosen: int | None, op: str) -> None:
        """Releases it, by a call or as the end of a block does."""
        number = self.whose(chosen)
        predict = World.release if op == "release" else World.leave
        self.judge(f"{op} {number}", lambda: said(self.ask(op, number)), lambda world, _: predict(world, number))

    @rule(chosen=holders, times_ttl=st.sampled_from([None, 0, 0.5, 2]))
    def extend(self, chosen: int | None, times_ttl: float | None) -> None:
        """Extends it."""
        number = self.whose(chosen)
        ttl = None if times_ttl is None else times_ttl * TTLS[number]
        fences = [int(server.get(f"redlock:fence:{{{self.key}}}") or 0) for server in self.servers]
        later = frozenset(node for node, fence in enumerate(fences) if fence > self.fences[number])
        given = {} if ttl is None else {"ttl_ms": ttl * 1000}
        self.judge(
            f"extend {number} to {ttl}",
            lambda: said(self.ask("extend", number, **given)),
            lambda world, times: world.extend(number, ttl, times, later),
        )

    @rule(number=numbers)
    def expire(self, number: int) -> None:
        """Lets time pass until a lock expires."""
        soon = time.monotonic() + LIMIT_S
        if all(world.locks[number].end[1] < soon for world in self.worlds):
            until(lambda: not self.state(number)["held"], "it has expired")

    @rule(chosen=holders, waiter=numbers)
    def hand_over(self, chosen: int | None, waiter: int) -> None:
        """Releases while another object waits."""
        holder = self.whose(chosen)
        if holder == waiter or not all(world.could(waiter, (None, holder)) for world in self.worlds):
            return
        ttl, closed = TTLS[waiter], self.closed and waiter in SECOND

        def both() -> str:
            calls = self.ask("release", holder), self.ask("acquire", waiter, timeout_ms=LIMIT_MS)
            released, acquired = map(said, calls)
            return f"{released} {acquired} {self.regain(acquired, waiter, holder)}"

        what = f"hand over from {holder} to {waiter}"
        self.judge(what, both, lambda world, times: world.hand_over(holder, waiter, ttl, times, closed=closed))

    @rule(number=numbers, pause_s=st.sampled_from([0, 0, 0.0005, 0.002]))
    def cancel(self, number: int, pause_s: float) -> None:
        """Cancels an acquire at some moment."""
        if not self.driver.face.cancels:
            return
        ttl, closed = TTLS[number], self.closed and number in SECOND

        def acquire() -> str:
            call = self.ask("acquire", number, timeout_ms=LIMIT_MS)
            time.sleep(pause_s)
            self.driver.call("cancel", call=call.id)
            return said(call)

        what = f"cancel {number} after {pause_s} s"
        if self.judge(what, acquire, lambda now, at: now.cancel(number, ttl, at, closed=closed)) == "acquired":
            self.acquired(number)

    # Operations of others, and on clients.

    def command(self, nodes: Iterable[int], verb: str, *words: str) -> str:
        """Does something to the key on some nodes."""
        for node in nodes:
            if node < len(self.servers):
                self.servers[node].command(verb, self.key, *words)
        return "done"

    @rule(nodes=subsets, way=st.sampled_from(["delete", "delete", "delete", "steal", "steal for a moment"]))
    def others(self, nodes: set[int], way: str) -> None:
        """Deletes or overwrites the key, whoever has it."""
        owner: Owner = {"steal": THEIRS, "steal for a moment": BRIEF}.get(way)
        more = [] if owner is None else [str(owner)] if owner == THEIRS else [str(owner), "PX", str(int(MOMENT * 1000))]

        def put(world: World, times: Times) -> Outcomes:
            yield "done", world.put(nodes, owner, (times[0] + MOMENT, times[1] + MOMENT))

        self.judge(f"{way} on {nodes}", lambda: self.command(nodes, "SET" if owner else "DEL", *more), put)

    @rule()
    def close_or_open(self) -> None:
        """Closes the second client, or makes another one with other locks."""
        self.closed = not self.closed
        if self.closed:
            close = functools.partial(self.driver.call, "close", client=self.clients[1], limit_ms=LIMIT_MS)
            self.judge("close", lambda: said(close), lambda world, _: iter([("done", world.close(*SECOND))]))
            return
        self.clients[1] = self.client()
        for number in SECOND:
            self.worlds = {world.lock(number, Lock()) for world in self.worlds}
            self.make(number)

    def teardown(self) -> None:
        """Releases what is held."""
        for client in getattr(self, "clients", ()):
            self.driver.call("close", client=client, limit_ms=LIMIT_MS)


# In Rust, an object is no holder: a guard is, and its release ends it.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.lock_objects])
def test_random_operations(
    pytestconfig: pytest.Config, drivers: Drivers, five_nodes: Cluster, face: str, name: str
) -> None:
    driver = drivers.start(face)
    # Without connections, a lock may be acquired without some node. Calls that wait have connections of their own.
    for count in (1, 3):
        nodes = list(five_nodes)[:count]
        for server in nodes:
            server.command("SET", name, THEIRS)
        client = driver.client([server.url for server in nodes])
        waiting = [client.lock(name).start_acquire(timeout_ms=WARMING_MS) for _ in range(2)]
        assert [said(call) for call in waiting] == ["denied", "denied"]

    class Here(Machine):
        pass

    Here.driver, Here.nodes, Here.name = driver, five_nodes, name
    runs = pytestconfig.getoption("--random")
    fixed: dict[str, Any] = {} if runs else {"derandomize": True, "phases": [Phase.explicit, Phase.generate]}
    examples = runs or (100 if pytestconfig.getoption("--all") else 8)
    profile = settings(max_examples=examples, stateful_step_count=30, deadline=None, database=None, **fixed)
    run_state_machine_as_test(Here, settings=profile)
