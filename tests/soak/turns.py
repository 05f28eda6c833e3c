"""What the soak has a driver of the conformance suite do again and again, once for all faces."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import Any

from conformance.driver import Face
from conformance.library import Library, Refused

Json = dict[str, Any]

OPTIONS = {"ttl_ms": 60_000, "node_timeout_ms": 200}
"""The ttl is longer than the servers may take to be empty, so that a key that is not deleted is found. The timeout is
short, so that calls give up a node while it is frozen."""

TASKS = {"wait": 4, "denied": 64, "crowd": 64, "cancel": 8}
"""How many compete for one name, are denied, or acquire at once. Few cancel, so that pending releases of a frozen node
stay below their limit."""

PERMITS = 2
"""How many permits a semaphore has."""

WRITES = 4
"""Of so many turns with a shared lock, one is that of a writer."""

MOMENT_MS = 20
"""Long enough for a call to be denied in the background too, and the latest moment of a cancellation."""

FIRST_MS = 1000
"""The same of the first call of each task, which waits on a busy machine, too."""

WANTED = 3
"""How many names the tasks that cancel compete for."""

CLOSE_MS = 10_000
"""The longest that closing a client takes."""


class Turns:
    """The turns of one worker. It never judges what is left behind."""

    def __init__(self, library: Library, nodes: list[str], face: Face, work: str, shape: str) -> None:
        self.library, self.nodes, self.face, self.work, self.shape = library, nodes, face, work, shape
        self.dice = random.Random(0)
        self.leak: str | None = None
        """A planted fault."""
        self.done = 0
        self.counts: Counter[str] = Counter()
        self._own: int | None = None

    async def perform(self, count: int) -> Json:
        """Takes `count` turns, or cancels so many acquires, and returns with everything released, or about to be."""
        self.counts.clear()
        tasks = TASKS.get(self.work, 1)
        # Not made if each turn opens its own client: the clients of one process share connections.
        if count and self._own is None and self.work != "clients":
            self._own = await self._client()
        if count and self.work == "cancel":
            await asyncio.gather(*(self._cancel(task, count) for task in range(tasks)))
        elif count:
            await asyncio.gather(*(self._turns(task, count // tasks) for task in range(tasks)))
            self.done += count
            await self._leak()
        # What the library has logged would grow.
        await self.library.call("events")
        return self.counts | await self.library.call("live")

    async def _turns(self, task: int, count: int) -> None:
        take = self._deny if self.work == "denied" else self._turn
        for number in range(self.done, self.done + count):
            client = self._own or await self._client()
            await take(client, task, number)
            if client != self._own:
                # Others are dropped.
                if number % 2 == 0:
                    await self.library.call("close", client=client, limit_ms=CLOSE_MS)
                await self.library.forget(client)

    async def _client(self) -> int:
        handle: int = (await self.library.call("client", nodes=self.nodes, options=OPTIONS))["handle"]
        return handle

    async def _made(self, client: int, name: str, turn: int) -> int:
        """A lock. The names of a set stand around its name, so that it is neither the first nor the last."""
        names = [f"a-{name}", name, f"z-{name}"] if self.shape == "set" else [name]
        return await self._lock(client, names, PERMITS, shared=turn % WRITES > 0)

    async def _lock(self, client: int | None, names: list[str], permits: int, *, shared: bool) -> int:
        hexed = [name.encode().hex() for name in names]
        of: Json = {"op": "lock", "name": hexed[0], "options": {}}
        match self.shape:
            case "set":
                of |= {"op": "lock_all", "names": hexed}
            case "slot":
                of |= {"op": "semaphore", "permits": permits}
            case "term":
                of["op"] = "election"
            case "shared" if shared:
                of["options"] = {"shared": True}
        handle: int = (await self.library.call(client=client, **of))["handle"]
        return handle

    async def _turn(self, client: int, task: int, number: int) -> None:
        """Acquires, and releases."""
        by_turn = f"name-{task}-{number}" if self.work == "crowd" else f"name-{number}"
        lock = await self._made(client, by_turn if self.work in ("names", "drop", "crowd") else "name", number)
        if self.shape == "term":
            _, run = self.library.start("run", election=lock, lingers=False, detaches=False)
            await self._led(lock, run)
            assert (await run)["result"]
        else:
            assert (await self.library.call("acquire", lock=lock))["acquired"]
            await self._released("leave" if self.work == "drop" else "release", lock)
        await self.library.forget(lock)

    async def _released(self, op: str, lock: int) -> None:
        """Releases, or leaves it to the background where a node has no time to answer."""
        try:
            await self.library.call(op, lock=lock)
        except Refused as error:
            if error.code != "unavailable":
                raise

    async def _led(self, election: int, run: asyncio.Future[Json]) -> bool:
        """Ends the first term of a candidate; whether there was one."""
        while not run.done():
            if (await self.library.call("terms", election=election))["terms"]:
                await self.library.call("end_term", election=election, fail=False)
                return True
        return False

    async def _deny(self, client: int, task: int, number: int) -> None:
        """Tries to acquire what others hold."""
        lock = await self._made(client, f"name-{task}-{number}", number)
        try:
            timeout_ms = MOMENT_MS if number else FIRST_MS
            assert not (await self.library.call("acquire", lock=lock, timeout_ms=timeout_ms))["acquired"]
        except Refused as error:
            # A busy machine may not answer within a moment.
            if error.code not in ("timeout", "unavailable"):
                raise
        await self.library.forget(lock)

    async def _cancel(self, task: int, count: int) -> None:
        """Cancels at random moments, until so many acquires were cancelled."""
        while self.counts["cancelled"] < count:
            lock = await self._wanted(task)
            await (self._campaign(lock) if self.shape == "term" else self._cut_hold(lock))

    async def _wanted(self, task: int) -> int:
        """A lock of names that others want as well, or of one's own."""
        names = [str(name) for name in range(WANTED)]
        dice = self.dice
        if self.shape == "set":
            names = dice.sample([*names, str(WANTED + task)], 2)
        elif self.shape == "slot":
            names = ["pool"]
        elif self.shape == "one" and dice.random() < 0.5:
            names = [str(WANTED + task)]
        else:
            names = [dice.choice(names)]
        return await self._lock(self._own, names, PERMITS + dice.randrange(2), shared=dice.randrange(WRITES) > 0)

    async def _cut_hold(self, lock: int) -> None:
        """An acquire that is cancelled or won, and then a release that is."""
        if not await self._cut("acquire", lock=lock):
            return
        if self.leak == "keys":
            # As if what follows a cancelled release had been forgotten.
            self.counts["releases_cancelled"] += 1
            return
        await asyncio.sleep(self.dice.choice([0, MOMENT_MS / 1000 * self.dice.random()]))
        number, release = self.library.start("release", lock=lock)
        await self._moment()
        # In Node a release cannot be cancelled, but left alone.
        is_left = self.face.language == "node" and not release.done()
        await self.library.call("cancel", call=number)
        with contextlib.suppress(Refused):
            self.counts["releases_cancelled"] += "cancelled" in await release or is_left
        if (await self.library.call("state", lock=lock))["held"]:
            # It had not begun.
            with contextlib.suppress(Refused):
                await self.library.call("release", lock=lock)
        assert not (await self.library.call("state", lock=lock))["held"], "a released lock is held"
        await self.library.forget(lock)

    async def _cut(self, op: str, **of: object) -> bool:
        """Whether a call came to its end before it was cancelled at a random moment."""
        number, call = self.library.start(op, **of)
        await self._moment()
        await self.library.call("cancel", call=number)
        try:
            is_cut = "cancelled" in await call
        except Refused as error:
            # A frozen node does nothing more.
            if error.code != "unavailable":
                raise
            await self.library.forget(int(str(of["lock"])))
            return False
        if is_cut:
            assert not (await self.library.call("state", lock=of["lock"]))["held"], "a cancelled acquire holds the lock"
            await self.library.forget(int(str(of["lock"])))
        self.counts["cancelled" if is_cut else "won"] += 1
        return not is_cut

    async def _campaign(self, election: int) -> None:
        """An election that is cancelled or stopped at a random moment, in a campaign or in a term."""
        number, run = self.library.start("run", election=election, lingers=False, detaches=False)
        leading = asyncio.ensure_future(self._led_for_a_moment(election, run))
        await self._moment()
        if self.face.name == "node" or self.dice.random() < 0.5:
            await self.library.call("stop", election=election)
        else:
            await self.library.call("cancel", call=number)
        ended = await run
        await leading
        terms = (await self.library.call("terms", election=election))["terms"]
        cut = sum(term["how"] == "cut" for term in terms)
        self.counts["cancelled"] += not terms or bool(cut) or not ended.get("result")
        self.counts["won"] += len(terms)
        self.counts["releases_cancelled"] += bool(cut)
        await self.library.forget(election)

    async def _led_for_a_moment(self, election: int, run: asyncio.Future[Json]) -> None:
        await asyncio.sleep(MOMENT_MS / 1000 * self.dice.random())
        await self._led(election, run)

    async def _moment(self) -> None:
        """No time, some turns of the loop, or some time."""
        if self.dice.random() < 0.5:
            for _ in range(self.dice.randrange(20)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(MOMENT_MS / 1000 * self.dice.random())

    async def _leak(self) -> None:
        """Leaves objects behind, as a planted fault."""
        if self.leak == "memory":
            await asyncio.gather(*(self._lock(self._own, ["leaked"], 1, shared=False) for _ in range(self.done)))
