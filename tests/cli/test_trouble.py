"""The hardest case: programs and servers are killed, frozen and started again at random, and never do two commands run.

python -m pytest tests/cli/test_trouble.py --trouble-seconds 600 --trouble-seed 7
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import pytest

from cli.diary import Diary
from cli.redlock import Redlock
from cli.running import Ended, Running
from conformance.history import SLACK_MS
from support.clock import until
from support.servers import Cluster

NODES = 5

CONTENDERS = 4
"""How many programs want the lock at any time."""

TTL_MS = 3000
MARGIN_MS = SLACK_MS
"""As long as the machine may be late. Others get the lock after it."""

OPTIONS = ["-t", f"{TTL_MS}ms", "--margin", f"{MARGIN_MS}ms", "--kill-after", "300ms", "-w", "20s"]

LOST = 76

SOON_S = 1.0
"""How long a trouble for the holder waits for one."""

LAST_S = 60.0
"""How long those that are left may take to end, one after the other."""

WORKS = [
    ["--beat"],
    ["--beat", "--end-on", "TERM,INT,HUP,QUIT"],
    # These do not want to end.
    ["--beat", "--catch", "TERM,INT,HUP,QUIT"],
    ["--beat", "--catch", "TERM", "--forks", "2"],
]

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]

STATUSES = {0, 69, 75, 76, 137, *(128 + number for number in SIGNALS)}
"""How a program may end: done, no quorum, held, lost, and signals."""


@dataclass
class Trouble:
    """What happens to programs and servers, by chance."""

    redlock: Redlock
    nodes: Cluster
    name: str
    chance: random.Random
    running: list[Running] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    outage_ends: float = 0
    """Until then, nothing else is done to servers."""

    def crew(self) -> None:
        """Replaces programs that have ended."""
        for each in [each for each in self.running if not each.runs]:
            self.running.remove(each)
            self.count(each.end())
        while len(self.running) < CONTENDERS:
            work = self.redlock.work(*self.chance.choice(WORKS))
            self.running.append(self.redlock.start("run", *OPTIONS, self.name, "--", *work))

    def count(self, ended: Ended) -> None:
        """Counts how a program has ended."""
        # Python ends with 1 if it is interrupted before it has read its program.
        is_cut_short = ended.status == 1 and "KeyboardInterrupt" in ended.err
        assert ended.status in STATUSES or is_cut_short, ended
        assert "panicked" not in ended.err, ended
        self.statuses[ended.status] += 1

    def strike(self) -> None:
        """Does one thing, more likely to servers than to programs."""
        program = self.chance.choice(self.running)
        interrupt = partial(program.send, self.chance.choice(SIGNALS))
        acts: list[Callable[[], object]] = [self.kill_holder, program.kill, self.end_work, interrupt]
        if time.monotonic() > self.outage_ends:
            # There is a quorum and one more.
            self.mend(NODES // 2 + 2)
            acts += [self.harm, self.harm, self.outage] * 2
        elif self.chance.random() < 0.8:
            return
        self.chance.choice(acts)()

    def kill_holder(self) -> None:
        if holder := self.holder():
            holder.kill()

    def holder(self) -> Running | None:
        """Who has the lock, if anybody gets it soon: the program of the last command, or of its child, to begin."""
        found: list[Running] = []
        began = time.monotonic()

        def is_there() -> bool:
            begun = self.redlock.diary.of("begin")
            found[:] = [each for each in self.running if begun and each.pid in ancestors(begun[-1].pid)]
            return bool(found) or time.monotonic() - began > SOON_S

        until(is_there, "somebody has it, or nobody")
        return found[0] if found else None

    def end_work(self) -> None:
        """Lets the present command end by itself."""
        self.redlock.end_work()
        ended = len(self.redlock.diary.of("end"))
        began = time.monotonic()
        until(lambda: len(self.redlock.diary.of("end")) > ended or time.monotonic() - began > 0.1, "it ends, or not")
        self.redlock.ending.unlink()

    def harm(self) -> None:
        """Kills or freezes a server."""
        server = self.chance.choice(list(self.nodes))
        (server.freeze if server.answers and self.chance.random() < 0.5 else server.kill)()

    def outage(self) -> None:
        """Takes the quorum away, for long enough to lose the lock, or nearly so."""
        self.holder()
        self.outage_ends = time.monotonic() + self.chance.uniform(0.5, 1.1) * TTL_MS / 1000
        while sum(server.answers for server in self.nodes) > NODES // 2:
            self.harm()

    def mend(self, count: int) -> None:
        """Brings servers back, until so many answer."""
        ill = [server for server in self.nodes if not server.answers]
        self.chance.shuffle(ill)
        for server in ill[NODES - count :]:
            server.thaw() if server.running else server.restart()

    def loses(self) -> bool:
        """Takes the quorum away from a holder. Whether it has lost its lock: an earlier trouble may have ended it."""
        lost = self.statuses[LOST]
        self.mend(NODES)
        self.crew()
        if holder := self.holder():
            self.outage()
            until(lambda: not holder.runs, "it has ended")
            self.crew()
        return self.statuses[LOST] > lost


def ancestors(pid: int) -> set[int]:
    """The parent of a process, its parent, and so on; empty if it has ended."""
    try:
        return {each.pid for each in psutil.Process(pid).parents()}
    except psutil.NoSuchProcess:
        return set()


@pytest.mark.timeout(0)
def test_never_two_at_once(
    pytestconfig: pytest.Config, redlock: Redlock, start_nodes: Callable[..., Cluster], name: str
) -> None:
    seconds: float = pytestconfig.getoption("--trouble-seconds") or (25 if pytestconfig.getoption("--all") else 8)
    seed: int = pytestconfig.getoption("--trouble-seed")
    # A server that comes back without its data would give the lock away.
    nodes = start_nodes(NODES, persist=True)
    trouble = Trouble(redlock.at(nodes), nodes, name, random.Random(seed))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        trouble.crew()
        trouble.strike()
        # This is the pace of the troubles, and no wait for anything.
        time.sleep(trouble.chance.uniform(0, 0.4))
    until(trouble.loses, "a lock is lost without a quorum", LAST_S)
    trouble.mend(NODES)
    redlock.end_work()
    for each in trouble.running:
        trouble.count(each.end(LAST_S))
    lives = redlock.diary.judge()
    print(f"seed {seed}: {dict(trouble.statuses)}, {len(lives)} commands")
    assert len(lives) > seconds / 10, "they go on in spite of all"
    assert redlock.programs.only(), "nobody is left"
    # A killed program leaves its lock behind, and an ended one a release that no unreachable server got.
    until(lambda: not nodes.has(name), "what was left has expired", limit_s=(TTL_MS + SLACK_MS) / 1000)


def test_two_at_once_are_found(tmp_path: Path) -> None:
    """The test itself."""
    diary = Diary(tmp_path / "diary")
    diary.path.write_text("10 1 5 begin\n20 2 7 begin\n30 1 5 beat\n40 2 7 beat\n")
    with pytest.raises(AssertionError, match="two at once"):
        diary.judge()
    diary.path.write_text("10 1 5 begin\n20 1 5 beat\n30 2 5 begin\n31 1 4 begin\n")
    with pytest.raises(AssertionError, match="fences do not rise"):
        Diary(diary.path).judge()
    diary.path.write_text("10 1 5 begin\n20 1 5 beat\n30 2 5 begin\n31 1 6 begin\n4")
    assert [(life.from_ns, life.to_ns) for life in Diary(diary.path).judge()] == [(10, 30), (31, 31)]
