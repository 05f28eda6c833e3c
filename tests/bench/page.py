"""The page of results, made from the kept numbers alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from bench.process import Json
from bench.results import Ahead, Results
from bench.subjects import LIMIT, OURS, PEER
from bench.targets import TARGETS, Figure, Target
from bench.workload import READERS, SEMAPHORE, Column, Workload

HERE = Path(__file__).resolve().parent
PAGE = HERE / "RESULTS.md"
RESULTS = HERE / "results"
NUMBERS = "results.json"

HOW = """\
Every subject has a process of its own, whose loop is in its own language. They take turns in short rounds, in an order
that is shuffled for each, and are divided by the bare socket of the same round: the speed of a machine changes between
rounds, the ratio hardly does. Figures are medians of all rounds of a run, and of the runs; what takes long is measured
only in the first run. In pictures, all scales are logarithmic, and the thin lines reach from the 10th to the 90th
percentile of the rounds. The kept numbers have four digits.
Microseconds belong to this machine and this hour; CPU time is steadier than wall time. Ours are used with their
defaults, which give every acquisition a fence and renew in the background; most peers do neither. Each peer is used in
the configuration that its own documentation calls for.
[README.md](README.md) says how to run this, and how a library takes part."""

PLACES = {
    "each": "on cores of their own where one task is at work, else placed by the scheduler",
    "free": "placed by the scheduler",
    "apart": "on cores of their own",
    "one": "on one core",
}
"""What `session.CORES` mean."""

SHORT = [
    ("a waiting process gets a released lock after, ms", "handover", "median ms"),
    ("the same on five nodes, ms", "handover5", "median ms"),
    ("acquire and release a free lock, µs", "one", "µs"),
    ("the same on five nodes, µs", "five", "µs"),
    ("five nodes, one of which hangs: the slowest call, ms", "frozen", "most ms"),
    ("64 tasks with a lock of their own, acquisitions per s", "tasks", "pairs per s"),
    ("8 processes want one lock: busiest : least busy", "contention8", "busiest : least busy"),
    ("1,000 waiters and nothing happens, % of a core", "waiting", "% of a core, client"),
    ("10,000 held locks, CPU µs for each lock and s", "holding10000", "CPU µs per lock and s, client"),
    ("a new process has its first lock after, ms", "cold", "ms"),
]
"""The ten lines at the head of the page: what a line says, and its figure."""

BESIDE = ["python-sync", "redis-py", "node", "node-redlock", "rust-async", "rslock"]
"""The subjects of the ten lines: a face, and the peer that its users know."""

FIRST = ["handover", "frozen", "contention8", "one", "five"]
"""The pictures at the head of the page."""

CONFIGURED = {SEMAPHORE: "semaphore", READERS: "shared"}
"""Families for which subjects have a configuration of their own, and its field."""


def load(directory: Path = RESULTS) -> Results:
    """The kept numbers."""
    return Results.read(directory / NUMBERS)


def text(results: Results, pictures: str = "results") -> str:
    """The page, in Markdown; `pictures` is where it finds those."""
    sections = [_head(results, pictures), _how(results), _ahead(results), _targets(results), _failed(results)]
    sections += [_section(results, workload, pictures) for workload in results.workloads]
    sections.append(_subjects(results))
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(results: Results, pictures: str) -> str:
    """Ten lines and five pictures, before how all of it was measured."""
    there = [name for name in BESIDE if name in results.subjects]
    rows = []
    for what, workload, column in SHORT:
        place, shown = Figure(workload, column, "").place
        cells = [_cell(shown, results.figure(place, shown, name)) for name in there]
        if any(cells):
            rows.append([f"[{what}](#{_anchor(place)})", *(cell or "-" for cell in cells)])
    drawn = [w for name in FIRST for w in results.workloads if w.name == name and w.drawn]
    lines = ["# Benchmark", "<!-- Made by `make bench ARGS=--long`; do not edit. -->"]
    lines.append(
        f"Measured on {results.data['date']} on {results.data['machine']['cores']} cores, {results.data['server']}."
    )
    if rows:
        lines.append(_table(["", *(_title(results, name) for name in there)], rows, figures=True))
        lines.append(
            "A dash: it cannot do this, or it failed. [Where a peer is ahead](#where-a-peer-is-ahead) has every case."
        )
    return "\n\n".join([*lines, *(f"![{w.title}]({pictures}/{w.name}.svg)" for w in drawn)])


def _anchor(workload: Workload) -> str:
    return re.sub(r"[^\w -]", "", workload.title.lower()).replace(" ", "-")


def _how(results: Results) -> str:
    data = results.data
    rows = [list(fact) for fact in _facts(data).items()]
    if results.later:
        apart = sum(results.head(workload) is not data for workload in results.workloads)
        rows.append(["measured apart", f"{apart} of the workloads, each of which says when"])
    return "\n\n".join(["## How this was measured", HOW, _table(["", ""], rows), *data["notes"]])


def _facts(head: Json) -> dict[str, str]:
    """When and on what a run was made."""
    machine = head["machine"]
    return {
        "run" if head["runs"] == 1 else f"{head['runs']} runs": (
            f"{head['date']}, {head['form']['name']} form, seed {head['seed']}, commit {head['commit']}"
        ),
        "machine": f"{machine['cores']} cores, {machine['model']}, {machine['system']}",
        "load at the start": f"{machine['load']:.2f}",
        "clients and servers": PLACES[machine["cores_used"]],
        "servers": head["server"],
        "languages": ", ".join(head["languages"]),
    }


def _apart(results: Results, head: Json) -> str:
    """What differs between a later run and the one at the head of the page."""
    same = _facts(results.data)
    facts = {name: fact for name, fact in _facts(head).items() if same.get(name) != fact}
    facts |= {f"version of {results.subjects[name]['title']}": version for name, version in head["versions"].items()}
    facts |= {f"not here, {name}": why for name, why in head["missing"].items() if name not in results.data["missing"]}
    return f"Measured apart from the rest. {'; '.join(f'{name}: {fact}' for name, fact in facts.items())}."


def _targets(results: Results) -> str:
    rows, missed = [], []
    for target in TARGETS:
        value = target.value(results)
        if value is None:
            continue
        reached = target.reached(value)
        bound = f"{'at least' if target.least else 'at most'} {target.bound:.3g}"
        rows.append([_figure(results, target), bound, f"{value:,.2f}", "" if reached else "**missed**"])
        if not reached and target.why and target.why not in missed:
            missed.append(target.why)
    if not rows:
        return ""
    lines = ["## What it is meant to reach", "Ratios are taken within a round; the machine is the one above."]
    lines.append(_table(["", "meant", "is", ""], rows))
    return "\n\n".join([*lines, *missed])


def _figure(results: Results, target: Target) -> str:
    ours = f"{_place(target.ours)}, {results.subjects[target.ours.subject]['title']}"
    if target.by is None:
        return ours
    if target.by.subject == target.ours.subject:
        same = target.by.workload == target.ours.workload
        return f"{ours}, by {target.by.column if same else f'that of: {_place(target.by)}'}"
    return f"{ours}, by {results.subjects[target.by.subject]['title']}"


def _place(figure: Figure) -> str:
    workload, column = figure.place
    return f"{workload.title}: {column.title}"


def _ahead(results: Results) -> str:
    found = [ahead for workload in results.workloads for ahead in results.peers_ahead(workload)]
    lines = ["## Where a peer is ahead"]
    lines.append(
        "Each peer is compared with the face of this library that its users could use instead, in every column that "
        "costs something. Named is what is better by more than 5 % in the median of the rounds, and better in nine "
        "rounds of ten; where a workload has one round only, that decides."
    )
    there = results.subjects
    beside = [(peer, there[peer["counterpart"]]) for peer in there.values() if peer["counterpart"] in there]
    foreign = {peer["language"] for peer, ours in beside if peer["language"] != ours["language"]}
    if foreign:
        lines.append(f"Peers in {' and '.join(sorted(foreign))} have no such face: Rust's stands beside them.")
    if not found:
        lines.append("Nowhere in this run.")
    else:
        by_peer = sorted(found, key=lambda ahead: list(results.subjects).index(ahead.peer))
        lines.append("\n".join(_sentence(results, list(group)) for _, group in groupby(by_peer, lambda it: it.peer)))
    return "\n\n".join(lines)


def _sentence(results: Results, found: Sequence[Ahead]) -> str:
    lines = [f"- **{found[0].peer}** is ahead of {results.subjects[found[0].ours]['title']}"]
    for workload, group in groupby(found, lambda ahead: ahead.workload):
        lines.append(f"  - {workload.title}: {'; '.join(_compared(results, ahead) for ahead in group)}")
    return "\n".join(lines)


def _compared(results: Results, ahead: Ahead) -> str:
    theirs, ours = (
        _cell(ahead.column, results.figure(ahead.workload, ahead.column, who)) for who in (ahead.peer, ahead.ours)
    )
    return f"{ahead.column.title} {theirs} against {ours}"


def _failed(results: Results) -> str:
    if not results.failures:
        return ""
    rows = []
    for workload in results.workloads:
        for name, subject in results.subjects.items():
            seen = results.failure(workload, name)
            if seen:
                rows.append([subject["title"], workload.title, seen.replace("|", "\\|")])
    why = "What did not do what it was asked for, and what was seen. The process was ended then."
    return "\n\n".join(["## What failed", why, _table(["subject", "workload", "seen"], rows)])


def _section(results: Results, workload: Workload, pictures: str) -> str:
    columns = [
        column
        for column in workload.columns
        if any(results.figure(workload, column, name) is not None for name in results.subjects)
    ]
    first = workload.columns[0]
    rows = []
    for name in results.ranking(workload):
        cells = [_cell(column, results.figure(workload, column, name)) for column in columns]
        spread = results.spread(workload, first, name)
        if spread and len(results.by_round(workload, first, name)) > 1:
            cells[0] += f" ({_cell(first, spread.low)} to {_cell(first, spread.high)})"
        rows.append([_title(results, name), *cells])
    failed = [name for name in results.subjects if results.failure(workload, name)]
    rows += [
        [_title(results, name), "failed", *[""] * (len(columns) - 1)]
        for name in failed
        if name not in results.ranking(workload)
    ]
    head = results.head(workload)
    lines = [f"## {workload.title}", workload.text.format(**head["form"])]
    if workload.cores == "apart" and head["machine"]["cores_used"] == "each":
        lines[-1] += " Clients and servers have cores of their own."
    if workload.drawn and rows:
        lines.append(f"![{workload.title}]({pictures}/{workload.name}.svg)")
    if rows:
        lines.append(_table(["", *(column.title for column in columns)], rows, figures=True))
    lines += _configured(results, workload)
    left_out = results.left_out(workload)
    if left_out:
        titles = {why: [results.subjects[name]["title"] for name in names] for why, names in left_out.items()}
        reasons = [f"{', '.join(who)} ({why})" for why, who in titles.items()]
        lines.append(f"Left out: {'; '.join(reasons)}.")
    if head is not results.data:
        lines.append(_apart(results, head))
    return "\n\n".join(lines)


def _configured(results: Results, workload: Workload) -> list[str]:
    """The semaphores or the shared locks of the peers that took part, as they are configured."""
    field = CONFIGURED.get(workload.family)
    if field is None:
        return []
    there = [n for n in results.subjects if n in results.ranking(workload) or results.failure(workload, n)]
    peers = [results.subjects[name] for name in there if results.subjects[name]["kind"] == PEER]
    return ["\n".join(f"- {peer['title']}: {peer[field]}." for peer in peers)] if peers else []


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


def summary(results: Results) -> str:
    """What the terminal shows at the end: the first column of everything."""
    lines = []
    for workload in results.workloads:
        column = workload.columns[0]
        lines.append(f"{workload.title} ({column.title})")
        for name in results.ranking(workload):
            figure = _cell(column, results.figure(workload, column, name))
            mark = {OURS: "*", PEER: " ", LIMIT: "-"}[results.subjects[name]["kind"]]
            lines.append(f"  {mark} {results.subjects[name]['title']:<28} {figure:>12}")
        lines += [f"    {f['subject']}: {f['seen']}" for f in results.failures if f["workload"] == workload.name]
    return "\n".join(lines)
