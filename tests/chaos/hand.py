"""A worker of chaos: hands that acquire and release locks in every way, through a driver of the conformance suite.

The driver (`conformance/drivers/`) is the process that uses the library, in its language; it is stopped and killed
together with this one. Neither of them judges. Standard input has orders, one object a line:

- `epoch`: use these names from now on, one lock at a time for each hand, in shapes and ways of the given frequency;
- `rest`: finish the present work, and report when every hand has;
- `prove`: acquire this name, which all workers get at once, and report it;
- the end of input: end.

The shapes of a lock:

- `one`: of one name; `set`: of several of the names that others lock alone;
- `slot`: one permit of a semaphore, of whose number not everybody has heard at the same time;
- `shared`: of one name, for readers; those who ask for the name alone, or together with others, are its writers.

The ways to use a lock:

- `brief`: acquire, read, write, release; `busy`: the same, with some work in between;
- `block`: the same, released by the end of the language's own block;
- `cancel`: cancel the acquire, or let it time out; `try`: do not wait;
- `long`: hold it for longer than its ttl, renewed in the background; `manual`: the same, extended by hand;
- `lease`: with a ttl so long that a forgotten key would be seen;
- `stale`: sleep past the end, and write anyway.

Some locks have a margin, or a least time. A holder that is told of its loss stays for part of its margin.

Events go to a journal, one object a line: the records that `redlock-history` reads, and the events that `tally.py`
knows. Among these is what the library logs. The addresses of the nodes are in REDLOCK_URLS, because they contain
passwords.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos.asked import BREATH_S, BUSY_S, CANCEL_S, LOOK_S, SHORT_S, Asked, Epoch, draw, plain
from chaos.journal import Journal
from conformance.driver import FACES
from conformance.library import Library, Refused, started
from support.clock import now_ns

Json = dict[str, Any]

RENEWED_NS = 50_000_000
"""By how much more must remain than before, so that a renewal is worth a line."""

ATTENTIVE = 0.25
"""The share of its ttl within which a lock is renewed once at most."""

STORE_LIMIT = 4096

HEAR_S = 0.25
"""How often the driver is asked what the library has logged."""

TOLD_MS = 100
"""How long a lock that is not held takes to say why."""


class Store:
    """A connection to the store, for one hand. The store answers at once, so nothing else has to go on meanwhile."""

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

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def _ask(self, line: str) -> str:
        self._socket.sendall(f"{line}\n".encode())
        return self._socket.recv(STORE_LIMIT).decode()


class Worker:
    """The player: its hands, and its orders."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.name: str = args.name
        self.args = args
        self.face = FACES[args.face]
        self.journal = Journal(args.journal)
        self.epoch: Epoch | None = None
        """What to do, unless the hands should rest."""
        self.over = False
        self.fences: dict[str, int] = {}
        """The last fence of each name, for a planted fault."""
        self.hands: list[Hand] = []
        self.library: Library
        self._parked = 0

    async def play(self) -> int:
        """Plays until the end of input; returns the exit status of the driver."""
        command = [*self.args.driver, "--face", self.face.name]
        driver, self.library = await started(command)
        options = {"label": self.name, "ttl_ms": self.args.ttl * 1000}
        client: int = (await self.library.call("client", options=options))["handle"]
        self.hands = [Hand(self, f"{self.name}/{number}", self.library, client) for number in range(self.args.hands)]
        threading.Thread(target=self.listen, args=[asyncio.get_running_loop()], daemon=True).start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hear())
            for hand in self.hands:
                group.create_task(hand.run())
        await self._hear()
        self.library.end()
        return await driver.wait()

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Performs orders until the end of input."""
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._obey, json.loads(line))
        loop.call_soon_threadsafe(self._obey, {"order": "end"})

    def _obey(self, order: Json) -> None:
        match order.pop("order"):
            case "epoch":
                self.epoch = Epoch(**order)
            case "rest":
                self.epoch = None
                self.park(0)
            case "prove":
                self.hands[0].proof = order["name"]
            case "end":
                self.epoch, self.over = None, True

    def park(self, change: int) -> None:
        """Counts the hands that rest, and reports when all of them do."""
        self._parked += change
        if self._parked == len(self.hands):
            self.journal.say("resting")

    async def _hear(self) -> None:
        """Records what the library logs in the driver."""
        while True:
            is_last = self.over
            for event in (await self.library.call("events"))["events"]:
                if event["level"] in ("info", "warn", "error"):
                    self.journal.say("heard", code=event["code"], text=event["message"])
            if is_last:
                return
            await asyncio.sleep(HEAR_S)


class Hold:
    """One hold of a lock, from its acquire to its release or loss."""

    def __init__(self, hand: Hand, handle: int, asked: Asked, asked_ns: int, state: Json) -> None:
        self.hand, self.handle, self.asked = hand, handle, asked
        self.slot: int | None = state["slot"]
        self.fence: int = state["fence"]
        if hand.worker.args.fault == "old fence":
            fence: int = state["fence"]
            self.fence = hand.worker.fences.get(asked.name, fence)
            hand.worker.fences[asked.name] = fence
        self.until_ns = until(state)
        self.lost = False
        self.looked_ns: int = state["read_ns"]
        self._record("acquire", (asked_ns, self.looked_ns), valid_until_ns=self.until_ns)

    @property
    def stored(self) -> list[str]:
        """What the store has under this lock."""
        return sorted(self.asked.names) if self.slot is None else [f"{self.asked.name}#{self.slot}"]

    async def wait(self, seconds: float) -> None:
        """Waits so long, and is told if the lock is lost meanwhile."""
        end_ns = now_ns() + int(seconds * 1e9)
        if not self.lost:
            await self._listen(seconds * 1000)
        await asyncio.sleep((end_ns - now_ns()) / 1e9)

    async def look(self) -> None:
        """Records the lock's own view of its state."""
        state = await self.hand.library.call("state", lock=self.handle)
        if state["held"]:
            self.seen(state["read_ns"], until(state))
        else:
            await self._listen(TOLD_MS)

    async def _listen(self, limit_ms: float) -> None:
        told = await self.hand.library.call("wait_lost", lock=self.handle, limit_ms=max(0, round(limit_ms)))
        if told["lost"]:
            self.tell_lost(told["told_ns"], Refused(told["lost"]))

    def seen(self, at_ns: int, until_ns: int) -> None:
        """Records a renewal, if there was one."""
        # Of several renewals only the last one is seen. The first one began after the last look.
        is_attentive = at_ns - self.looked_ns < self.asked.options["ttl"] * ATTENTIVE * 1e9
        if until_ns > self.until_ns + RENEWED_NS:
            self.extended(at_ns if is_attentive else self.looked_ns, until_ns)
        self.looked_ns = max(self.looked_ns, at_ns)

    def extended(self, asked_ns: int, until_ns: int) -> None:
        """Records that the lock lasts longer than before."""
        self.until_ns = until_ns
        self._record("extend", (asked_ns, now_ns()), valid_until_ns=until_ns)

    def tell_lost(self, at_ns: int, error: Refused) -> None:
        """Records that the holder knows of the loss."""
        if not self.lost:
            self.lost = True
            self._record("lost", (at_ns, at_ns), reason=error.reason)
            self.hand.complain("hold", error, at_ns)

    def releasing(self) -> int:
        """Records that the release begins. This ends the hold even if the process does not see the call return."""
        at_ns = now_ns()
        self.hand.worker.journal.say("releasing", client=self.hand.client, at_ns=at_ns)
        return at_ns

    def released(self, asked_ns: int) -> None:
        """Records the release."""
        self._record("release", (asked_ns, now_ns()))

    def failed(self, call: str, asked_ns: int, error: Refused) -> None:
        """Records that an extension or a release failed."""
        if error.code == "lost" and call != "release":
            self.tell_lost(now_ns(), error)
        else:
            # The hold ended when its release began, whatever the result.
            self._record(call, (asked_ns, now_ns()), ok=False)
            self.hand.complain(call, error)

    def _record(self, kind: str, call_ns: tuple[int, int], **values: object) -> None:
        of = self.asked.told | ({} if self.slot is None else {"slot": self.slot})
        journal = self.hand.worker.journal
        journal.record(self.hand.client, self.asked.name, kind, call_ns, fence=self.fence, **of, **values)


class Hand:
    """A hand: one holder after the other."""

    def __init__(self, worker: Worker, client: str, library: Library, redlock: int) -> None:
        self.worker, self.client = worker, client
        self.library, self.redlock = library, redlock
        self.dice = random.Random(f"{worker.args.seed}/{client}")
        self.store = Store(worker.args.store, client)
        self.proof: str | None = None
        self.hold: Hold | None = None
        """Its present or last hold."""

    async def run(self) -> None:
        """Takes turns until the worker should end."""
        self.worker.park(+1)
        while not self.worker.over:
            proof = self.proof
            if self.worker.epoch is None and proof is None:
                await asyncio.sleep(LOOK_S)
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
        await self.use(draw(self.dice, epoch, self.worker.args.ttl, cancels=self.worker.face.cancels))

    async def prove(self, name: str) -> None:
        """Acquires a lock that all workers want, in a time without trouble."""
        self.proof = None
        if await self.use(plain(name, self.worker.args.ttl)):
            self.worker.journal.say("served")

    async def use(self, asked: Asked) -> bool:
        """Acquires the lock, works under it and releases it. Returns whether it was acquired."""
        asked_ns = now_ns()
        self.worker.journal.say("asking", client=self.client, at_ns=asked_ns, **asked.asking)
        handle: int = (await self.library.call(client=self.redlock, **self.made(asked).request))["handle"]
        self.hold, won = None, False
        try:
            state = await self._acquire(handle, asked)
            won = bool(state.get("acquired"))
            if won:
                self.hold = Hold(self, handle, asked, asked_ns, state)
        except Refused as error:
            self.complain("acquire", error)
        if self.hold:
            await self.work(self.hold)
            await self._release(self.hold)
        else:
            self.worker.journal.record(self.client, asked.name, "acquire", (asked_ns, now_ns()), ok=False, **asked.told)
            # Others go on.
            await asyncio.sleep(BREATH_S)
        if not self._keeps(asked):
            await self.library.forget(handle)
        return won

    def _keeps(self, asked: Asked) -> bool:
        """Whether a planted fault keeps a lock that is used in this way."""
        return asked.way == "block" and self.worker.args.fault == "unreleased"

    def made(self, asked: Asked) -> Asked:
        """What is really asked for, which is the same without a planted fault."""
        if self.worker.args.fault == "own lock" and asked.shape == "one":
            return replace(asked, names=[asked.name + self.worker.name])
        return asked

    async def _acquire(self, lock: int, asked: Asked) -> Json:
        number, answer = self.library.start(lock=lock, **asked.how)
        if asked.way == "cancel" and self.worker.face.cancels:
            await asyncio.sleep(CANCEL_S * self.dice.random())
            await self.library.call("cancel", call=number)
        return await answer

    async def work(self, hold: Hold) -> None:
        """What is done under a lock."""
        values = {name: self.store.read(name, hold.fence) for name in hold.stored}
        way, ttl_s = hold.asked.way, self.worker.args.ttl
        match way:
            case "busy":
                await self._watch(hold, BUSY_S * self.dice.random())
            case "long":
                await self._watch(hold, ttl_s * (1 + 1.5 * self.dice.random()))
            case "manual":
                for _ in range(3):
                    await self._watch(hold, ttl_s / 2)
                    await self._extend(hold)
            case "stale":
                await hold.wait(SHORT_S * (0.8 + 0.6 * self.dice.random()))
                # Behind a stop, the time is over and the lock lost at one moment.
                await hold.look()
        for name, value in values.items():
            if value is None or (hold.lost and way != "stale"):
                continue
            if hold.asked.shape == "shared":
                self.store.read(name, hold.fence)
            else:
                self.store.write(name, hold.fence, value + 1)
        if hold.lost:
            # Others have to wait for its margin, unless it says that it has stopped.
            await asyncio.sleep(hold.asked.margin_s * self.dice.random())

    async def _watch(self, hold: Hold, seconds: float) -> None:
        end_ns = now_ns() + int(seconds * 1e9)
        while not hold.lost and self.worker.epoch and (left_ns := end_ns - now_ns()) > 0:
            await hold.wait(min(LOOK_S, left_ns / 1e9))
            await hold.look()

    async def _extend(self, hold: Hold) -> None:
        if hold.lost or self.worker.epoch is None:
            return
        asked_ns = now_ns()
        try:
            hold.extended(asked_ns, until(await self.library.call("extend", lock=hold.handle)))
        except Refused as error:
            hold.failed("extend", asked_ns, error)

    async def _release(self, hold: Hold) -> None:
        asked_ns = hold.releasing()
        is_block = hold.asked.way == "block"
        try:
            if is_block and self.worker.face.language == "rust":
                # The guard is dropped, and does not tell.
                await self.library.call("check", lock=hold.handle)
            if not self._keeps(hold.asked):
                await self.library.call("leave" if is_block else "release", lock=hold.handle)
            hold.released(asked_ns)
        except Refused as error:
            hold.failed("release", asked_ns, error)

    def complain(self, call: str, error: Refused, at_ns: int | None = None) -> None:
        """Reports a failed call."""
        what = {"code": error.code, "message": str(error), "reason": error.reason}
        self.worker.journal.say("error", client=self.client, call=call, at_ns=at_ns or now_ns(), **what)


def until(state: Json) -> int:
    """Until when a lock of this state is valid. The clock was read before it was asked."""
    return int(state["read_ns"] + state["remaining_ms"] * 1e6)


def arguments() -> argparse.Namespace:
    """The worker's command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="of this process, among all that there will ever be")
    parser.add_argument("--face", choices=FACES, required=True)
    parser.add_argument("--hands", type=int, required=True, help="how many locks it uses at once")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--ttl", type=float, required=True, help="of most locks, in seconds")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True, help="the unix socket of the store")
    parser.add_argument("--fault", help="a mistake to make, as `planted.py` names it")
    parser.add_argument("driver", nargs="+", help="the command that starts the driver")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(Worker(arguments()).play()))
