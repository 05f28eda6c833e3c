"""The results of a run, as they are kept, and their figures."""

from __future__ import annotations

import json
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.figures import Round, ahead, over_runs, ratios
from bench.process import Json
from bench.subjects import PEER
from bench.workload import WORKLOADS, Column, Workload


class Results:
    """A run, read from the file or just made."""

    def __init__(self, data: Json) -> None:
        self.data = data
        self.subjects: dict[str, Json] = data["subjects"]
        self.failures: list[Json] = data["failures"]

    @classmethod
    def read(cls, file: Path) -> Results:
        """Reads the results that `write` has written."""
        data = json.loads(file.read_text())
        turns = []
        for group in data["turns"]:
            rows = zip(*group["fields"].values(), strict=True)
            where = {"workload": group["workload"], "subject": group["subject"]}
            turns += [where | dict(zip(group["fields"], row, strict=True)) for row in rows]
        return cls(data | {"turns": turns})

    def write(self, file: Path) -> None:
        """Writes them as one JSON file: a list for each field of a subject in a workload, with four digits."""
        groups = []
        for (workload, subject, names), turns in groupby(sorted(self.data["turns"], key=_group), key=_group):
            columns = zip(*([_rounded(turn[name]) for name in names] for turn in turns), strict=True)
            groups.append({"workload": workload, "subject": subject, "fields": dict(zip(names, columns, strict=True))})
        head = json.dumps({key: value for key, value in self.data.items() if key != "turns"}, indent=1)
        lines = ",\n".join(json.dumps(group, separators=(",", ":")) for group in groups)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'{head.removesuffix("}").rstrip()},\n "turns": [\n{lines}\n]}}\n')

    @property
    def workloads(self) -> list[Workload]:
        """The workloads with results."""
        there = {turn["workload"] for turn in (*self.data["turns"], *self.failures)}
        return [workload for workload in WORKLOADS if workload.name in there]

    @cached_property
    def _turns(self) -> dict[tuple[str, str], list[Json]]:
        turns: dict[tuple[str, str], list[Json]] = {}
        for turn in self.data["turns"]:
            turns.setdefault((turn["workload"], turn["subject"]), []).append(turn)
        return turns

    def _values(self, workload: Workload, column: Column, subject: str) -> dict[Round, float]:
        turns = self._turns.get((workload.name + column.source, subject), [])
        return {(turn["run"], turn["round"]): value for turn in turns if (value := column.of(turn)) is not None}

    def by_round(self, workload: Workload, column: Column, subject: str) -> dict[Round, float]:
        """A subject's figure in each round."""
        values = self._values(workload, column, subject)
        return ratios(values, self._values(workload, column, column.by)) if column.by else values

    def figure(self, workload: Workload, column: Column, subject: str) -> float | None:
        """A subject's figure: over all rounds of a run, and then the median of the runs."""
        values = self.by_round(workload, column, subject)
        return over_runs(values, column.over) if values else None

    def ranking(self, workload: Workload) -> list[str]:
        """All subjects with a figure in the first column, the best first."""
        column = workload.columns[0]
        figures = {name: self.figure(workload, column, name) for name in self.subjects}
        there = {name: figure for name, figure in figures.items() if figure is not None}
        return sorted(there, key=lambda name: there[name], reverse=column.more_is_better)

    def failure(self, workload: Workload, subject: str) -> str | None:
        """The failure of a subject, as it was seen."""
        seen = [f["seen"] for f in self.failures if (f["workload"], f["subject"]) == (workload.name, subject)]
        if not seen:
            return None
        runs = len({turn["run"] for turn in (*self.data["turns"], *self.failures) if turn["workload"] == workload.name})
        return str(seen[0]) if runs == 1 else f"{seen[0]} (in {len(seen)} of {runs} runs)"

    def columns_ahead(self, workload: Workload, peer: str) -> list[Column]:
        """The columns in which a peer is better than the face of ours that its users could use instead."""
        ours = self.subjects[peer]["counterpart"]
        if self.subjects[peer]["kind"] != PEER or ours not in self.subjects:
            return []
        return [
            column
            for column in workload.columns
            if column.judged
            and ahead(
                self.by_round(workload, column, peer),
                self.by_round(workload, column, ours),
                more_is_better=column.more_is_better,
            )
        ]


def _group(turn: Json) -> tuple[str, str, tuple[str, ...]]:
    names = tuple(name for name in turn if name not in {"workload", "subject"})
    return turn["workload"], turn["subject"], names


def _rounded(value: Any) -> Any:
    """A number with four digits, more than any difference on the page needs; an integer stays one."""
    return value if value is None else type(value)(float(f"{value:.4g}"))
