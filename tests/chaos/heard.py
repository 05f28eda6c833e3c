"""What the library tells of itself in the Python worker: its events, as they come, and its metrics."""

from __future__ import annotations

import logging
import os
from typing import Any

import redlock

from chaos.journal import Journal
from support.clock import now_ns

Json = dict[str, Any]


class Heard(logging.Handler):
    """Records what the library logs in this process."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.INFO)
        self._journal, self._process = journal, os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Records an event. A forked child is not the worker."""
        if os.getpid() == self._process:
            told = {"logger": record.name, "level": record.levelname, "text": record.getMessage()}
            self._journal.say("heard", at_ns=now_ns(), code=vars(record)["code"], **told)


def totals() -> Json:
    """The metrics of this process: the labels and the number of each point. That of a histogram is its count."""
    return {
        name: [[point.labels, getattr(point.value, "count", point.value)] for point in metric.points]
        for name, metric in redlock.stats().items()
    }
