"""The troubles of a run, with their subjects and times, as a pure function of the seed. Nothing else in chaos is one.

A run is a sequence of epochs. Each has its own names of locks, and its troubles have ended before the next begins, so a
trouble voids promises only in its own epoch. Fences are promised as long as no node forgets its fence key. If one does,
they still grow if clocks differ by less than the time between the forgotten acquisition and the next. So an epoch has
one of three classes, and no two of them ever meet on one name:

- `steady`: no trouble voids anything. Fences, order and exclusion hold throughout.
- `data`: nodes lose data, and clocks agree (all processes are on one machine). Fences and their order hold. Two clients
  may hold a name at once if the first one's key was lost, so exclusion is excused from each loss until all locks that
  were held then have ended.
- `clock`: the clocks of nodes step, and no node forgets: all steps of an epoch together stay far below `fence_ttl`, so
  no fence key expires. Fences and order hold. Exclusion is excused from each step on, because a step ends keys early.
  Steps back are short, because they prolong the keys of dead holders. Clocks are set right between epochs, when no
  lock is held.

Steady kinds happen in all epochs. Every kind is dealt before one is repeated, so a short run has all of them. At most
two nodes are in trouble or in quarantine at a time, because clients must still get the lock, or there would be little
to judge. Kinds that take the quorum away are separate and short.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

NODES = 5
"""How many servers there are."""

VIEWS = 3
"""How many ways lead to each of them. The workers of a view share one network, and others do not."""

CREW = 8
"""How many worker processes there are."""

FORKING = (2, 3, 6)
"""The workers that can fork."""

MASSIVE = (3,)
"""The workers that can acquire very many locks at once."""

EPOCH_S = 9.0
"""How long an epoch has trouble; healing and judging come on top."""

CALM_S = 0.4
"""The calm at the beginning of an epoch, for the first acquisitions."""

TTL_S = 1.5
"""The ttl of most locks, which is also the quarantine of a node after a restart."""

Class = Literal["steady", "data", "clock"]
Subject = Literal["node", "link", "view", "worker"]


@dataclass(frozen=True)
class Kind:
    """A kind of trouble."""

    name: str
    subject: Subject
    """The subject: a node, the way from a view to a node, all ways of a view, or a worker."""
    lasts_s: tuple[float, float]
    of: Class = "steady"
    """The class of epochs in which it happens; `steady` means all."""
    bars: bool = False
    """Whether the node is in quarantine for a while after it, because it was restarted."""
    alone: bool = False
    """Whether no other node may be in trouble meanwhile, because it affects several of them."""


KINDS = (
    Kind("freeze", "node", (0.4, 2.5)),
    Kind("kill", "node", (0.3, 1.5), bars=True),
    Kind("restart", "node", (0.0, 0.0), bars=True),
    Kind("script flush", "node", (0.0, 0.0)),
    Kind("pause writes", "node", (0.2, 1.5)),
    Kind("pause all", "node", (0.2, 1.0)),
    Kind("kill clients", "node", (0.0, 0.0)),
    Kind("out of memory", "node", (0.5, 2.0)),
    Kind("read-only replica", "node", (0.3, 1.0), bars=True),
    Kind("too few replicas", "node", (0.5, 2.0)),
    Kind("rights withdrawn", "node", (0.5, 2.0)),
    Kind("user off", "node", (0.3, 1.0)),
    Kind("busy script", "node", (0.3, 1.5)),
    Kind("slow command", "node", (0.2, 0.8)),
    Kind("full house", "node", (0.3, 1.5)),
    Kind("first replica", "node", (0.0, 0.0)),
    Kind("delay", "link", (0.5, 2.0)),
    Kind("requests lost", "link", (0.3, 1.5)),
    Kind("replies lost", "link", (0.3, 1.5)),
    Kind("black hole", "link", (0.3, 2.0)),
    Kind("reset", "link", (0.0, 0.0)),
    Kind("refused", "link", (0.3, 1.5)),
    Kind("cut short", "link", (0.2, 1.0)),
    Kind("short reads", "link", (0.5, 2.0)),
    Kind("far away", "link", (0.5, 2.0)),
    Kind("hang-up", "link", (0.3, 1.5)),
    Kind("unknown command", "link", (0.3, 1.5)),
    Kind("cut off", "view", (0.3, 2.5), alone=True),
    Kind("split view", "view", (0.8, 2.5), alone=True),
    Kind("worker stopped", "worker", (0.5, 3.0)),
    Kind("worker killed", "worker", (0.2, 1.0)),
    Kind("worker forked", "worker", (0.0, 0.0)),
    Kind("mass", "worker", (0.0, 0.0)),
    Kind("flush", "node", (0.0, 0.0), of="data"),
    Kind("wipe", "node", (0.0, 0.0), of="data", bars=True),
    Kind("power cut", "node", (0.0, 0.0), of="data", bars=True),
    Kind("keys evicted", "node", (0.0, 0.0), of="data"),
    Kind("clock forward", "node", (0.0, 0.0), of="clock"),
    Kind("clock back", "node", (0.0, 0.0), of="clock"),
)
"""All kinds of trouble."""

CLASSES: tuple[Class, ...] = ("steady", "data", "clock")
"""The order of epochs, which repeats."""

STEADY_DEALT, OWN_DEALT = 15, 4
"""How many troubles an epoch has, and how many of its own class."""

FORWARD_S, BACK_S = (2.0, 240.0), (0.2, 2.0)
"""How far a clock steps. At most `OWN_DEALT` steps forward in an epoch are far less than the hour of `fence_ttl`."""

AT_ONCE = 2
"""How many nodes may be in trouble at once."""

PLACES = 1000
"""How often a place is tried before a trouble has to wait for the next epoch."""


@dataclass(frozen=True)
class Trouble:
    """One trouble; times are seconds since the beginning of its epoch."""

    kind: Kind
    at_s: float
    lasts_s: float
    where: int
    """The node or worker; of a link, the node; of a view, the first node that it is cut off from."""
    view: int = 0
    """The view, if the trouble is in the network."""
    amount: float = 0.0
    """How far a clock steps, in seconds; for other kinds, a fraction of their maximum."""

    @property
    def until_s(self) -> float:
        """When it ends."""
        return self.at_s + self.lasts_s

    @property
    def nodes(self) -> frozenset[int]:
        """The nodes that some worker loses."""
        match self.kind.subject:
            case "worker":
                return frozenset()
            case "view":
                # A view that is cut off loses a majority. In a split, the first of two loses a minority.
                return frozenset((self.where + i) % NODES for i in range(NODES // 2 + (self.kind.name == "cut off")))
        return frozenset({self.where})

    @property
    def subject(self) -> str:
        """The subject in words."""
        match self.kind.subject:
            case "node":
                return f"node {self.where + 1}"
            case "link":
                return f"view {'ABC'[self.view]} to node {self.where + 1}"
            case "view":
                return f"view {'ABC'[self.view]}"
        return f"worker {self.where + 1}"

    @property
    def lane(self) -> str:
        """The lane in which it is shown: the way from a view to a node belongs to the view."""
        return self.subject.partition(" to ")[0]

    def __str__(self) -> str:
        return f"{self.at_s:5.2f} s {self.lasts_s:4.2f} s  {self.kind.name:<17} {self.subject}"


@dataclass(frozen=True)
class Epoch:
    """One section of a run, with its own names."""

    number: int
    of: Class
    troubles: tuple[Trouble, ...]
    """Its troubles, in the order of their beginnings."""


def epochs(seed: int, count: int) -> list[Epoch]:
    """The first `count` epochs of a seed; more of them begin with the same ones."""
    generator = _epochs(random.Random(seed))
    return [next(generator) for _ in range(count)]


def count(seconds: float) -> int:
    """How many epochs a run of about so many seconds has: at least one of each class."""
    return max(len(CLASSES), round(seconds / (EPOCH_S + 1)))


def kinds(scheduled: Sequence[Epoch]) -> set[str]:
    """The names of all kinds that happen in them."""
    return {trouble.kind.name for epoch in scheduled for trouble in epoch.troubles}


def _epochs(dice: random.Random) -> Iterator[Epoch]:
    decks = {of: _Deck(dice, [kind for kind in KINDS if kind.of == of]) for of in CLASSES}
    number = 0
    while True:
        of = CLASSES[number % len(CLASSES)]
        # The troubles of this class come first, because the class exists for them.
        dealt = [] if of == "steady" else decks[of].deal(OWN_DEALT)
        # Then come the troubles that need the most room, which would not find a place later.
        dealt += sorted(decks["steady"].deal(STEADY_DEALT), key=_takes, reverse=True)
        placed: list[Trouble] = []
        for kind in dealt:
            trouble = _place(dice, kind, placed)
            if trouble:
                placed.append(trouble)
            else:
                decks[kind.of].put_back(kind)
        yield Epoch(number, of, tuple(sorted(placed, key=lambda trouble: trouble.at_s)))
        number += 1


def _takes(kind: Kind) -> tuple[bool, float]:
    """The most of an epoch that a trouble needs: how many nodes, and for how long."""
    return kind.alone, kind.lasts_s[1] + (TTL_S if kind.bars else 0)


class _Deck:
    """Deals every kind before one is repeated."""

    def __init__(self, dice: random.Random, kinds: list[Kind]) -> None:
        self._dice = dice
        self._kinds = kinds
        self._left: list[Kind] = []

    def deal(self, count: int) -> list[Kind]:
        return [self._one() for _ in range(count)]

    def put_back(self, kind: Kind) -> None:
        self._left.insert(0, kind)

    def _one(self) -> Kind:
        if not self._left:
            self._left = self._dice.sample(self._kinds, len(self._kinds))
        return self._left.pop(0)


def _place(dice: random.Random, kind: Kind, placed: list[Trouble]) -> Trouble | None:
    """A trouble of this kind that does not conflict with those that have a place."""
    for place in range(PLACES):
        least_s, most_s = kind.lasts_s
        # It is as short as possible if there is little room.
        lasts_s = dice.uniform(least_s, most_s if place < PLACES // 2 else least_s)
        at_s = dice.uniform(CALM_S, EPOCH_S - lasts_s)
        where = dice.randrange(NODES)
        if kind.subject == "worker":
            where = dice.choice({"worker forked": FORKING, "mass": MASSIVE}.get(kind.name, range(CREW)))
        view = dice.randrange(VIEWS)
        span_s = {"clock forward": FORWARD_S, "clock back": BACK_S}.get(kind.name, (0.0, 1.0))
        trouble = Trouble(kind, round(at_s, 3), round(lasts_s, 3), where, view, round(dice.uniform(*span_s), 3))
        if _fits(trouble, placed):
            return trouble
    return None


def _fits(trouble: Trouble, placed: list[Trouble]) -> bool:
    meanwhile = [other for other in placed if _meet(trouble, other)]
    if trouble.kind.subject == "worker":
        return all(other.kind.subject != "worker" or other.where != trouble.where for other in meanwhile)
    nodes = [other for other in meanwhile if other.nodes]
    if trouble.kind.alone or any(other.kind.alone for other in nodes):
        return not nodes
    struck = [node for other in nodes for node in other.nodes]
    return trouble.where not in struck and len(struck) < AT_ONCE


def _meet(one: Trouble, other: Trouble) -> bool:
    return one.at_s <= _over_s(other) and other.at_s <= _over_s(one)


def _over_s(trouble: Trouble) -> float:
    """When clients can use a node again; every step takes a moment."""
    return trouble.until_s + (TTL_S if trouble.kind.bars else 0.1)
