"""The troubles of a run, with their subjects and times, as a pure function of the seed. Nothing else in chaos is one.

A run is a sequence of epochs. Each has its own names of locks, and its troubles have ended before the next begins, so a
trouble voids promises only in its own epoch. An epoch has a class, and no two classes ever meet on one name. In
`steady` epochs no trouble voids anything: fences, order and exclusion hold throughout. Steady kinds happen in all
epochs. Each kind of arena says what else there is, and which troubles may meet (its `Plan`).

Every kind is dealt before one is repeated, so a short run has all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

VIEWS = 3
"""How many networks the workers are in."""

CREW = 8
"""How many worker processes there are."""

EPOCH_S = 9.0
"""How long an epoch has trouble; healing and judging come on top."""

CALM_S = 0.4
"""The calm at the beginning of an epoch, for the first acquisitions."""

TTL_S = 1.5
"""The ttl of most locks, which is also the quarantine of a node after a restart."""

Class = Literal["steady", "data", "clock"]
Subject = Literal["node", "link", "view", "worker", "shard", "primary", "sentinel"]


@dataclass(frozen=True)
class Kind:
    """A kind of trouble."""

    name: str
    subject: Subject
    """The subject: a node, the way from a view to a node, all ways of a view, a worker, a shard of a cluster, the
    primary that sentinels name, or a sentinel."""
    lasts_s: tuple[float, float]
    of: Class = "steady"
    """The class of epochs in which it happens; `steady` means all."""
    bars: bool = False
    """Whether the node is in quarantine for a while after it, because it was restarted."""
    alone: bool = False
    """Whether no other node may be in trouble meanwhile, because it affects several of them."""
    amount: tuple[float, float] = (0.0, 1.0)
    """The least and the most of a trouble's `amount`."""


WORKER_KINDS = (
    Kind("worker stopped", "worker", (0.5, 3.0)),
    Kind("worker killed", "worker", (0.2, 1.0)),
)
"""The kinds of trouble that workers have in every arena."""

PLACES = 1000
"""How often a place is tried before a trouble has to wait for the next epoch."""


@dataclass(frozen=True)
class Trouble:
    """One trouble; times are seconds since the beginning of its epoch."""

    kind: Kind
    at_s: float
    lasts_s: float
    where: int
    """The number of its subject; of a link, the node; of a view, the first node that it is cut off from."""
    view: int = 0
    """The view, if the trouble is in the network."""
    amount: float = 0.0
    """How far a clock steps, in seconds; for other kinds, a fraction of their maximum."""

    @property
    def until_s(self) -> float:
        """When it ends."""
        return self.at_s + self.lasts_s

    @property
    def subject(self) -> str:
        """The subject in words."""
        match self.kind.subject:
            case "link":
                return f"view {'ABC'[self.view]} to node {self.where + 1}"
            case "view":
                return f"view {'ABC'[self.view]}"
            case "primary":
                return "primary"
        return f"{self.kind.subject} {self.where + 1}"

    @property
    def lane(self) -> str:
        """The lane in which it is shown: the way from a view to a node belongs to the view."""
        return self.subject.partition(" to ")[0]


@dataclass(frozen=True)
class Epoch:
    """One section of a run, with its own names."""

    number: int
    of: Class
    troubles: tuple[Trouble, ...]
    """Its troubles, in the order of their beginnings."""


@dataclass(frozen=True)
class Plan:
    """What can happen in a kind of arena."""

    kinds: tuple[Kind, ...]
    classes: tuple[Class, ...]
    """The order of epochs, which repeats."""
    steady_dealt: int
    """How many steady troubles an epoch has."""
    own_dealt: int
    """How many troubles of its own class an epoch has besides."""
    places: int
    """How many nodes, or parts like them, there are."""
    fits: Callable[[Trouble, Sequence[Trouble]], bool]
    """Whether a trouble, which is not one of a worker, may happen among others of its epoch."""


def epochs(plan: Plan, seed: int, count: int) -> list[Epoch]:
    """The first `count` epochs of a seed; more of them begin with the same ones."""
    generator = _epochs(plan, random.Random(seed))
    return [next(generator) for _ in range(count)]


def count(plan: Plan, seconds: float) -> int:
    """How many epochs a run of about so many seconds has: at least one of each class."""
    return max(len(plan.classes), round(seconds / (EPOCH_S + 1)))


def kinds(scheduled: Sequence[Epoch]) -> set[str]:
    """The names of all kinds that happen in them."""
    return {trouble.kind.name for epoch in scheduled for trouble in epoch.troubles}


def meet(one: Trouble, other: Trouble, gap_s: float = 0.0) -> bool:
    """Whether two troubles happen at the same time, or with less than a gap between them."""
    return one.at_s <= _over_s(other) + gap_s and other.at_s <= _over_s(one) + gap_s


def _epochs(plan: Plan, dice: random.Random) -> Iterator[Epoch]:
    decks = {of: [kind for kind in plan.kinds if kind.of == of] for of in plan.classes}
    left: dict[Class, list[Kind]] = {of: [] for of in plan.classes}
    number = 0
    while True:
        of = plan.classes[number % len(plan.classes)]
        # The troubles of this class come first, because the class exists for them.
        dealt = [] if of == "steady" else _deal(dice, decks[of], left[of], plan.own_dealt)
        # Then come the troubles that need the most room, which would not find a place later.
        steady = _deal(dice, decks["steady"], left["steady"], plan.steady_dealt)
        dealt += sorted(steady, key=_takes, reverse=True)
        placed: list[Trouble] = []
        for kind in dealt:
            trouble = _place(plan, dice, kind, placed)
            if trouble:
                placed.append(trouble)
            else:
                left[kind.of].insert(0, kind)
        yield Epoch(number, of, tuple(sorted(placed, key=lambda trouble: trouble.at_s)))
        number += 1


def _takes(kind: Kind) -> tuple[bool, float]:
    """The most of an epoch that a trouble needs: how many nodes, and for how long."""
    return kind.alone, kind.lasts_s[1] + (TTL_S if kind.bars else 0)


def _deal(dice: random.Random, kinds: list[Kind], left: list[Kind], count: int) -> list[Kind]:
    """Takes so many kinds off what is left; every kind is dealt before one is repeated."""
    while len(left) < count:
        left += dice.sample(kinds, len(kinds))
    dealt, left[:] = left[:count], left[count:]
    return dealt


def _place(plan: Plan, dice: random.Random, kind: Kind, placed: list[Trouble]) -> Trouble | None:
    """A trouble of this kind that does not conflict with those that have a place."""
    for place in range(PLACES):
        least_s, most_s = kind.lasts_s
        # It is as short as possible if there is little room.
        lasts_s = dice.uniform(least_s, most_s if place < PLACES // 2 else least_s)
        at_s = dice.uniform(CALM_S, EPOCH_S - lasts_s)
        where = dice.randrange(plan.places)
        if kind.subject == "worker":
            where = dice.randrange(CREW)
        view = dice.randrange(VIEWS)
        amount = dice.uniform(*kind.amount)
        trouble = Trouble(kind, round(at_s, 3), round(lasts_s, 3), where, view, round(amount, 3))
        if (_spares_worker if kind.subject == "worker" else plan.fits)(trouble, placed):
            return trouble
    return None


def _spares_worker(trouble: Trouble, placed: Sequence[Trouble]) -> bool:
    """Whether nothing else happens to a worker meanwhile."""
    workers = [other for other in placed if other.kind.subject == "worker" and other.where == trouble.where]
    return not any(meet(trouble, other) for other in workers)


def _over_s(trouble: Trouble) -> float:
    """When clients can use a node again; every step takes a moment."""
    return trouble.until_s + (TTL_S if trouble.kind.bars else 0.1)
