"""Mistakes that are made on purpose, to see that a run finds them: one for each layer at least."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """A mistake, and what is said of it."""

    layer: str
    what: str
    found: tuple[str, ...]
    """Any of these promises is seen to be broken."""
    language: str | None = None
    """Whose workers make it; the ways to the nodes do where it is nobody's."""
    face: str | None = None

    def is_made_by(self, language: str, face: str) -> bool:
        """Whether these workers make it."""
        return self.language == language and self.face in (None, face)


PLANTED = {
    "overlooked": Planted("script", "an acquire overlooks who holds the lock", ("exclusion",)),
    "undeleted": Planted("script", "a release deletes nothing", ("keys gone", "served")),
    "unextended": Planted("script", "an extension extends nothing", ("exclusion",)),
    "validity": Planted("engine", "a lock is relied on for a second too long", ("exclusion", "told in time"), "Rust"),
    "renewal": Planted("background", "a renewal that nobody sent counts", ("exclusion",), "Rust"),
    "clean-up": Planted("background", "a cancelled acquire keeps what it has won", ("keys gone", "served"), "Rust"),
    "unreleased": Planted("Python", "leaving a block releases nothing", ("keys gone", "served"), "Python", "sync"),
    "cancelled": Planted(
        "asyncio", "a cancelled task keeps what it has won", ("keys gone", "served"), "Python", "asyncio"
    ),
    "old fence": Planted("Node", "a lock tells the fence of the hold before", ("fences", "store"), "Node"),
}
"""By name."""
