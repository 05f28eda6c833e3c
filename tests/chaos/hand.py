"""The Python worker of chaos: one process whose hands acquire and release locks in every way.

`hand.mjs` and the Rust program beside it (`src/`) do the same; none of them judges. Standard input has orders, one
object a line:

- `epoch`: use these names from now on, one lock at a time for each hand, in shapes and ways of the given frequency;
- `rest`: finish the present work, and report when every hand has;
- `prove`: acquire this name, which all workers get at once, and report it;
- `mass`: acquire very many locks at once, and drop or cancel all of them together (only on asyncio);
- `fork`: let a child use the lock while the parent holds some (only in Python);
- the end of input: end.

The shapes of a lock:

- `one`: of one name; `set`: of several of the names that others lock alone;
- `slot`: one permit of a semaphore, of whose number not everybody has heard at the same time;
- `shared`: of one name, for readers; those who ask for the name alone, or together with others, are its writers;
- `term`: an election, in which a hand campaigns for a while, and its body is a term.

The ways to use a lock:

- `brief`: acquire, read, write, release; `busy`: the same, with some work in between;
- `block`: the same, released by the language's own block;
- `cancel`: cancel the acquire, or let it time out; `try`: do not wait;
- `long`: hold it for longer than its ttl, renewed in the background; `manual`: the same, extended by hand;
- `lease`: with a ttl so long that a forgotten key would be seen;
- `stale`: sleep past the end without a check, and write anyway;
- `hand`: detach it, for a hand of another language, which attaches it, works and releases it. It is the same hold: both
  write under its fence. If no hand takes it soon, the one that gave it takes it back, by attaching it too.

Some locks have a margin, or a least time. A holder that is told of its loss stays for part of its margin.

Events go to a journal, one object a line: the records that `redlock-history` reads, and the events that `tally.py`
knows. Among these is what the library logs, and at the end what it has counted. The addresses of the nodes are in
REDLOCK_URLS, because they contain passwords.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import logging
import os
import random
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import redlock
import redlock.asyncio

from chaos.asked import BREATH_S, BUSY_S, CANCEL_S, LOOK_S, PATIENCE_S, SHORT_S, Asked, Epoch, draw, mass, plain
from chaos.heard import Heard, totals
from chaos.journal import Journal
from support.clock import now_ns
from support.process import die_with_parent

Json = dict[str, Any]

MASS_S = 1.0
"""The time within which very many acquires are cancelled."""

RENEWED_NS = 50_000_000
"""By how much more must remain than before, so that a renewal is worth a line."""

LANGUAGE = "python"
LINE_LIMIT = 4096

GIVEN_S, TAKEN_S = 3.0, 1.0
"""For how long the nodes keep a lock that is detached, and what has to be left of it to take it."""

OFFERED_S = 0.5
"""How long a hand waits until its lock is taken."""

TAKES = 0.1
"""How often a hand looks whether one is offered."""

CHILD_LIMIT_S = 30.0
"""A forked child that takes longer hangs."""


class Store:
    """A connection to the store, for one hand. The store answers at once, so asyncio needs no other way."""

    def __init__(self, path: Path, client: str) -> None:
        self._client = client
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))

    def read(self, name: str, fence: int) -> int | None:
        """Returns the number, or nothing if the fence is too small."""
        answer = self._ask(f"read {name} {fence} {self._client}").split()
        return int(answer[1]) if answer[0] == "ok" else None

    def write(self, name: str, fence: int, value: int) -> None:
        """Writes the number, unless the fence is too small."""
        self._ask(f"write {name} {fence} {self._client} {value}")

    def give(self, until_ns: int, shape: str, text: str) -> None:
        """Offers a detached lock to hands of other languages."""
        self._ask(f"give {self._client} {LANGUAGE} {until_ns} {shape} {text}")

    def given(self) -> str:
        """Returns what became of the offer."""
        return self._ask(f"given {self._client}").strip()

    def withdraw(self) -> bool:
        """Ends the offer, unless it is taken."""
        return self._ask(f"withdraw {self._client}").strip() == "withdrawn"

    def take(self) -> list[str] | None:
        """Returns what another language offers: its giver, until when it lives, its shape, and the text."""
        offered = self._ask(f"take {LANGUAGE}").split()
        return offered if len(offered) > 1 else None

    def finished(self, giver: str, state: str) -> None:
        """Tells the giver what became of its lock."""
        self._ask(f"done {giver} {state}")

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def _ask(self, line: str) -> str:
        self._socket.sendall(f"{line}\n".encode())
        return self._socket.recv(LINE_LIMIT).decode()


class Worker:
    """The process: its client, its hands, and its orders."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.name: str = args.name
        self.args = args
        self.is_async: bool = args.face == "asyncio"
        self.journal = Journal(args.journal)
        logger = logging.getLogger("redlock")
        logger.addHandler(Heard(self.journal))
        logger.setLevel(logging.INFO)
        self.epoch: Epoch | None = None
        """What to do, unless the hands should rest."""
        self.over = False
        library: Any = redlock.asyncio if self.is_async else redlock
        altered = {"restart_delay": 0} if args.fault == "no quarantine" else {}
        self.client = library.Redlock(label=self.name, ttl=args.ttl, **altered)
        self.hands = [Hand(self, number) for number in range(args.hands)]
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop of the hands, on asyncio."""
        self._parked = 0
        self._counting = threading.Lock()

    def listen(self) -> None:
        """Performs orders until the end of input."""
        for line in sys.stdin:
            order = json.loads(line)
            match order["order"]:
                case "epoch":
                    self.epoch = Epoch(**{what: given for what, given in order.items() if what != "order"})
                case "rest":
                    self.epoch = None
                    self.park(0)
                case "prove":
                    self.hands[0].proof = order["name"]
                case "mass" if self.loop:
                    asyncio.run_coroutine_threadsafe(self.take_mass(order["pool"]), self.loop)
                case "fork":
                    threading.Thread(target=self.fork, args=[order["pool"]]).start()
        self.epoch, self.over = None, True

    def park(self, change: int) -> None:
        """Counts the hands that rest, and reports when all of them do."""
        with self._counting:
            self._parked += change
            if self._parked == len(self.hands):
                self.journal.say("resting")

    async def take_mass(self, pool: str) -> None:
        """Acquires every name at once, and a moment later cancels what waits and releases what it has."""
        # The worker does not rest before this has ended.
        self.park(-1)
        try:
            await self._take_all(self.epoch.names[pool] if self.epoch else [])
        except Exception as error:
            self.journal.say("trouble", message=f"{self.name}: {error!r}")
        self.park(+1)

    async def _take_all(self, names: list[str]) -> None:
        asked = [mass(name) for name in names]
        locks = [each.lock(self.client) for each in asked]
        asked_ns = now_ns()
        for each in asked:
            self.journal.say("asking", client=f"{self.name}/{each.name}", at_ns=asked_ns, **each.asking)
        calls = [asyncio.ensure_future(lock.acquire()) for lock in locks]
        await asyncio.sleep(MASS_S * random.Random(asked_ns).random())
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        # Locks that were acquired by then are released together.
        acquired = [lock for lock, result in zip(locks, ended, strict=True) if result is True]
        released = await asyncio.gather(*(lock.release() for lock in acquired), return_exceptions=True)
        lost = sum(isinstance(result, redlock.LockLost) for result in released)
        self.journal.say("mass", acquired=len(acquired), lost=lost)
        for lock in locks:
            self.journal.record(f"{self.name}/{lock.name}", lock.name, "acquire", (asked_ns, now_ns()), ok=False)

    def fork(self, pool: str) -> None:
        """A child finds that it holds nothing, and acquires again; the parent continues."""
        epoch = self.epoch
        if epoch is None:
            return
        locks = [hand.lock for hand in self.hands if hand.lock is not None]
        die = die_with_parent()
        with warnings.catch_warnings():
            # Python warns of forks beside threads, and those are tested here.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            if die:
                die()
            self._child(epoch.names[pool][0], locks)
        end = time.monotonic() + CHILD_LIMIT_S
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                self.journal.say("trouble", message=f"{self.name}: a forked child hangs")
                return
            time.sleep(LOOK_S)
        self.journal.say("forked")

    def _child(self, name: str, locks: list[Any]) -> None:
        client = f"{self.name}/child-{os.getpid()}"
        try:
            if any(lock.held for lock in locks):
                raise AssertionError("holds a lock of its parent")
            hand = Hand(self, -1)
            hand.client, hand.is_async = client, False
            asked = plain(name, self.args.ttl, timeout=PATIENCE_S)
            complete(hand.use(asked, redlock.Redlock(label=client)))
            self.journal.say("stats", process=client, metrics=totals())
        except BaseException as error:
            self.journal.say("trouble", message=f"{client}: {error!r}")
        finally:
            os._exit(0)


class Hold:
    """One hold of a lock, from its acquire to its release or loss."""

    def __init__(self, hand: Hand, lock: Any, asked: Asked, asked_ns: int) -> None:
        # The clock is read first: the recorded end of validity must not be later than the library means it.
        at_ns = now_ns()
        self.until_ns = at_ns + int(lock.remaining * 1e9)
        self.hand, self.lock, self.asked, self.fence, self.slot = hand, lock, asked, lock.fence, lock.slot
        self.lost = False
        self._telling = threading.Lock()
        self._record("acquire", (asked_ns, at_ns), valid_until_ns=self.until_ns)

    @property
    def stored(self) -> list[str]:
        """What the store has under this lock."""
        return sorted(self.asked.names) if self.slot is None else [f"{self.asked.name}#{self.slot}"]

    def look(self) -> None:
        """Records the lock's own view of its state."""
        try:
            self.lock.check()
        except redlock.LockLost as error:
            self.failed("check", 0, error)
            return
        at_ns = now_ns()
        until_ns = at_ns + int(self.lock.remaining * 1e9)
        if until_ns > self.until_ns + RENEWED_NS:
            self.extended(at_ns, until_ns)

    def extended(self, asked_ns: int, until_ns: int) -> None:
        """Records that the lock lasts longer than before."""
        self.until_ns = until_ns
        self._record("extend", (asked_ns, now_ns()), valid_until_ns=until_ns)

    def tell_lost(self, error: redlock.RedlockError) -> None:
        """Records that the holder knows of the loss, which may come by an event and by a check too."""
        with self._telling:
            if not self.lost:
                self.lost = True
                at_ns = now_ns()
                self._record("lost", (at_ns, at_ns), reason=getattr(error, "reason", None))
                self.hand.complain("hold", error)

    def releasing(self) -> int:
        """Records that the release begins. This ends the hold even if the process does not see the call return."""
        at_ns = now_ns()
        self.hand.worker.journal.say("releasing", client=self.hand.client, at_ns=at_ns)
        return at_ns

    def released(self, asked_ns: int) -> None:
        """Records the release."""
        self._record("release", (asked_ns, now_ns()))

    def gave_up(self, asked_ns: int) -> None:
        """Records a release of which only an election knows that it failed."""
        self._record("release", (asked_ns, now_ns()), ok=False)

    def failed(self, call: str, asked_ns: int, error: redlock.RedlockError) -> None:
        """Records that an extension or a release failed."""
        if isinstance(error, redlock.LockLost) and call != "release":
            self.tell_lost(error)
        else:
            # The hold ended when its release began, whatever the result.
            self._record(call, (asked_ns, now_ns()), ok=False)
            self.hand.complain(call, error)

    def _record(self, kind: str, call_ns: tuple[int, int], **values: object) -> None:
        of = self.asked.told | ({} if self.slot is None else {"slot": self.slot})
        journal = self.hand.worker.journal
        journal.record(self.hand.client, self.asked.name, kind, call_ns, fence=self.fence, **of, **values)


class Hand:
    """A hand: one holder after the other. On the blocking face its awaits never wait, because every call blocks."""

    def __init__(self, worker: Worker, number: int) -> None:
        self.worker = worker
        self.client = f"{worker.name}/{number}"
        self.is_async = worker.is_async
        self.dice = random.Random(f"{worker.args.seed}/{number}")
        self.store = Store(worker.args.store, self.client)
        self.proof: str | None = None
        self.lock: Any = None
        """The lock that it may hold."""
        self.hold: Hold | None = None
        """Its present or last hold."""
        self.kept: list[Any] = []
        """The locks that a planted fault does not release."""

    async def run(self) -> None:
        """Takes turns until the worker should end."""
        self.worker.park(+1)
        while not self.worker.over:
            proof = self.proof
            if self.worker.epoch is None and proof is None:
                await self.sleep(LOOK_S)
                continue
            self.worker.park(-1)
            if proof is not None:
                await self.prove(proof)
            while (epoch := self.worker.epoch) is not None:
                await self.turn(epoch)
            self.worker.park(+1)
        self.store.close()

    async def turn(self, epoch: Epoch) -> None:
        """Uses one lock in one way."""
        if "hand" in epoch.ways and self.dice.random() < TAKES and (offered := self.store.take()) is not None:
            giver, until_ns, shape, text = offered
            self.store.finished(giver, "over" if await self.attach(text, int(until_ns), shape) else "gone")
            return
        asked = draw(self.dice, epoch, self.worker.args.ttl, is_async=self.is_async)
        if asked.shape == "term":
            await Campaign(self, asked).run()
        else:
            await self.use(asked, self.worker.client)

    async def prove(self, name: str) -> None:
        """Acquires a lock that all workers want, in a time without trouble."""
        self.proof = None
        if await self.use(plain(name, self.worker.args.ttl), self.worker.client):
            self.worker.journal.say("served")

    async def use(self, asked: Asked, client: Any) -> bool:
        """Acquires the lock, works under it and releases it. Returns whether it was acquired."""
        lock = self.made(asked).lock(client)
        self.lock, self.hold = lock, None
        lock.on_lost(lambda error: self._told_lost(lock, error))
        asked_ns = self.ask(asked)
        try:
            if asked.way == "block":
                await self._block(lock, asked, asked_ns)
            elif await self._acquire(lock, asked):
                self.hold = Hold(self, lock, asked, asked_ns)
        except redlock.RedlockError as error:
            self.complain("acquire", error)
        if not self.hold:
            await self.denied(asked, asked_ns)
            return False
        if asked.way != "block":
            await self.work(self.hold)
            if asked.way != "hand" or not await self._hand_over(self.hold):
                await self._release(self.hold)
        return True

    def made(self, asked: Asked) -> Asked:
        """What is really asked for, which is the same without a planted fault."""
        return asked.careless if self.worker.args.fault == "no margin" else asked

    def ask(self, asked: Asked, at_ns: int | None = None) -> int:
        """Records that the hand asks for a lock, now or since then; returns when."""
        at_ns = at_ns or now_ns()
        self.worker.journal.say("asking", client=self.client, at_ns=at_ns, **asked.asking)
        return at_ns

    async def denied(self, asked: Asked, asked_ns: int) -> None:
        """Records that the lock was not acquired, and lets others go on."""
        times = asked_ns, now_ns()
        self.worker.journal.record(self.client, asked.name, "acquire", times, ok=False, **asked.told)
        await self.sleep(BREATH_S)

    def _told_lost(self, lock: Any, error: redlock.LockLost) -> None:
        if self.hold and self.hold.lock is lock:
            self.hold.tell_lost(error)

    async def _acquire(self, lock: Any, asked: Asked) -> bool:
        if asked.way != "cancel" or not self.is_async:
            return bool(await done(lock.acquire(**asked.how)))
        call = asyncio.ensure_future(lock.acquire())
        await self.sleep(CANCEL_S * self.dice.random())
        if self.worker.args.fault == "cancelled":
            if await call:
                self.kept.append(lock)
            return False
        call.cancel()
        try:
            return bool(await call)
        except asyncio.CancelledError:
            return False

    async def _block(self, lock: Any, asked: Asked, asked_ns: int) -> None:
        left_ns = 0
        try:
            if self.is_async:
                async with lock:
                    self.hold = Hold(self, lock, asked, asked_ns)
                    await self.work(self.hold)
                    left_ns = self.hold.releasing()
            elif self.worker.args.fault == "unreleased":
                if not lock.acquire():
                    return
                self.kept.append(lock)
                self.hold = Hold(self, lock, asked, asked_ns)
                await self.work(self.hold)
                left_ns = self.hold.releasing()
            else:
                with lock:
                    self.hold = Hold(self, lock, asked, asked_ns)
                    await self.work(self.hold)
                    left_ns = self.hold.releasing()
        except redlock.LockLost as error:
            assert self.hold
            self.hold.failed("release" if left_ns else "body", left_ns, error)
        else:
            self.hold.released(left_ns)

    async def work(self, hold: Hold, is_over: Callable[[], bool] = lambda: False) -> None:
        """What is done under a lock, until its holder is told that this is over."""
        values = {name: self.store.read(name, hold.fence) for name in hold.stored}
        way, ttl_s = hold.asked.way, self.worker.args.ttl
        match way:
            case "busy":
                await self._watch(hold, BUSY_S * self.dice.random(), is_over)
            case "long":
                await self._watch(hold, ttl_s * (1 + 1.5 * self.dice.random()), is_over)
            case "manual":
                for _ in range(3):
                    await self._watch(hold, ttl_s / 2, is_over)
                    await self._extend(hold)
            case "stale":
                await self.sleep(SHORT_S * (0.8 + 0.6 * self.dice.random()))
        for name, value in values.items():
            if value is None or (hold.lost and way != "stale"):
                continue
            if hold.asked.shape == "shared":
                self.store.read(name, hold.fence)
            else:
                self.store.write(name, hold.fence, value + 1)
        if hold.lost:
            # Others have to wait for its margin, unless it says that it has stopped.
            await self.sleep(hold.asked.margin_s * self.dice.random())

    async def _watch(self, hold: Hold, seconds: float, is_over: Callable[[], bool]) -> None:
        end_ns = now_ns() + int(seconds * 1e9)
        while not hold.lost and self.worker.epoch and not is_over() and (left_ns := end_ns - now_ns()) > 0:
            await self.sleep(min(LOOK_S, left_ns / 1e9))
            hold.look()

    async def _extend(self, hold: Hold) -> None:
        if hold.lost or self.worker.epoch is None:
            return
        asked_ns = now_ns()
        try:
            await done(hold.lock.extend())
            at_ns = now_ns()
            hold.extended(asked_ns, at_ns + int(hold.lock.remaining * 1e9))
        except redlock.RedlockError as error:
            hold.failed("extend", asked_ns, error)

    async def _release(self, hold: Hold) -> None:
        asked_ns = hold.releasing()
        try:
            await done(hold.lock.release())
            hold.released(asked_ns)
        except redlock.RedlockError as error:
            hold.failed("release", asked_ns, error)

    async def _hand_over(self, hold: Hold) -> bool:
        """Detaches the lock, and waits until another hand has released it. Returns whether it was detached."""
        if hold.lost:
            return False
        asked_ns = now_ns()
        try:
            text = await done(hold.lock.detach(ttl=GIVEN_S))
        except redlock.RedlockError as error:
            hold.failed("extend", asked_ns, error)
            return False
        until_ns = asked_ns + int((GIVEN_S * 0.99 - 0.002 - hold.asked.margin_s) * 1e9)
        hold.extended(asked_ns, until_ns)
        # Also if this process ends, the hold lasts until then.
        self.worker.journal.say("releasing", client=self.client, at_ns=until_ns)
        self.store.give(until_ns, hold.asked.shape, text)
        back_ns = now_ns() + int(OFFERED_S * 1e9)
        while (state := self.store.given()) != "over":
            if state == "gone":
                hold.gave_up(now_ns())
                break
            if state == "open" and (now_ns() > back_ns or not self.worker.epoch) and self.store.withdraw():
                if not await self.attach(text, until_ns, hold.asked.shape):
                    hold.gave_up(now_ns())
                break
            await self.sleep(LOOK_S)
        return True

    async def attach(self, text: str, until_ns: int, shape: str) -> bool:
        """Goes on with the hold of another hand, and releases it. Returns whether it could."""
        asked_ns = now_ns()
        try:
            if asked_ns + int(TAKEN_S * 1e9) > until_ns:
                return False
            lock = await done(self.worker.client.attach(text, timeout=TAKEN_S / 2))
        except redlock.RedlockError as error:
            self.worker.journal.say("attached", acquired=0, lost=0, code=error.code)
            return False
        at_ns = now_ns()
        valid_ns = at_ns + int(lock.remaining * 1e9)
        names = sorted(map(str, lock.names))
        of = {"fence": lock.fence} | ({"names": names} if len(names) > 1 else {})
        of |= {"shared": True} if shape == "shared" else {}
        of |= {} if lock.slot is None else {"slot": lock.slot}
        of_call = self.client, ", ".join(names)
        self.worker.journal.record(*of_call, "extend", (asked_ns, at_ns), valid_until_ns=valid_ns, attached=True, **of)
        stored = names if lock.slot is None else [f"{names[0]}#{lock.slot}"]
        values = {name: self.store.read(name, lock.fence) for name in stored}
        await self.sleep(BUSY_S * self.dice.random())
        for name, value in values.items():
            if value is not None and shape != "shared" and lock.held:
                self.store.write(name, lock.fence, value + 1)
        asked_ns, code = now_ns(), None
        try:
            await done(lock.release())
            self.worker.journal.record(*of_call, "release", (asked_ns, now_ns()), **of)
        except redlock.RedlockError as error:
            # It has not relied on the lock for longer, although it may have been stopped.
            code, over_ns = error.code, min(asked_ns, max(valid_ns, until_ns))
            self.worker.journal.record(*of_call, "release", (over_ns, over_ns), ok=False, **of)
        self.worker.journal.say("attached", acquired=1, lost=int(code == "lost"), code=code)
        return True

    def complain(self, call: str, error: redlock.RedlockError) -> None:
        """Reports a failed call."""
        what = {"code": error.code, "message": str(error), "reason": getattr(error, "reason", None)}
        self.worker.journal.say("error", client=self.client, call=call, at_ns=now_ns(), **what)

    async def sleep(self, seconds: float) -> None:
        """Sleeps for a while."""
        if self.is_async:
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)


class Campaign:
    """An election in which a hand runs: until its term is over, or until it is stopped."""

    def __init__(self, hand: Hand, asked: Asked) -> None:
        self.hand, self.asked = hand, asked
        self.election: Any = hand.worker.client.election(asked.name, **hand.made(asked).options)
        self.term: Hold | None = None
        """The term, unless it campaigns."""
        self.asked_ns = 0
        """Since when it campaigns, or has."""
        self.left_ns = 0
        """When its last term came to its end."""

    async def run(self) -> None:
        """Runs in it, and stops after a while."""
        self.hand.hold = None
        self.asked_ns = self.hand.ask(self.asked)
        stop = self._stop_after(PATIENCE_S * self.hand.dice.random())
        try:
            if self.hand.is_async:
                await self.election.run(self._lead)
            else:
                self.election.run(lambda lock: complete(self._lead(lock)))
        except redlock.RedlockError as error:
            self.hand.complain("acquire", error)
        finally:
            stop()
        if self.term:
            self.term.released(self.left_ns)
            self.hand.worker.journal.say("resigned", client=self.hand.client)
        else:
            await self.hand.denied(self.asked, self.asked_ns)
            self.hand.worker.journal.say("stopped", client=self.hand.client)

    def _stop_after(self, seconds: float) -> Callable[[], object]:
        """Stops the election after a while; returns what prevents that."""
        if loop := self.hand.worker.loop:
            return loop.call_later(seconds, self.election.stop).cancel
        timer = threading.Timer(seconds, self.election.stop)
        timer.start()
        return timer.cancel

    async def _lead(self, lock: Any) -> None:
        if self.term:
            # Its loss came right behind its end.
            self.term.gave_up(self.left_ns)
            self.hand.worker.journal.say("resigned", client=self.hand.client)
            self.asked_ns = self.hand.ask(self.asked, self.left_ns)
        self.hand.lock = lock
        self.hand.hold = self.term = term = Hold(self.hand, lock, self.asked, self.asked_ns)
        lock.on_lost(term.tell_lost)
        try:
            await self.hand.work(term, lambda: bool(self.election.stopped))
        finally:
            # A task learns of its loss by its cancellation.
            term.look()
            self.left_ns = term.releasing()
            if term.lost:
                term.released(self.left_ns)
                self.term, self.asked_ns = None, self.hand.ask(self.asked, self.left_ns)


async def done(result: Any) -> Any:
    """The result of a call of either face."""
    return await result if inspect.isawaitable(result) else result


def complete(call: Coroutine[Any, Any, object]) -> None:
    """Runs a coroutine of the blocking face, which never waits."""
    try:
        call.send(None)
    except StopIteration:
        return
    raise RuntimeError("a call of the blocking face was awaited")


async def all_of(worker: Worker) -> None:
    """Runs all hands at once."""
    worker.loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        for hand in worker.hands:
            group.create_task(hand.run())


def arguments() -> argparse.Namespace:
    """The worker's command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="of this process, among all that there will ever be")
    parser.add_argument("--face", choices=["sync", "asyncio"], required=True)
    parser.add_argument("--hands", type=int, required=True, help="how many locks it uses at once")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--ttl", type=float, required=True, help="of most locks, in seconds")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True, help="the unix socket of the store")
    parser.add_argument("--fault", help="a mistake to make, as `planted.py` names it")
    return parser.parse_args()


def main() -> None:
    """Runs the worker until the end of input."""
    worker = Worker(arguments())
    threading.Thread(target=worker.listen, daemon=True).start()
    if worker.is_async:
        asyncio.run(all_of(worker))
    else:
        threads = [threading.Thread(target=complete, args=[hand.run()]) for hand in worker.hands]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    worker.journal.say("stats", process=worker.name, metrics=totals())


if __name__ == "__main__":
    main()
