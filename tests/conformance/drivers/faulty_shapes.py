"""Locks of several names, semaphores and elections of the driver with planted faults; see faulty.py."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from concurrent.futures import Future
from typing import ClassVar

from conformance.drivers.faulty_locks import POLL_S, Client, Json, Lock, LockError, Restoring, later, tagged
from support.clock import now_ns

BACKSTOP_S = 4.0
"""The longest pause between two attempts of a waiter. An attempt that is denied runs two scripts."""


NAMES_MOST = 16

HOARD_S = 0.3
"""How long a waiter that hoards keeps a name before it asks for the next one, if that one is free."""


class Watching(Lock):
    """A lock whose waiters look, without a script, whether another attempt is worth it."""

    keeps_readers_out: ClassVar = False

    def is_cancelled(self, last: float, cancelled: threading.Event) -> bool:
        """Waits until another attempt is worth it, or `last`. Returns whether the call was cancelled."""
        watches = self.rules.watches and not self.rules.hoards
        last = min(last, time.monotonic() + BACKSTOP_S) if watches else 0
        while time.monotonic() < last and self.is_locked():
            if cancelled.wait(self.rules.poll_s):
                return True
        return cancelled.is_set()

    def is_held_somewhere(self, key: bytes) -> bool:
        """Whether a quorum of nodes does not show that the key is free."""
        answers = self.answers(["EXISTS", key], self.nodes)
        return sum(answer == 0 for answer in answers.values()) < self.quorum


class Several(Watching, Restoring):
    """A lock of several names."""

    scripts: ClassVar = "all_"

    def __init__(self, client: Client, names: list[bytes], given: list[bytes], options: Json) -> None:
        super().__init__(client, names, options)
        self.given = given
        self.hoard: dict[bytes, Lock] = {}
        """The names that it has although it has not all of them."""
        self.at_least_s = 0

    def is_locked(self) -> bool:
        """Whether anybody holds one of its names."""
        return any(map(self.is_held_somewhere, self.keys))

    def attempt(self) -> bool:
        """Tries once; false if others hold one of its names."""
        if not self.rules.hoards:
            return super().attempt()
        for name in self.given:
            if name in self.hoard:
                continue
            one = Lock(self.client, [name], {"auto_renew": False})
            # Others take the next name first, so that callers with opposite orders always block each other.
            last = time.monotonic() + (HOARD_S if self.hoard else 0)
            while time.monotonic() < last and not self.is_held_somewhere(one.keys[0]):
                time.sleep(POLL_S)
            if not one.attempt():
                return False
            self.hoard[name] = one
        self.token = "held one by one"
        self.begin(time.monotonic(), max(one.fence or 0 for one in self.hoard.values()))
        return True

    def release(self) -> None:
        """Releases the lock."""
        if not self.rules.hoards:
            return super().release()
        for one in self.hoard.values():
            one.release()
        self.hoard.clear()
        self.over = LockError("not_held", self.name)
        return self.ended.set()


def several(client: Client, given: list[bytes], options: Json) -> Lock:
    """Makes a lock of several names."""
    names = sorted(set(given))
    if len(names) > NAMES_MOST:
        raise LockError("invalid_argument", None, message=f"names are {len(names)}", option="names")
    if len(names) == 1:
        return Lock(client, names, options)
    return Several(client, names, given, options)


# KEYS: what wakes those who wait for any slot. The first of them has made it.
RING = 'return redis.call("EXISTS", KEYS[1]) == 1 and redis.call("INCR", KEYS[1])'


def slot_key(name: bytes, slot: int) -> bytes:
    """The key of a slot of a semaphore, whose name has a hash tag or no braces."""
    return b"redlock:slot:%d:" % slot + tagged(name)


def keys_of_slots(client: Client, name: bytes, permits: int) -> list[bytes]:
    """The key of each slot."""
    return [slot_key(client.prefix + name, slot) for slot in range(permits)]


def line_of(name: bytes, permits: int) -> bytes:
    """What waiters wait for together."""
    return b"%d permits of %b" % (permits, name)


class Slot(Watching):
    """A lock of one slot of a semaphore."""

    def __init__(self, client: Client, name: bytes, permits: int, options: Json) -> None:
        super().__init__(client, [name], options)
        self.permits, self.slots = permits, keys_of_slots(client, name, permits + self.rules.spare_permits)
        self.bell = b"redlock:slot:bell:" + tagged(client.prefix + name)
        self.line = line_of(name, permits)
        self.quorum = self.rules.slot_quorum(len(self.nodes))
        self.waits_since = 0.0

    def free(self) -> list[int]:
        """The slots that are free on a quorum."""
        return [slot for slot in range(self.permits) if not self.is_held_somewhere(self.slots[slot])]

    def is_locked(self) -> bool:
        """Whether each slot is held."""
        return not self.free()

    def wait(self, last: float, cancelled: threading.Event) -> bool:
        """Waits at the front of the queue until `last`."""
        self.waits_since = time.monotonic()
        return super().wait(last, cancelled)

    def attempt(self) -> bool:
        """Tries any slot, and then one that was free; false if others hold all of them."""
        if time.monotonic() < self.waits_since + self.rules.stubborn_s:
            return self.attempt_at(0)
        # The scripts come last: whoever sees that they have run knows that the attempt has looked.
        free = (self.rules.looks and self.free()) or [*range(self.permits, len(self.slots))]
        if self.attempt_at(random.randrange(self.permits)):
            return True
        return bool(free) and self.attempt_at(random.choice(free))

    def attempt_at(self, slot: int) -> bool:
        """Tries one slot."""
        self.slot, self.keys = slot, [self.slots[slot]]
        return super().attempt()

    def release(self) -> None:
        """Releases the lock, and wakes those who wait for any slot."""
        try:
            super().release()
        finally:
            for node in self.nodes:
                node.start("EVAL", RING, 1, self.bell)


def view_of_slots(client: Client, name: bytes, permits: int) -> list[Json]:
    """What the nodes show of each slot of a semaphore."""
    waiting, keys, views = client.waiting[line_of(name, permits)], keys_of_slots(client, name, permits), []
    for slot in range(permits):
        view = client.view(name, keys[slot])
        left = [node.start("PTTL", keys[slot]).result() for node in client.nodes]
        views.append(
            {**view, "slot": slot, "waiting": waiting, "ttl_left_ms": max(ms for ms in left if isinstance(ms, int))}
        )
    return views


class Election:
    """A candidate, whose body lasts until the test ends it."""

    def __init__(self, client: Client, name: bytes, options: Json) -> None:
        self.client, self.name, self.rules = client, name, client.rules
        self.lock = Lock(client, [name], options)
        self.lock.is_renewed = True
        self.terms: list[Json] = []
        self.stopped = threading.Event()
        self.stops = threading.Event()
        """It is told to stop a little before it does, if that is its fault."""
        self.end = Future[bool]()
        """The end of the present term: whether its body fails."""

    def stop(self) -> None:
        """Ends the campaign or the term, and all later ones."""
        self.stopped.set()
        later(self.rules.stop_s, self.stops.set)

    def run(self, *, lingers: bool, detaches: bool) -> Json:
        """Campaigns, and leads until its body has returned or failed."""
        while not self.stops.is_set() and self.lock.acquire(self.rules.campaign_s, self.stops):
            if self.stops.is_set():
                break
            how = self.lead(lingers=lingers, detaches=detaches)
            number = self.lock.fence
            # What is left of a lost term is released, too.
            with contextlib.suppress(LockError):
                self.lock.release()
            if how == "returned":
                return {"result": number}
            if how == "failed":
                return {"failed": True}
        return {"result": None}

    def lead(self, *, lingers: bool, detaches: bool) -> str:
        """Leads for one term. Returns how it has ended."""
        self.end, how = Future(), "cut"
        self.terms.append({"fence": self.lock.fence, "began_ns": now_ns(), "over_ns": None, "how": None})
        if detaches:
            self.terms[-1]["detach"] = "invalid_argument"
        while self.lock.remaining_s and not self.stops.is_set() and not self.end.done():
            time.sleep(POLL_S)
        if self.end.done():
            how = "failed" if self.end.result() else "returned"
        elif not self.lock.remaining_s:
            with contextlib.suppress(LockError):
                self.lock.check()
        self.terms[-1] |= {"over_ns": now_ns(), "how": how}
        if how == "cut" and lingers:
            self.end.result()
        return how

    def leader(self) -> Json | None:
        """Who leads, as the nodes show it."""
        view = self.client.inspect(self.name)
        if view["state"] != "held":
            return None
        return {"label": view["label"] or None, "term": view["fence"] if len(self.client.nodes) == 1 else None}
