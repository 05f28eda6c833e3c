"""One run: epochs of trouble, each followed by a rest in which it is judged."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from chaos.arena import HANDS, Arena, ArenaError, Role, Worker
from chaos.schedule import EPOCH_S, Epoch, Trouble, kinds
from chaos.tally import EpochHistory, Tally
from chaos.troubles import Lapse, Takeover
from conformance.history import SLACK_MS
from support.clock import now_ns
from support.resp import ReplyError

POOLS = {"hot": 3, "cool": 24, "long": 6, "lease": 8, "proof": 1, "slot": 2, "slot-long": 1}
"""How many names an epoch has of each kind."""

TAGGED = {"hot": 2, "cool": 12, "long": 3, "lease": 4}
"""How many of them share a hash tag with others, so that several can be locked together in a cluster."""

FAMILY = 4
"""How many names share a hash tag, if there are so many."""

PERMITS = 2
"""How many permits a semaphore has, as most callers count them."""

SHAPES = {"one": 75, "set": 7, "slot": 8, "shared": 10}
"""How often a hand asks for which shape; `hand.py` says what they are."""

WAYS = {
    "brief": 700,
    "busy": 100,
    "block": 60,
    "cancel": 60,
    "try": 50,
    "long": 8,
    "manual": 5,
    "lease": 12,
    "stale": 5,
}
"""How often a hand uses a lock in which way; `hand.py` says what they are."""

SERVED_S = 10.0
"""The time within which all waiters are served after the trouble: a dead holder's ttl, the quarantine of a node that
restarted, the longest back-off, and all waiters before."""

GONE_S = 4.0
"""The time within which the keys of locks that are not held are gone: the longest back-off of a pending release, a
node_timeout, and the slack. It is less than the ttl of a lease, or a forgotten key would be gone as well."""

GROWTH = {"descriptors": 24, "threads": 4}
"""How many more of them a worker may have than after its first epoch: connections that the library opens when it first
needs them."""

RUNTIMES = HANDS * 8
"""How many more descriptors a worker with blocking hands may have: as many runtimes as hands have ever blocked at once,
each with at most five connections, a poll, a wake-up and a signal pipe. In a first epoch without trouble hands seldom
block."""

KEPT = 60
"""How many histories of good epochs are kept."""

MOST_CRASHES = 5
"""How many workers may end by themselves before a run is given up; a run with one cannot succeed."""

SAID = 1000
"""How many characters of a worker's last messages are reported."""

TICK_S = 0.02

SHOW_EVERY_NS = 250_000_000


@dataclass(frozen=True)
class Note:
    """An event worth reporting."""

    at_ns: int
    text: str


@dataclass(frozen=True)
class Done:
    """A past trouble, in the time of the machine."""

    trouble: Trouble
    from_ns: int
    to_ns: int


@dataclass(eq=False)
class Run:
    """A run while it continues, and its results."""

    arena: Arena
    checker: Path
    out: Path
    """Where histories are written, one for each epoch."""
    scheduled: Sequence[Epoch]
    title: ClassVar[str] = "chaos"
    shapes: ClassVar[Mapping[str, int]] = SHAPES
    ways: ClassVar[Mapping[str, int]] = WAYS
    fail_fast: bool = False
    """Whether the run ends after the first epoch with a failure."""
    show: Callable[[], None] = lambda: None
    """A function that is called often."""
    tally: Tally = field(default_factory=Tally)
    notes: list[Note] = field(default_factory=list)
    start_ns: int = 0
    end_ns: int = 0
    epoch: Epoch | None = None
    """The present epoch."""
    phase: str = ""
    active: dict[Trouble, int] = field(default_factory=dict)
    """The present troubles, and when they began."""
    done: list[Done] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    """When other servers became primaries."""
    violations: list[str] = field(default_factory=list)
    summaries: list[str] = field(default_factory=list)
    interrupted: bool = False
    served: int = 0
    """How many workers of those that `waited` were served after healing."""
    waited: int = 0
    excused: int = 0
    _crashes: int = 0
    _lapses: list[Lapse] = field(default_factory=list)
    """Those of the present epoch."""
    _shown_ns: int = 0
    early: list[str] = field(default_factory=list)
    """Losses that were reported while nothing could cause one."""
    first: dict[str, dict[str, int]] = field(default_factory=dict)
    """The open counts of each worker after its first epoch."""

    def seconds(self, at_ns: int) -> float:
        """Since the start."""
        return (at_ns - self.start_ns) / 1e9

    def note(self, at_ns: int, text: str) -> None:
        """Adds a note."""
        self.notes.append(Note(at_ns, text))

    def introduce(self, console: Console) -> None:
        """Prints what is about to happen."""
        told = f"{len(self.scheduled)} epochs, {sum(len(epoch.troubles) for epoch in self.scheduled)} troubles"
        console.print(f"seed {self.arena.seed}: {told} of {len(kinds(self.scheduled))} kinds")
        crew = f"{len(self.arena.roles)} processes with {self.arena.hands} locks at a time"
        console.print(f"{crew}, {self.arena.what}\n")

    def remarks(self) -> dict[str, str]:
        """What the report says besides."""
        return {"seed": f"{self.arena.seed}: the same troubles come again with it, though not the same interleaving"}

    def play(self) -> None:
        """Goes through all epochs, or until Ctrl-C, of which the epochs before it are known."""
        self.start_ns = now_ns()
        self._troubles = self.arena.troubles()
        self._troubles.meanwhile, self.takeovers = self._meanwhile, self._troubles.takeovers
        try:
            for epoch in self.scheduled:
                self._play(epoch)
                if self.fail_fast and (self.violations or self.tally.troubles or self.early):
                    break
        except KeyboardInterrupt:
            if not self.summaries:
                raise
            self.interrupted = True
        finally:
            self.end_ns = now_ns()
        if not self.interrupted:
            self.tally.troubles += self.arena.finish()
            for worker in self.arena.living():
                self.tally.hear_end(worker)
        said = (f"{worker.name} said: {worker.said()[:SAID]}" for worker in self.arena.all() if worker.said())
        self.tally.troubles += said

    def names(self, epoch: Epoch) -> dict[str, list[str]]:
        """The names of an epoch's locks by pool. All workers get that of `proof` at its end."""
        number = epoch.number + 1

        def name(pool: str, i: int) -> str:
            plain = f"{number}-{pool}-{i}"
            return f"{{{number}-{pool}-{i // FAMILY}}}-{plain}" if i < TAGGED.get(pool, 0) else plain

        return {pool: [name(pool, i) for i in range(n)] for pool, n in POOLS.items()}

    def make_trouble(self, epoch: Epoch) -> None:
        """Begins and ends an epoch's troubles at their times."""
        for at_s, what, trouble in _acts(epoch):
            self._wait_until(self._began_ns + round(at_s * 1e9))
            (self._begin if what == "begin" else self._end)(trouble)
        self._wait_until(self._began_ns + round(EPOCH_S * 1e9))

    @cached_property
    def lanes(self) -> dict[str, Role | None]:
        """Everything that troubles happen to, in the order in which it is shown, with the roles of workers."""
        subjects: set[str] = {trouble.kind.subject for epoch in self.scheduled for trouble in epoch.troubles}
        workers = {f"worker {i}": role for i, role in enumerate(self.arena.roles, 1)}
        return dict.fromkeys(self.arena.lanes(subjects)) | workers

    def describe(self, trouble: Trouble) -> str:
        """The beginning of a trouble in words."""
        lasts = f" for {trouble.lasts_s:.1f} s" if trouble.lasts_s else ""
        return f"{trouble.subject}: {trouble.kind.name}{lasts}"

    def _play(self, epoch: Epoch) -> None:
        self.epoch, self.phase = epoch, "trouble"
        self._history = EpochHistory(self.out / f"epoch-{epoch.number + 1:04}.jsonl")
        if len(self.scheduled) > 1:
            self.note(now_ns(), f"epoch {epoch.number + 1}, {epoch.of}")
        self._lapses.clear()
        self._names = self._troubles.names = self.names(epoch)
        self._order(**self._to_use(self.ways))
        self._began_ns = now_ns()
        self.make_trouble(epoch)
        for lapse in self._troubles.settle():
            self.note(lapse.from_ns, lapse.cause)
            self._excuse(lapse)
        healed_ns = now_ns()
        # The duration of calls is judged from here on.
        self._history.period("outage", "chaos", self._began_ns, healed_ns)
        self.phase = "rest"
        self._rest()
        self._keys_gone()
        self._troubles.put_right()
        self._count_open()
        for worker in self.arena.living():
            self._history.never_back(worker, None)
        self._judge()
        for journal in (self.arena.accesses, *(worker.journal for worker in self.arena.living())):
            journal.start_over()

    def _begin(self, trouble: Trouble) -> None:
        at_ns = now_ns()
        worker = self.arena.workers[trouble.where] if trouble.kind.subject == "worker" else None
        self._troubles.begin(trouble)
        self.active[trouble] = at_ns
        self.note(at_ns, self.describe(trouble))
        if worker and trouble.kind.name == "worker killed":
            self._killed(worker, at_ns)
        if not trouble.lasts_s:
            self._end(trouble)

    def _end(self, trouble: Trouble) -> None:
        if trouble not in self.active:
            return
        self._troubles.end(trouble)
        self.tally.troubles += self._troubles.storms
        self._troubles.storms.clear()
        from_ns, to_ns = self.active.pop(trouble), now_ns()
        self.done.append(Done(trouble, from_ns, to_ns))
        self._excuse(*self._troubles.lapses(trouble, from_ns))
        worker = self.arena.workers[trouble.where] if trouble.kind.subject == "worker" else None
        if worker and trouble.kind.name == "worker stopped":
            self._history.stopped(worker, from_ns, to_ns)
        elif worker and trouble.kind.name == "worker killed":
            worker.tell(**self._to_use(self.ways))

    def _to_use(self, ways: Mapping[str, int]) -> dict[str, object]:
        """The order to use the names of the epoch in these ways."""
        sets = {pool: self.arena.families(names) for pool, names in self._names.items() if pool in TAGGED}
        how = {"sets": sets, "permits": PERMITS, "shapes": self.shapes, "ways": ways}
        return {"order": "epoch", "names": self._names} | how

    def _excuse(self, *lapses: Lapse) -> None:
        """Records what is excused."""
        for lapse in lapses:
            self._lapses.append(lapse)
            for kind, is_meant in (("lapse", lapse.overlaps), ("divided", lapse.divides)):
                for name in lapse.names if is_meant else ():
                    self._history.period(kind, lapse.cause, lapse.from_ns, lapse.to_ns, name)

    def _killed(self, worker: Worker, at_ns: int) -> None:
        self.tally.hear(worker, self._history)
        self._history.stopped(worker, at_ns, None)
        self._history.never_back(worker, now_ns())
        self._history.given_up(worker, now_ns())

    def _rest(self) -> None:
        """Lets all workers finish their work, and then serves each worker once more."""
        self._order(order="rest")
        if not self._wait(lambda: all(worker.resting for worker in self.arena.living())):
            self._late("did not finish what they were doing")
        for worker in self.arena.living():
            worker.served = worker.resting = False
        self._order(order="prove", name=self._names["proof"][0])
        if not self._wait(lambda: all(worker.served and worker.resting for worker in self.arena.living())):
            self._late("were not served")
        self.served += sum(worker.served for worker in self.arena.living())
        self.waited += len(self.arena.living())

    def _late(self, what: str) -> None:
        late = [worker for worker in self.arena.living() if not worker.resting]
        names = ", ".join(f"{worker.name} ({len(worker.asking)} calls)" for worker in late)
        self.tally.troubles.append(
            f"epoch {len(self.summaries) + 1}: within {SERVED_S:g} s of healing, {what}: {names}"
        )

    def _keys_gone(self) -> None:
        """Reports the keys that are left after a while; the checker has to explain them."""
        if not self._wait(lambda: not list(self._troubles.left()), GONE_S):
            for node, lock, fence in self._troubles.left():
                at_ns = now_ns()
                self._history.add(
                    {"kind": "key", "client": node, "invoke_ns": at_ns, "return_ns": at_ns, "ok": True}
                    | {"fence": fence, "valid_until_ns": None, **lock}
                )

    def _count_open(self) -> None:
        for worker in self.arena.living():
            driver = next(iter(worker.drivers()))
            now = {"descriptors": driver.num_fds(), "threads": driver.num_threads()}
            first = self.first.setdefault(worker.name, now)
            for what, count in now.items():
                runtimes = RUNTIMES if what == "descriptors" and worker.role.face in ("blocking", "sync") else 0
                if count > first[what] + GROWTH[what] + runtimes:
                    self.tally.troubles.append(f"{worker.name} leaks: {first[what]} {what}, and later {count}")

    def _judge(self) -> None:
        self._listen()
        self._history.close()
        # A clock that steps back lets the keys of dead holders stay so much longer.
        back = [done.trouble for done in self.done if done.from_ns >= self._began_ns]
        settle_s = sum(trouble.amount for trouble in back if trouble.kind.name == "clock back")
        rules = ["--told-late-ms", SLACK_MS, "--limit-ms", round(SERVED_S * 1000)]
        rules += ["--settle-ms", round(settle_s * 1000)]
        with self._history.path.open() as lines:
            # Ctrl-C is for this process alone.
            judged = subprocess.run(
                [self.checker, *map(str, rules)],
                stdin=lines,
                capture_output=True,
                text=True,
                check=False,
                start_new_session=True,
            )
        summary, *violations = judged.stdout.splitlines() or [""]
        if judged.returncode not in (0, 1):
            violations = [f"the checker ended with {judged.returncode}", *judged.stderr.splitlines()]
        self.summaries.append(summary)
        self.violations += violations
        if excused := re.search(r"(\d+) overlaps excused", summary):
            self.excused += int(excused[1])
        for early in self.tally.early:
            if not any(lapse.may_lose(name, early.at_ns) for lapse in self._lapses for name in early.names):
                self.early.append(early.text)
        self.tally.early.clear()
        if not self.violations and len(self.summaries) > KEPT:
            self._history.path.unlink()

    def _order(self, **order: object) -> None:
        for worker in self.arena.living():
            worker.resting = False
            worker.tell(**order)

    def _wait(self, state: Callable[[], bool], limit_s: float = SERVED_S) -> bool:
        end = time.monotonic() + limit_s
        while True:
            self._listen()
            if state():
                return True
            if time.monotonic() > end:
                return False
            time.sleep(TICK_S)

    def _wait_until(self, at_ns: int) -> None:
        while (left_ns := at_ns - now_ns()) > 0:
            self._listen()
            time.sleep(min(TICK_S, left_ns / 1e9))

    def _meanwhile(self, step: Callable[[], object]) -> None:
        """Goes on hearing while a step is taken."""
        taken = self.arena.background.submit(step)
        while not taken.done():
            self._listen()
            time.sleep(TICK_S)
        try:
            taken.result()
        except (AssertionError, ReplyError) as error:
            raise ArenaError(str(error)) from error

    def _listen(self) -> None:
        for worker in self.arena.living():
            self.tally.hear(worker, self._history)
        self.tally.hear_store(self.arena.accesses, self._history)
        for slot, there in enumerate(self.arena.workers):
            if there and there.process.poll() is not None:
                self._ended(slot, there)
        self.arena.check()
        if (at_ns := now_ns()) > self._shown_ns + SHOW_EVERY_NS:
            self._shown_ns = at_ns
            self.show()

    def _ended(self, slot: int, worker: Worker) -> None:
        """Records that a worker has ended by itself, and replaces it."""
        self.tally.troubles.append(f"{worker.name} ended with {worker.process.returncode}")
        self._killed(worker, now_ns())
        self.arena.remove(slot)
        self._crashes += 1
        if self._crashes > MOST_CRASHES:
            raise ArenaError(f"one worker after the other ends, the last with: {worker.said()[-SAID:]}")
        started = self.arena.start(slot)
        if self.phase == "trouble":
            started.tell(**self._to_use(self.ways))


def _acts(epoch: Epoch) -> list[tuple[float, str, Trouble]]:
    """The troubles' beginnings and ends, in order of time; ends come first."""
    begins = [(trouble.at_s, "begin", trouble) for trouble in epoch.troubles]
    ends = [(trouble.until_s, "end", trouble) for trouble in epoch.troubles if trouble.lasts_s]
    return sorted(begins + ends, key=lambda act: (act[0], act[1] == "begin"))
