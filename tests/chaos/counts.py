"""What processes have counted and logged themselves, beside what their history says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Metrics = dict[str, list[tuple[dict[str, str], float]]]
"""The labels and the number of each point, by name. The number of a histogram is its count."""


@dataclass
class Counts:
    """What the history of a process says."""

    acquired: int = 0
    told: int = 0
    """Holds whose loss was told before their release."""
    lost: int = 0
    """These, and the ones whose release found the lock lost."""
    logged: int = 0
    """How often the process logged that a lock was lost."""
    resigned: int = 0
    """Terms that an election has released, which does not say whether they were lost by then."""
    stopped: int = 0
    """Elections that were stopped in a campaign, perhaps right after it was won."""


def process_of(client: str) -> str:
    """The process in which a hand is."""
    return client.partition("/")[0]


def total(metrics: Metrics, name: str, **labels: str) -> float:
    """The sum of the points with these labels."""
    return sum(number for has, number in metrics[name] if has.items() >= labels.items())


def differences(process: str, counts: Counts, metrics: Metrics) -> Iterator[str]:
    """How the metrics of a process that has ended differ from its history."""
    holds = "redlock_hold_duration_seconds"
    acquired = total(metrics, "redlock_acquire_duration_seconds", outcome="acquired")
    ended_lost = total(metrics, holds, end="lost")
    lost = total(metrics, "redlock_lost_total")
    known = {
        "acquisitions": (acquired, counts.acquired, counts.acquired + counts.stopped),
        "locks held at the end": (total(metrics, "redlock_held"), 0, 0),
        "calls waiting at the end": (total(metrics, "redlock_waiting"), 0, 0),
        "holds that ended": (total(metrics, holds), acquired, acquired),
        "losses": (lost, counts.lost, counts.lost + counts.resigned),
        "holds that ended by a loss": (ended_lost, lost, lost),
    }
    if not total(metrics, "redlock_events_dropped_total"):
        # A loss that the release finds is not logged. A release that fails does not say whether it found the loss.
        known["losses in the log"] = (counts.logged, counts.told, lost)
    for what, (counted, least, most) in known.items():
        if not least <= counted <= most:
            right = f"{least:g}" if least == most else f"{least:g} to {most:g}"
            yield f"{process}: {what}: {counted:g} by its metrics, and not {right}"
