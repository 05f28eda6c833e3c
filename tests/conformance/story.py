"""Helpers of test cases: promised limits, and seeing what clients and nodes have done."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from conformance.driver import Call, Client, Driver, Election, Json, Lock, LockError, table
from conformance.history import SLACK_MS
from support.clock import until
from support.servers import LIMIT_S, Server

_POLL_S = 0.005

T = TypeVar("T")

# All commands that ask for a key that a lock uses, in any protocol.
_ASKING = ("eval", "evalsha", "set", "setnx", "get", "pttl")


_EVENTS = {case["code"]: case for case in table("events")["cases"]}


def reached(call: Callable[[], T], code: str = "unavailable") -> T:
    """The result of `call` once its node is reached. For 50 ms after a failure, calls get that failure (`code`)."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            return call()
        except LockError as error:
            if error.code not in {"unavailable", code} or time.monotonic() > end:
                raise
        time.sleep(_POLL_S)


def heard(driver: Driver, code: str, **fields: str) -> Json:
    """Waits for an event with these fields, among others. Every event that comes first is as the table says."""
    found: list[Json] = []

    def comes() -> bool:
        for event in driver.events():
            case = _EVENTS[event["code"]]
            assert (event["topic"], event["level"]) == (case["topic"], case["level"])
            assert sorted(event["fields"]) == sorted(case["fields"])
            assert event["message"]
            if event["code"] == code and fields.items() <= event["fields"].items():
                found.append(event)
        return bool(found)

    until(comes, f"the event {code}")
    return found[0]


@contextlib.contextmanager
def within(limit_ms: float) -> Iterator[None]:
    """Fails if the block takes longer than `limit_ms` and the allowance for a slow machine."""
    began = time.monotonic()
    yield
    took_ms = (time.monotonic() - began) * 1000
    assert took_ms <= limit_ms + SLACK_MS, f"took {took_ms:.0f} ms, which is more than {limit_ms:g} ms and the slack"


def one_try_ms(node_timeout_ms: float = 500) -> float:
    """The limit of one try: 2 s to connect, and `node_timeout` each for the attempt and for its clean-up."""
    return 2000 + 2 * node_timeout_ms


def connect_to_all(client: Client, nodes: Iterable[Server], name: str) -> None:
    """Makes the client's connections to every node, by using other locks than `name`.

    The others may decide before a node has a connection, and then this node is not asked. The background connects to
    it, and gives it every lock that is held by then, also one whose key a test case has deleted by hand. So no such
    connect may be under way at the end.

    A node that does not know EVALSHA refuses it when a script is sent for the second time. Afterwards the client knows
    that too.
    """
    nodes, numbers = list(nodes), itertools.count()
    lacking = {server: server.met for server in nodes if any(rule.command == "EVALSHA" for rule in server.rules)}
    known = _known.setdefault(client.driver, set())

    def knows_them() -> bool:
        before = {server: met["EVALSHA"] for server, met in lacking.items()}
        # In a cluster, the tag makes it a lock of the same server.
        _use_on_all(client, nodes, f"{{{name}}}, other {next(numbers)}, {client.driver.label} {client.handle}")
        refused = {server for server, met in lacking.items() if met["EVALSHA"] > before[server]}
        known.update(refused)
        # A refusal may have arrived when the client did not wait for it any more.
        return not refused and known.issuperset(lacking)

    # A blocking caller leaves a refused release to the background, which repeats it after `node_timeout`.
    until(knows_them, "the client knows every node", limit_s=3 * LIMIT_S)


_known = WeakKeyDictionary[Driver, set[Server]]()
"""The nodes that have refused EVALSHA to this process, whose clients share connections."""


def _use_on_all(client: Client, nodes: list[Server], other: str) -> None:
    numbers = itertools.count()

    def all_answer() -> bool:
        """Unlike an acquire, an inspection waits for the connection to each node."""
        return [node["state"] for node in client.inspect(other)["nodes"]].count("free") >= len(nodes)

    def all_asked() -> bool:
        each = f"{other}, {next(numbers)}"
        lock = client.lock(each, node_timeout_ms=5 * SLACK_MS, ttl_ms=60_000, auto_renew=False)
        lock.acquire()
        asked = was_asked(nodes, each)
        # A node that was missed after all gets the lock when the background has connected to it.
        until(lambda: all(server.has(each) for server in nodes), "every node has it")
        lock.release()
        until(lambda: not any(server.has(each) for server in nodes), "the last node has released it")
        return asked

    until(all_answer, "every node answers")
    until(all_asked, "there is a connection to every node")


def was_asked(nodes: Iterable[Server], name: str) -> bool:
    """Whether each of these nodes has granted the lock at some time, and so has its fence."""
    return all(server.command("EXISTS", fence_key(name)) for server in nodes)


def fence_key(name: str) -> str:
    """The key of the fence of a name that has a hash tag or no braces."""
    return f"redlock:fence::{name}" if "{" in name else f"redlock:fence:{{{name}}}"


def remembering(nodes: Iterable[Server], name: str, fence: int) -> int:
    """How many nodes remember at least this fence of a name."""
    return sum(int(server.get(fence_key(name)) or 0) >= fence for server in nodes)


def waiters_key(name: str) -> str:
    """The key that counts who waits for a name that has a hash tag or no braces."""
    return f"redlock:waiters::{name}" if "{" in name else f"redlock:waiters:{{{name}}}"


def slot_key(name: str, slot: int) -> str:
    """The key of a slot of a semaphore, whose name has a hash tag or no braces."""
    return f"redlock:slot:{slot}::{name}" if "{" in name else f"redlock:slot:{slot}:{{{name}}}"


def several(name: str) -> list[str]:
    """Three names, in order. In a cluster, the tag makes them locks of the server that has `name`."""
    return [f"{{{name}}}/{letter}" for letter in "abc"]


def next_won(waiting: list[tuple[Lock, Call]]) -> tuple[Lock, Call]:
    """The holder among waiting locks."""
    until(lambda: not all(call.pending for _, call in waiting), "somebody gets the lock")
    won = [each for each in waiting if not each[1].pending]
    assert len(won) == 1, "two hold the lock"
    return won[0]


def leader_of(elections: Sequence[Election]) -> Election:
    """Waits until one of the candidates leads, and returns it. No other does."""
    leading: list[Election] = []

    def leads() -> bool:
        leading[:] = [election for election in elections if election.leads]
        assert len(leading) <= 1, "two lead"
        return bool(leading)

    until(leads, "somebody leads", 2 * LIMIT_S)
    return leading[0]


class Asked:
    """Sees whether any client asks for a lock. It is made before the clients begin."""

    def __init__(self, nodes: Iterable[Server]) -> None:
        self._nodes = list(nodes)
        self._before = [_questions(node) for node in nodes]

    def wait(self) -> None:
        """Waits until a quorum of the nodes has been asked."""
        quorum = len(self._nodes) // 2 + 1
        until(lambda: sum(map(bool, self._since())) >= quorum, "a quorum of the nodes is asked for the lock")

    def count(self) -> int:
        """How often any of the nodes has been asked."""
        return sum(self._since())

    def _since(self) -> list[int]:
        now = [_questions(node) for node in self._nodes]
        return [count - before for count, before in zip(now, self._before, strict=True)]


def _questions(node: Server) -> int:
    lines = (line.partition(":calls=") for line in node.info("commandstats").decode().splitlines())
    return sum(int(rest.partition(",")[0]) for name, _, rest in lines if name.removeprefix("cmdstat_") in _ASKING)
