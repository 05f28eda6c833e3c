"""Figures from the numbers: medians, their spread, ratios within a round, and which subject is ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

Round = tuple[int, int]
"""The run, and the round in it."""

ByRound = Mapping[Round, float]


def percentile(values: Sequence[float], percent: float) -> float:
    """A value that was measured, below which or at which are so many percent of all; `values` may be in any order."""
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]


def ratios(values: ByRound, by: ByRound) -> dict[Round, float]:
    """Values by round, divided by those of another in the same round; rounds that one of them lacks are left out."""
    return {turn: value / by[turn] for turn, value in sorted(values.items()) if by.get(turn)}


def over_runs(values: ByRound, over: Callable[[Sequence[float]], float]) -> float:
    """The median of the figures that `over` makes of the runs."""
    runs = groupby(sorted(values.items()), lambda item: item[0][0])
    return percentile([over([value for _, value in run]) for _, run in runs], 50)


def ahead(peer: ByRound, ours: ByRound, *, more_is_better: bool = False) -> bool:
    """Whether a peer is better: by 5 % in the median of the rounds, and at all in nine rounds of ten."""
    compared = list((ratios(peer, ours) if more_is_better else ratios(ours, peer)).values())
    return bool(compared) and percentile(compared, 50) >= 1.05 and percentile(compared, 10) > 1
