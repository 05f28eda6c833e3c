"""Planted faults, to check that a run finds them: at least one for each layer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """A planted fault, and what the report says of it."""

    layer: str
    what: str
    found: tuple[str, ...]
    """The promises of which at least one must be seen to be broken."""
    language: str | None = None
    """The language of the workers that make it; if there is none, the ways to the nodes make it."""
    face: str | None = None
    arenas: tuple[str, ...] = ("nodes", "cluster", "sentinel")
    """Where it can be made, and is found."""

    def is_made_by(self, language: str, face: str) -> bool:
        """Whether these workers make it."""
        return self.language == language and self.face in (None, face)


WAYS = ("nodes",)
"""The arenas in which scripts can be altered on their way."""

GROUPS = ("cluster", "sentinel")
"""Those in which replicas take over."""

LEFT = ("keys gone", "served", "calls come back")
"""The promises that a key breaks which stays: others wait for its ttl, or it is seen where nobody waits."""

PLANTED = {
    "overlooked": Planted("script", "an acquire overlooks who holds the lock", ("exclusion",), arenas=WAYS),
    "undeleted": Planted("script", "a release deletes nothing", LEFT, arenas=WAYS),
    "unextended": Planted("script", "an extension extends nothing", ("exclusion", "no early loss"), arenas=WAYS),
    "takes free": Planted("script", "a set is granted if one of its names is free", ("exclusion",), arenas=WAYS),
    "first floor": Planted("script", "a set's fence rises above its first name only", ("fences", "store"), arenas=WAYS),
    "first released": Planted("script", "a set releases its first name only", LEFT, arenas=WAYS),
    "slot kept": Planted("script", "a permit that is released stays taken", LEFT, arenas=WAYS),
    "leaves for all": Planted(
        "script", "a reader who leaves ends it for all", ("exclusion", "no early loss"), arenas=WAYS
    ),
    "shortest end": Planted(
        "script", "a shared lock ends with the first of its readers", ("exclusion", "no early loss"), arenas=WAYS
    ),
    "not at least": Planted("script", "a lock is free before its least time", ("exclusion",), arenas=WAYS),
    "validity": Planted("engine", "a lock is relied on for a second too long", ("exclusion", "no early loss"), "Rust"),
    "renewal": Planted("background", "a renewal that nobody sent counts", ("exclusion",), "Rust"),
    "clean-up": Planted("background", "a cancelled acquire keeps what it has won", LEFT, "Rust"),
    "unreleased": Planted("Python", "leaving a block releases nothing", LEFT, "Python", "sync"),
    "cancelled": Planted("asyncio", "a cancelled task keeps what it has won", LEFT, "Python", "asyncio"),
    "wrong slot": Planted("Rust", "each permit is taken for the first", ("exclusion", "fences", "store"), "Rust"),
    "no margin": Planted("Python", "a lock has no margin", ("exclusion",), "Python", "sync"),
    "own election": Planted("Node", "each process has an election of its own", ("exclusion", "fences"), "Node"),
    "no quarantine": Planted(
        "Python", "a new primary is used at once", ("exclusion",), "Python", "sync", arenas=GROUPS
    ),
    "old fence": Planted("Node", "a lock tells the fence of the hold before", ("fences", "store"), "Node"),
}
"""All of them, by name."""
