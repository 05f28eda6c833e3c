"""Figures from the numbers: medians, their spread, ratios within a round, and which subject is ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

Round = tuple[int, int]
"""The run, and the round in it."""

ByRound = Mapping[Round, float]

_LAST_TURNS = 3
"""A compiler does not make code faster in every turn."""


@dataclass(frozen=True)
class Spread:
    """A median, and how far the values are apart."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The 10th percentile, the median and the 90th percentile; raises `ValueError` if there are no values."""
        values = sorted(values)
        return cls(percentile(values, 10), percentile(values, 50), percentile(values, 90))


def percentile(values: Sequence[float], percent: float) -> float:
    """A value that was measured, below which or at which are so many percent of all; `values` may be in any order."""
    if not values:
        raise ValueError("nothing was measured")
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]


def ratios(values: ByRound, by: ByRound) -> dict[Round, float]:
    """Values by round, divided by those of another in the same round; rounds that one of them lacks are left out."""
    return {turn: value / by[turn] for turn, value in sorted(values.items()) if by.get(turn)}


def over_runs(values: ByRound, over: Callable[[Sequence[float]], float], *, worst: bool = False) -> float:
    """The median or the largest of the figures that `over` makes of the runs; raises `ValueError` without values."""
    runs = groupby(sorted(values.items()), lambda item: item[0][0])
    return percentile([over([value for _, value in run]) for _, run in runs], 100 if worst else 50)


def still_faster(costs: Sequence[float]) -> bool:
    """Whether a subject may get faster yet: one of its last turns cost 3 % less than every turn before those."""
    if len(costs) <= _LAST_TURNS:
        return True
    return min(costs[-_LAST_TURNS:]) < 0.97 * min(costs[:-_LAST_TURNS])


def occupied(holds: Iterable[Sequence[int]], start: int, end: int, permits: int) -> tuple[int, int]:
    """How long slots were held between two instants, all slots together, and the most holders at any time.

    A hold is the instant at which it began and that at which it ended. More holders than permits count as so many.
    """
    # A hold that ends at an instant does not overlap one that begins then.
    events = sorted(event for since, until in holds for event in ((since, 1), (until, -1)))
    busy, most, holders, at = 0, 0, 0, start
    for instant, change in events:
        now = min(max(instant, start), end)
        busy += min(holders, permits) * (now - at)
        at, holders = now, holders + change
        most = max(most, holders)
    return busy, most


def intruded(reads: Iterable[Sequence[int]], writes: Iterable[Sequence[int]]) -> int:
    """How many holds of writers overlap another hold; each is the instant at which it began and that at which it ended.

    A hold that ends at an instant does not overlap one that begins then.
    """
    both = ((reads, False), (writes, True))
    holds = sorted((since, until, is_write) for some, is_write in both for since, until in some)
    busy_until = accumulate((until for _, until, _ in holds), max, initial=0)
    next_since = [*(since for since, _, _ in holds[1:]), math.inf]
    return sum(
        is_write and (before > since or after < until)
        for (since, until, is_write), before, after in zip(holds, busy_until, next_since, strict=False)
    )


def unevenness(most: int, least: int) -> float:
    """The busiest process's count divided by that of the least busy: 1 is fair, infinite if one got nothing."""
    return most / least if least else math.inf


def ahead(peer: ByRound, ours: ByRound, *, more_is_better: bool = False) -> float | None:
    """By what factor a peer is better, or `None` if it is not.

    Better means 5 % less (or more) in the median of the rounds, and the same side in nine rounds of ten.
    """
    compared = ratios(ours, peer) if not more_is_better else ratios(peer, ours)
    if not compared:
        return None
    spread = Spread.of(compared.values())
    return spread.median if spread.median >= 1.05 and spread.low > 1 else None
