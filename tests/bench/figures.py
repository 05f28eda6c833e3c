"""Figures from the numbers: medians, their spread, ratios within a round, and which subject is ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

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


def over_runs(values: ByRound, over: Callable[[Sequence[float]], float]) -> float:
    """The median of what `over` makes of each run; raises `ValueError` if there are no values."""
    runs = groupby(sorted(values.items()), lambda item: item[0][0])
    return percentile([over([value for _, value in run]) for _, run in runs], 50)


def still_faster(costs: Sequence[float]) -> bool:
    """Whether a subject may get faster yet: one of its last turns cost 3 % less than every turn before those."""
    if len(costs) <= _LAST_TURNS:
        return True
    return min(costs[-_LAST_TURNS:]) < 0.97 * min(costs[:-_LAST_TURNS])


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
