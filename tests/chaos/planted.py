"""Planted faults, to check that a run finds them: mistakes that workers of one face make."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """A planted fault, and what the report says of it."""

    what: str
    found: tuple[str, ...]
    """The promises of which at least one must be seen to be broken."""
    language: str
    face: str


PLANTED = {
    "own lock": Planted("each process has a lock of its own", ("exclusion", "fences"), "Node", "async"),
    # Others wait for the ttl of a key that stays, or it is seen where nobody waits.
    "unreleased": Planted(
        "leaving a block releases nothing", ("keys gone", "served", "calls come back"), "Python", "sync"
    ),
    "old fence": Planted("a lock tells the fence of the hold before", ("fences", "store"), "Node", "async"),
}
"""All of them, by name."""
