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

PLANTED = {
    "overlooked": Planted("script", "an acquire overlooks who holds the lock", ("exclusion",), arenas=WAYS),
    "undeleted": Planted("script", "a release deletes nothing", ("keys gone", "served"), arenas=WAYS),
    "unextended": Planted("script", "an extension extends nothing", ("exclusion", "no early loss"), arenas=WAYS),
    "validity": Planted("engine", "a lock is relied on for a second too long", ("exclusion", "no early loss"), "Rust"),
    "renewal": Planted("background", "a renewal that nobody sent counts", ("exclusion",), "Rust"),
    "clean-up": Planted("background", "a cancelled acquire keeps what it has won", ("keys gone", "served"), "Rust"),
    "unreleased": Planted("Python", "leaving a block releases nothing", ("keys gone", "served"), "Python", "sync"),
    "cancelled": Planted(
        "asyncio", "a cancelled task keeps what it has won", ("keys gone", "served"), "Python", "asyncio"
    ),
    "no quarantine": Planted(
        "Python", "a new primary is used at once", ("exclusion",), "Python", "sync", arenas=GROUPS
    ),
    "old fence": Planted("Node", "a lock tells the fence of the hold before", ("fences", "store"), "Node"),
}
"""All of them, by name."""
