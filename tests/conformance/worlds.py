"""The possible results of calls on locks of one name, and the nodes' keys afterwards.

A `World` is one possible state. A call leads from it to other worlds, each with the result of the call. There is more
than one only where time decides, or the order in which nodes answer. A comparison keeps the worlds that agree with what
was seen, and there must always be one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

Owner: TypeAlias = int | str | None
"""The owner of a key: a lock by its number, another client, or none."""

THEIRS = "theirs"
BRIEF = "theirs for a moment"
OLD = "given up"
"""The key of a lock that is not held any more, which is about to be deleted."""

Times: TypeAlias = tuple[float, float]
"""The instants between which something happens."""

PATIENT = math.inf
"""The patience of a call without a timeout."""

NEVER: Times = (math.inf, math.inf)
GRAIN = 0.005
"""The difference between the test's and the engine's readings of the clock."""


@dataclass(frozen=True)
class Lock:
    """The knowledge of a lock object."""

    state: str = "not_held"
    """`not_held` before an acquire, `released`, `held`, or how it was lost."""

    ttl: float = 0.0
    end: Times = NEVER
    made: frozenset[int] = frozenset()
    """The nodes that granted the lock, or got it back."""

    @property
    def held(self) -> bool:
        """Whether it is held."""
        return self.state == "held"

    def idle(self) -> Lock:
        """The state after a failed acquire, which ends the memory of a loss."""
        return Lock(self.state if self.state == "not_held" else "released")


Outcomes: TypeAlias = Iterator[tuple[str, "World"]]


@dataclass(frozen=True)
class World:
    """A possible state: the key on each node, and the lock objects."""

    keys: tuple[Owner, ...]
    locks: tuple[Lock, ...]
    brief: Times = NEVER
    """The times at which brief keys end."""

    @property
    def quorum(self) -> int:
        """How many nodes a lock needs."""
        return len(self.keys) // 2 + 1

    def having(self, owner: Owner) -> frozenset[int]:
        """The nodes whose key belongs to an owner."""
        return frozenset(node for node, key in enumerate(self.keys) if key == owner)

    def key(self, before: Owner, after: Owner) -> World:
        """Replace an owner everywhere."""
        return replace(self, keys=tuple(after if key == before else key for key in self.keys))

    def lock(self, number: int, lock: Lock) -> World:
        """Replace the knowledge of a lock object. A lock that is not held keeps no key for long."""
        world = replace(self, locks=(*self.locks[:number], lock, *self.locks[number + 1 :]))
        return world if lock.held else world.key(number, OLD)

    def put(self, nodes: Iterable[int], owner: Owner, ends: Times = NEVER) -> World:
        """Let another client change the key on some nodes."""
        keys = tuple(owner if node in nodes else key for node, key in enumerate(self.keys))
        if owner == BRIEF and BRIEF in self.keys:
            ends = (min(self.brief[0], ends[0]), max(self.brief[1], ends[1]))
        return replace(self, keys=keys, brief=ends if owner == BRIEF else self.brief)

    def settled(self) -> World:
        """The world after all unfinished work is done."""
        return self.key(OLD, None)

    def passed(self, times: Times) -> Iterator[World]:
        """The worlds that time may have made, on any of the nodes."""
        worlds = [self]
        for number, lock in enumerate(self.locks):
            if times[1] >= lock.end[0]:
                over = [world.lock(number, Lock("lost: expired")) for world in worlds]
                worlds = over if times[0] >= lock.end[1] else worlds + over
        brief: list[Owner] = [None] if times[0] >= self.brief[1] else [None, BRIEF]
        fates: dict[Owner, list[Owner]] = {OLD: [OLD, None], BRIEF: brief if times[1] >= self.brief[0] else [BRIEF]}
        for world in worlds:
            for keys in product(*(fates.get(key, [key]) for key in world.keys)):
                yield replace(world, keys=keys)

    def could(self, number: int, gone: Iterable[Owner]) -> bool:
        """Whether a lock that is not held could be acquired after some owners' keys are gone."""
        return not self.locks[number].held and sum(key in gone for key in self.keys) >= self.quorum

    def check(self, number: int) -> Outcomes:
        """Ask whether it is held."""
        state = self.locks[number].state
        yield {"held": "done", "released": "not_held"}.get(state, state), self

    def close(self, *numbers: int) -> World:
        """Release what these hold, with their client."""
        world = self
        for number in numbers:
            if world.locks[number].held:
                world = world.lock(number, Lock("released"))
        return world

    def acquire(self, number: int, ttl: float, times: Times, *, closed: bool, patience: float = 0) -> Outcomes:
        """Acquire, and wait as long as the `patience` lasts; without any it is one try."""
        lock = self.locks[number]
        if lock.held:
            yield "already_held", self
            return
        failed = self.lock(number, lock.idle())
        if closed:
            yield "closed", failed
            return
        if self.keys.count(None) >= self.quorum:
            made = frozenset(self.having(None))
            yield "acquired", self.key(None, number).lock(number, Lock("held", ttl, lease(times, ttl), made))
        elif patience < PATIENT:
            yield "denied", failed
        # On a slow machine the nodes may not have answered in time.
        if times[1] - times[0] > (patience + 4 * GRAIN if 0 < patience < PATIENT else ttl / 2):
            yield "unavailable", failed

    def extend(self, number: int, ttl: float | None, times: Times, later: frozenset[int]) -> Outcomes:
        """Extend. Nodes that have forgotten it get it back, but for those that know a `later` fence."""
        lock = self.locks[number]
        if lock.state in ("not_held", "released"):
            yield "not_held", self
        elif ttl == 0:
            yield "invalid_argument", self
        elif not lock.held:
            yield lock.state, self
        elif self.keys.count(number) < self.quorum:
            for reason in self._reasons(number, frozenset(range(len(self.keys)))):
                yield f"lost: {reason}", self.lock(number, Lock(f"lost: {reason}"))
        else:
            ttl = lock.ttl if ttl is None else ttl
            end = lease(times, ttl)
            end = max(lock.end[0], end[0]), max(lock.end[1], end[1])
            back = self.having(None) - later
            yield "done", self.put(back, number).lock(number, replace(lock, ttl=ttl, end=end, made=lock.made | back))

    def release(self, number: int) -> Outcomes:
        """Release, explicitly."""
        lock = self.locks[number]
        released = self.lock(number, Lock("released"))
        if lock.state == "released":
            yield "done", self
        elif lock.state == "not_held":
            yield "not_held", self
        elif not lock.held:
            yield lock.state, released
        elif self.keys.count(number) < self.quorum:
            # Nodes that have denied it are asked too, until their answer has arrived.
            everywhere = frozenset(range(len(self.keys)))
            for reason in self._reasons(number, lock.made) | self._reasons(number, everywhere):
                yield f"lost: {reason}", released
        else:
            yield "done", released

    def leave(self, number: int) -> Outcomes:
        """Release as the end of a block does, where only a loss is an error."""
        for result, world in self.release(number):
            yield ("done" if result == "not_held" else result), world

    def cancel(self, number: int, ttl: float, times: Times, *, closed: bool) -> Outcomes:
        """Acquire, and cancel at some moment: before it begins, before it ends, or too late."""
        yield "cancelled", self
        lock = self.locks[number]
        if not lock.held:
            yield "cancelled", self.lock(number, lock.idle())
        for result, world in self.acquire(number, ttl, times, closed=closed):
            if result != "denied":
                yield result, world

    def regain(self, number: int, other: Owner, times: Times) -> Outcomes:
        """Extend after another's keys are gone. It also restores keys that were free too late for the acquire."""
        return self.key(other, None).settled().extend(number, None, times, frozenset())

    def outwait(self, number: int, ttl: float, times: Times, *, closed: bool) -> Outcomes:
        """Acquire when others' brief keys expire, and regain those."""
        for acquired, world in self.acquire(number, ttl, times, closed=closed, patience=PATIENT):
            regained = world.regain(number, BRIEF, times) if acquired == "acquired" else [("", world)]
            for result, after in regained:
                yield f"{acquired} {result}", after

    def hand_over(self, holder: int, waiter: int, ttl: float, times: Times, *, closed: bool) -> Outcomes:
        """Release while another waits. That one may come first if it need not wait, and may regain the keys."""
        both = [
            (released, acquired, after)
            for released, world in self.release(holder)
            for acquired, after in world.settled().acquire(waiter, ttl, times, closed=closed, patience=PATIENT)
        ] + [
            (released, acquired, after)
            for acquired, world in self.acquire(waiter, ttl, times, closed=closed, patience=PATIENT)
            if acquired == "acquired"
            for released, after in world.release(holder)
        ]
        # The waiter may have free nodes for a moment, in an attempt that fails.
        also = [("lost: taken", acquired, world) for released, acquired, world in both if released == "lost: deleted"]
        for released, acquired, world in both + also:
            regained = world.regain(waiter, holder, times) if acquired == "acquired" else [("", world)]
            for result, after in regained:
                yield f"{released} {acquired} {result}", after

    def _reasons(self, number: int, asked: frozenset[int]) -> set[str]:
        """Why the lock is lost: by the first answers that rule out a quorum. The other nodes never had it."""
        gone = len(asked & (self.having(None) | self.having(OLD)))
        taken = len(asked - self.having(number)) - gone
        first = len(asked) - self.quorum + 1
        heard = range(max(0, first - gone), min(first, taken) + 1)
        return {"taken" if foreign >= self.quorum else "deleted" for foreign in heard}


def lease(times: Times, ttl: float) -> Times:
    """When a lease ends that was requested between these instants."""
    validity = ttl * 0.99 - 0.002
    return times[0] + validity - GRAIN, times[1] + validity + GRAIN
