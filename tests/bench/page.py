"""The page of results, made from the kept numbers alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.figures import percentile
from bench.results import Results
from bench.subjects import OURS
from bench.workload import WORKLOADS, Column, Workload

HERE = Path(__file__).resolve().parent
PAGE = HERE / "RESULTS.md"
NUMBERS = HERE / "results.json"

HOW = """\
Every subject has a process of its own, whose loop is in its own language. They take turns in short rounds, in an order
that is shuffled for each, and are divided by the bare socket of the same round: the speed of a machine changes between
rounds, the ratio hardly does. Figures are medians of all rounds of a run, and of the runs; what takes long is measured
only in the first run. In parentheses are the 10th and the 90th percentile of the rounds. The kept numbers have four
digits.
Microseconds belong to this machine and this hour; CPU time is steadier than wall time. Ours are used with their
defaults, which give every acquisition a fence and renew in the background; most peers do neither. Each peer is used in
the configuration that its own documentation calls for.
[README.md](README.md) says how to run this, and how a library takes part."""

SHORT = [
    ("a waiting process gets a released lock after, ms", "handover", "median ms"),
    ("the same on five nodes, ms", "handover5", "median ms"),
    ("acquire and release a free lock, µs", "one", "µs"),
    ("the same on five nodes, µs", "five", "µs"),
    ("five nodes, one of which hangs: the slowest call, ms", "frozen", "most ms"),
    ("64 tasks with a lock of their own, acquisitions per s", "tasks", "pairs per s"),
    ("8 processes want one lock: busiest : least busy", "contention8", "busiest : least busy"),
    ("1,000 waiters and nothing happens, % of a core", "waiting", "% of a core, client"),
    ("10,000 held locks, CPU µs for each lock and s", "holding", "CPU µs per lock and s, client"),
]
"""The lines at the head of the page: what a line says, and its figure."""

BESIDE = ["python-sync", "redis-py", "node", "node-redlock", "rust-async", "rslock"]
"""The subjects of these lines: a face, and the peer that its users know."""


def text(results: Results) -> str:
    """The page, in Markdown."""
    sections = [_head(results), _how(results), _ahead(results), _failed(results)]
    sections += [_section(results, workload) for workload in results.workloads]
    sections.append(_subjects(results))
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(results: Results) -> str:
    data = results.data
    there = [name for name in BESIDE if name in results.subjects]
    rows = []
    for what, name, title in SHORT:
        workload = next(workload for workload in WORKLOADS if workload.name == name)
        column = next(column for column in workload.columns if column.title == title)
        cells = [_cell(column, results.figure(workload, column, subject)) for subject in there]
        if any(cells):
            anchor = re.sub(r"[^\w -]", "", workload.title.lower()).replace(" ", "-")
            rows.append([f"[{what}](#{anchor})", *(cell or "-" for cell in cells)])
    return "\n\n".join(
        [
            "# Benchmark",
            "<!-- Made by `make bench ARGS=--long`; do not edit. -->",
            f"Measured on {data['date']} on {data['machine']['cores']} cores, {data['server']}.",
            _table(["", *(_title(results, name) for name in there)], rows, figures=True),
            "A dash: it cannot do this, or it failed. [Where a peer is ahead](#where-a-peer-is-ahead) has every case.",
        ]
    )


def _how(results: Results) -> str:
    data, machine = results.data, results.data["machine"]
    rows = [
        [f"runs: {data['runs']}", f"{data['date']}, {data['form']['name']} form, commit {data['commit']}"],
        ["machine", f"{machine['cores']} cores, {machine['model']}, {machine['system']}"],
        ["load at the start", f"{machine['load']:.2f}"],
        ["clients and servers", "on cores of their own where one task is at work, else placed by the scheduler"],
        ["servers", data["server"]],
        ["languages", ", ".join(data["languages"])],
    ]
    return "\n\n".join(["## How this was measured", HOW, _table(["", ""], rows), *data["notes"]])


def _ahead(results: Results) -> str:
    lines = [
        "## Where a peer is ahead",
        "Each peer is compared with the face of this library that its users could use instead, in every column that "
        "costs something. Named is what is better by more than 5 % in the median of the rounds, and better in nine "
        "rounds of ten; where a workload has one round only, that decides.",
    ]
    for peer, subject in results.subjects.items():
        found = []
        for workload in results.workloads:
            columns = results.columns_ahead(workload, peer)
            if columns:
                cells = "; ".join(_compared(results, workload, column, peer) for column in columns)
                found.append(f"  - {workload.title}: {cells}")
        if found:
            ours = results.subjects[subject["counterpart"]]["title"]
            lines.append("\n".join([f"- **{peer}** is ahead of {ours}", *found]))
    return "\n\n".join(lines)


def _compared(results: Results, workload: Workload, column: Column, peer: str) -> str:
    both = (peer, results.subjects[peer]["counterpart"])
    theirs, ours = (_cell(column, results.figure(workload, column, name)) for name in both)
    return f"{column.title} {theirs} against {ours}"


def _failed(results: Results) -> str:
    rows = [
        [subject["title"], workload.title, seen.replace("|", "\\|")]
        for workload in results.workloads
        for name, subject in results.subjects.items()
        if (seen := results.failure(workload, name))
    ]
    why = "What did not do what it was asked for, and what was seen. The process was ended then."
    return "\n\n".join(["## What failed", why, _table(["subject", "workload", "seen"], rows)]) if rows else ""


def _section(results: Results, workload: Workload) -> str:
    first = workload.columns[0]
    rows = []
    for name in results.ranking(workload):
        cells = [_cell(column, results.figure(workload, column, name)) for column in workload.columns]
        rounds = list(results.by_round(workload, first, name).values())
        if len(rounds) > 1:
            cells[0] += f" ({_cell(first, percentile(rounds, 10))} to {_cell(first, percentile(rounds, 90))})"
        rows.append([_title(results, name), *cells])
    for name in results.subjects:
        if results.failure(workload, name) and name not in results.ranking(workload):
            rows.append([_title(results, name), "failed", *[""] * (len(workload.columns) - 1)])
    about = workload.text.format(**results.data["form"])
    if workload.apart:
        about += " Clients and servers have cores of their own."
    table = _table(["", *(column.title for column in workload.columns)], rows, figures=True)
    return "\n\n".join([f"## {workload.title}", about, table])


def _title(results: Results, name: str) -> str:
    subject = results.subjects[name]
    return f"**{subject['title']}**" if subject["kind"] == OURS else str(subject["title"])


def _subjects(results: Results) -> str:
    rows = [
        [_title(results, name), subject["language"], subject["version"] or "", subject["configuration"]]
        for name, subject in results.subjects.items()
    ]
    lines = ["## Who took part", _table(["", "language", "version", "configuration"], rows)]
    lines += [f"Not here: {name}, because {why}." for name, why in results.data["missing"].items()]
    return "\n\n".join(lines)


def _cell(column: Column, figure: float | None) -> str:
    if figure is None:
        return ""
    return "∞" if math.isinf(figure) else column.form.format(figure)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, figures: bool = False) -> str:
    lines = [head, ["---", *["---:" if figures else "---"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
