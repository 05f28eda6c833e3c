"""The choice of test cases that have each value of each parameter of a story: a covering array of strength 1."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet


def covering(story: str, cases: Sequence[AbstractSet[Hashable]]) -> set[int]:
    """The places of the chosen cases, each of which is given as the set of its values; always at least one.

    Each step takes the case with the most values that are missing. Among equals it takes the one whose values were
    taken least often, so that servers and numbers of nodes alternate. The name of the story decides the rest.
    """
    everything = set[Hashable]().union(*cases)
    taken = Counter[Hashable]()
    chosen: set[int] = set()

    def rank(at: int) -> tuple[int, int, int]:
        often = sum(taken[value] for value in cases[at])
        return len(cases[at] - taken.keys()), -often, zlib.crc32(f"{story} {at}".encode())

    while not chosen or everything - taken.keys():
        best = max(range(len(cases)), key=rank)
        chosen.add(best)
        taken.update(cases[best])
    return chosen
