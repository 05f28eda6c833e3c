"""The results of a run, as they are kept, and their figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from bench.figures import Round, Spread, ahead, over_runs, ratios
from bench.process import Json
from bench.subjects import PEER, SUBJECTS
from bench.workload import WORKLOADS, Column, Workload

HEAD = ("date", "form", "runs", "seed", "commit", "machine", "server", "languages", "missing")
"""When and on what a run was made."""


@dataclass(frozen=True)
class Ahead:
    """A figure in which a peer is better than our face that its users could use instead."""

    workload: Workload
    column: Column
    peer: str
    ours: str
    factor: float


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
        return cls(data | {"turns": [turn for group in data["turns"] for turn in _unpacked(group)]})

    def write(self, file: Path) -> None:
        """Writes them as one JSON file, with four digits of each figure."""
        file.parent.mkdir(parents=True, exist_ok=True)
        head = json.dumps({key: value for key, value in self.data.items() if key != "turns"}, indent=1)
        groups = groupby(sorted(self.data["turns"], key=_group), key=_group)
        turns = ",\n".join(_packed(list(group)) for _, group in groups)
        file.write_text(f'{head.removesuffix("}").rstrip()},\n "turns": [\n{turns}\n]}}\n')

    def merged(self, later: Results) -> Results:
        """These results with the workloads of a later run instead of their own."""
        names = [workload.name for workload in later.workloads]
        turns = {turn for workload in later.workloads for turn in workload.turns}
        kept, new = self.data, later.data

        def together(key: str) -> list[Json]:
            old = [item for item in kept.get(key, []) if item["workload"] not in turns]
            return old + [item for item in new.get(key, []) if item["workload"] in turns]

        subjects = dict(self.subjects)
        versions = {}
        for name in _taking_part(later):
            known = self.subjects.get(name, {}).get("version")
            subjects[name] = later.subjects[name] | ({"version": known} if known else {})
            if known and known != later.subjects[name]["version"]:
                versions[name] = later.subjects[name]["version"]
        ranks = {subject.name: rank for rank, subject in enumerate(SUBJECTS)}
        order = sorted(subjects, key=lambda name: ranks.get(name, len(ranks)))
        heads = [head | {"workloads": [n for n in head["workloads"] if n not in names]} for head in self.later]
        heads.append({key: new[key] for key in HEAD} | {"versions": versions, "workloads": names})
        return Results(
            kept
            | {
                "subjects": {name: subjects[name] for name in order},
                "notes": list(dict.fromkeys([*kept["notes"], *new["notes"]])),
                "later": [head for head in heads if head["workloads"]],
                "left_out": together("left_out"),
                "failures": together("failures"),
                "turns": together("turns"),
            }
        )

    @property
    def later(self) -> list[Json]:
        """When and on what some workloads were measured that are not of the same run as the others."""
        heads: list[Json] = self.data.get("later", [])
        return heads

    def head(self, workload: Workload) -> Json:
        """When and on what a workload was measured."""
        return next((head for head in self.later if workload.name in head["workloads"]), self.data)

    def left_out(self, workload: Workload) -> dict[str, list[str]]:
        """The subjects without a part in a workload, by the reason."""
        found: dict[str, list[str]] = {}
        for left in self.data.get("left_out", []):
            if left["workload"] == workload.name and left["subject"] in self.subjects:
                found.setdefault(left["why"], []).append(left["subject"])
        return found

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
        """A subject's figure: over all rounds of a run, and then the median or the worst of the runs."""
        values = self.by_round(workload, column, subject)
        return over_runs(values, column.over, worst=column.worst) if values else None

    def compared(
        self, workload: Workload, column: Column, subject: str, by: tuple[Workload, Column, str] | None
    ) -> float | None:
        """A subject's figure, or its ratio to another figure in the same round."""
        values = self.by_round(workload, column, subject)
        values = ratios(values, self.by_round(*by)) if by else values
        return over_runs(values, column.over, worst=column.worst) if values else None

    def spread(self, workload: Workload, column: Column, subject: str) -> Spread | None:
        """The spread of the rounds."""
        values = self.by_round(workload, column, subject)
        return Spread.of(values.values()) if values else None

    def ranking(self, workload: Workload, column: Column | None = None) -> list[str]:
        """All subjects with a figure in a column, by default the first, the best first."""
        column = column or workload.columns[0]
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

    def peers_ahead(self, workload: Workload) -> list[Ahead]:
        """The figures in which a peer is better than ours."""
        found = []
        for column in (column for column in workload.columns if column.judged):
            for name, subject in self.subjects.items():
                ours = subject["counterpart"]
                if subject["kind"] != PEER or ours not in self.subjects:
                    continue
                if workload.one_language and subject["language"] != self.subjects[ours]["language"]:
                    continue
                both = (self.by_round(workload, column, who) for who in (name, ours))
                factor = ahead(*both, more_is_better=column.more_is_better)
                if factor:
                    found.append(Ahead(workload, column, name, ours, factor))
        return found


DIGITS = 4
"""More than any difference on the page needs. With all of them, a run would take 4 MB."""


def _group(turn: Json) -> tuple[str, str, str]:
    return turn["workload"], turn["subject"], ",".join(turn)


def _packed(turns: Sequence[Json]) -> str:
    """The turns of one subject in a workload: each field with its power of ten, and a line of whole numbers a turn."""
    fields = {}
    columns = []
    for field in (field for field in turns[0] if field not in {"workload", "subject"}):
        values = [turn[field] for turn in turns]
        fields[field], column = _scaled(values)
        columns.append(column)
    head = {"workload": turns[0]["workload"], "subject": turns[0]["subject"], "fields": fields}
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in zip(*columns, strict=True))
    return f'{json.dumps(head).removesuffix("}")}, "turns": [\n{rows}]}}'


def _scaled(values: Sequence[Any]) -> tuple[int | None, Sequence[Any]]:
    """The power of ten by which these are divided, and what is left; none for what is not a number."""
    numbers = [value for value in values if value is not None]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers):
        return None, values
    power = math.floor(math.log10(median([abs(value) for value in numbers if value] or [1]))) - DIGITS + 1
    if all(float(value).is_integer() for value in numbers):
        power = max(power, 0)
    return power, [None if value is None else round(value * 10.0**-power) for value in values]


def _unpacked(group: Json) -> Iterable[Json]:
    for row in group["turns"]:
        turn = {"workload": group["workload"], "subject": group["subject"]}
        for (field, power), value in zip(group["fields"].items(), row, strict=True):
            number = power is not None and value is not None
            turn[field] = (value * 10**power if power >= 0 else value / 10**-power) if number else value
        yield turn


def _taking_part(results: Results) -> Iterable[str]:
    there = {item["subject"] for item in (*results.data["turns"], *results.failures)}
    return (name for name in results.subjects if name in there)
