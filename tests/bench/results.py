"""What a run measured, as it is kept, and the figures in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from figures import Spread, ahead, ratios
from process import Json
from subjects import PEER
from workload import WORKLOADS, Column, Workload


@dataclass(frozen=True)
class Ahead:
    """A figure in which a peer is better than the face of ours that its users could use instead."""

    workload: Workload
    column: Column
    peer: str
    ours: str
    factor: float


class Results:
    """A run, read or just made."""

    def __init__(self, data: Json) -> None:
        self.data = data
        self.subjects: dict[str, Json] = data["subjects"]
        self.failures: list[Json] = data["failures"]

    @classmethod
    def read(cls, file: Path) -> Results:
        """What `write` has written."""
        return cls(json.loads(file.read_text()))

    def write(self, file: Path) -> None:
        """As one JSON file, a turn a line."""
        file.parent.mkdir(parents=True, exist_ok=True)
        head = json.dumps({key: value for key, value in self.data.items() if key != "turns"}, indent=1)
        turns = ",\n".join(json.dumps(turn, separators=(",", ":")) for turn in self.data["turns"])
        file.write_text(f'{head.removesuffix("}").rstrip()},\n "turns": [\n{turns}\n]}}\n')

    @property
    def workloads(self) -> list[Workload]:
        """Those of which there is anything."""
        there = {turn["workload"] for turn in (*self.data["turns"], *self.failures)}
        return [workload for workload in WORKLOADS if workload.name in there]

    @cached_property
    def _turns(self) -> dict[tuple[str, str], list[Json]]:
        turns: dict[tuple[str, str], list[Json]] = {}
        for turn in self.data["turns"]:
            turns.setdefault((turn["workload"], turn["subject"]), []).append(turn)
        return turns

    def by_round(self, workload: Workload, column: Column, subject: str) -> dict[int, float]:
        """A subject's figure in each round."""
        turns = self._turns.get((workload.name + column.source, subject), [])
        values = {turn["round"]: value for turn in turns if (value := column.of(turn)) is not None}
        if column.by is None:
            return values
        by = self._turns.get((workload.name + column.source, column.by), [])
        limit = {turn["round"]: value for turn in by if (value := column.of(turn)) is not None}
        return dict(enumerate(ratios(values, limit)))

    def figure(self, workload: Workload, column: Column, subject: str) -> float | None:
        """A subject's figure over all rounds."""
        values = self.by_round(workload, column, subject)
        return column.over(list(values.values())) if values else None

    def spread(self, workload: Workload, column: Column, subject: str) -> Spread | None:
        """How far the rounds are apart."""
        values = self.by_round(workload, column, subject)
        return Spread.of(values.values()) if values else None

    def ranking(self, workload: Workload) -> list[str]:
        """Everybody with a figure in the first column, the best first."""
        column = workload.columns[0]
        figures = {name: self.figure(workload, column, name) for name in self.subjects}
        there = {name: figure for name, figure in figures.items() if figure is not None}
        return sorted(there, key=lambda name: there[name], reverse=column.more_is_better)

    def failure(self, workload: Workload, subject: str) -> str | None:
        """What was seen of a subject that failed."""
        seen = [f["seen"] for f in self.failures if (f["workload"], f["subject"]) == (workload.name, subject)]
        return str(seen[0]) if seen else None

    def peers_ahead(self, workload: Workload) -> list[Ahead]:
        """Where a peer is better than ours."""
        found = []
        for column in (column for column in workload.columns if column.judged):
            for name, subject in self.subjects.items():
                ours = subject["counterpart"]
                if subject["kind"] != PEER or ours not in self.subjects:
                    continue
                both = (self.by_round(workload, column, who) for who in (name, ours))
                factor = ahead(*both, more_is_better=column.more_is_better)
                if factor:
                    found.append(Ahead(workload, column, name, ours, factor))
        return found
