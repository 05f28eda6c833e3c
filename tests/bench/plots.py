"""One picture for each question, as SVG: a dot for each subject on a logarithmic scale, the best on top.

It is written by hand, and not by a library for plots: so it is small, and has the colours of a light and a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from bench.results import Results
from bench.subjects import LIMIT, OURS
from bench.workload import Column, Workload

WIDTH, LEFT, VALUE, GAP = 820, 224, 76, 16
"""The picture, its column of names, the column of values in a panel, and what is between panels."""

TOP, ROW, FOOT = 104, 23, 52

STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))
"""Where a decade has its ticks: as few as show where the dots are."""

STYLE = """\
svg{color-scheme:light dark;font:13px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:#1f2328}
.page{fill:#fff}.title{font-size:16px;font-weight:600}.small{font-size:12px;fill:#57606a}.column,.ours{font-weight:600}
.grid{stroke:#d8dee4}.line{stroke:#8c959f}.line.ours{stroke:#7fa8d6}.limit{stroke:#b3202c;stroke-dasharray:4 3}
circle{fill:#fff;stroke:#57606a;stroke-width:2}circle.ours{fill:#1f5fa8;stroke:#1f5fa8}path{fill:#b3202c}
.failed{fill:#9a3412}.end{text-anchor:end}.mid{text-anchor:middle}
@media (prefers-color-scheme:dark){svg{fill:#e6edf3}.page{fill:#12161d}.small{fill:#a9b3c0}.grid{stroke:#2c333d}
.line{stroke:#6e7681}.line.ours{stroke:#4f7fb0}.limit{stroke:#ff8087}circle{fill:#12161d;stroke:#a9b3c0}
circle.ours{fill:#6fb1f2;stroke:#6fb1f2}path{fill:#ff8087}.failed{fill:#f2a48f}}"""


def draw(results: Results, directory: Path) -> list[Path]:
    """Draws every picture; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for workload in results.workloads:
        if workload.drawn and results.ranking(workload):
            files.append(directory / f"{workload.name}.svg")
            files[-1].write_text(picture(results, workload), encoding="utf-8")
    return files


def picture(results: Results, workload: Workload) -> str:
    """The picture of a workload."""
    columns = workload.shown
    limits = [name for name in workload.limits if results.figure(workload, columns[0], name) is not None]
    peers = [name for name in results.ranking(workload, columns[0]) if results.subjects[name]["kind"] != LIMIT]
    names = sorted([*peers, *limits], key=results.ranking(workload, columns[0]).index)
    failed = [name for name in results.subjects if results.failure(workload, name) and name not in names]
    bottom = TOP + ROW * (len(names) + len(failed))
    parts = [*_head(results, workload, bottom), *_names(results, [*names, *failed])]
    width = (WIDTH - LEFT - GAP * len(columns)) / len(columns)
    for number, column in enumerate(columns):
        panel = Panel(results, workload, column, names, LEFT + number * (width + GAP), width)
        parts += panel.drawn(bottom, limits)
    for row, name in enumerate(failed, len(names)):
        parts.append(_text(LEFT, _middle(row) + 4, f"failed: {results.failure(workload, name)}", "failed"))
    parts += _legend(bottom, limits=bool(limits))
    box = f"0 0 {WIDTH} {bottom + FOOT}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img">'
    return "\n".join([head, f"<title>{escape(workload.title)}</title><style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


class Panel:
    """One column: its scale, the dots and the values beside them."""

    def __init__(
        self, results: Results, workload: Workload, column: Column, names: Sequence[str], left: float, width: float
    ) -> None:
        self.column, self.results, self.names, self.left = column, results, names, left
        self.right = left + width - VALUE
        self.figures = [results.figure(workload, column, name) for name in names]
        self.spreads = [results.spread(workload, column, name) for name in names]
        ends = [end for spread in self.spreads if spread for end in (spread.low, spread.high)]
        finite = [v for v in (*self.figures, *ends) if v and math.isfinite(v)] or [1.0]
        self.low, self.high = min(finite) / 1.15, max(finite) * 1.15

    def x(self, value: float) -> float:
        """Where a value is; what the scale cannot have, 0 and infinity, is at its ends."""
        if value <= 0:
            return self.left
        part = math.log(min(value, self.high) / self.low) / math.log(self.high / self.low)
        return self.left + part * (self.right - self.left)

    def ticks(self) -> list[float]:
        """The values below the scale."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found: list[float] = []
        for step in STEPS:
            found = [m * 10.0**d for d in decades for m in step if self.low <= m * 10.0**d <= self.high]
            if len(found) > 1:
                break
        every = max(1, math.ceil(len(found) * 56 / (self.right - self.left)))
        return found[::every]

    def drawn(self, bottom: float, limits: Sequence[str]) -> Iterator[str]:
        """Its lines of SVG."""
        better = "more is better" if self.column.more_is_better else "less is better"
        yield _text(self.left, TOP - 28, self.column.title, "column")
        yield _text(self.left, TOP - 12, better, "small")
        for tick in self.ticks():
            yield _line(self.x(tick), TOP - 4, self.x(tick), bottom, "grid")
            yield _text(self.x(tick), bottom + 16, f"{tick:,.0f}" if tick >= 10 else f"{tick:g}", "small mid")
        for row, (name, value, spread) in enumerate(zip(self.names, self.figures, self.spreads, strict=True)):
            if value is None:
                continue
            y, kind = _middle(row), self.results.subjects[name]["kind"]
            ours = " ours" if kind == OURS else ""
            if name in limits:
                yield _line(self.x(value), TOP - 4, self.x(value), TOP + ROW * len(self.names), "limit")
            if spread and spread.high > spread.low:
                yield _line(self.x(spread.low), y, self.x(spread.high), y, f"line{ours}")
            if kind == LIMIT:
                yield f'<path d="M{self.x(value):.1f} {y - 6}l6 6-6 6-6-6z"/>'
            else:
                yield f'<circle cx="{self.x(value):.1f}" cy="{y}" r="4.5" class="dot{ours}"/>'
            yield _text(self.right + VALUE, y + 4, form(self.column, value), f"end{ours}")


def form(column: Column, value: float) -> str:
    """A value as the tables have it."""
    return "∞" if math.isinf(value) else column.form.format(value)


def _head(results: Results, workload: Workload, bottom: float) -> Iterator[str]:
    head = results.head(workload)
    machine = f"{head['date']}, {head['machine']['cores']} cores, {head['machine']['model']}, {head['server']}"
    yield f'<rect class="page" width="{WIDTH}" height="{bottom + FOOT}"/>'
    yield _text(16, 28, workload.title, "title")
    yield _text(16, 48, f"{machine}. Logarithmic; thin lines: 10th to 90th percentile of the rounds.", "small")


def _names(results: Results, names: Sequence[str]) -> Iterator[str]:
    for row, name in enumerate(names):
        subject = results.subjects[name]
        yield _text(LEFT - 16, _middle(row) + 4, subject["title"], f"end{' ours' if subject['kind'] == OURS else ''}")


def _legend(bottom: float, *, limits: bool) -> Iterator[str]:
    y = bottom + 38
    yield f'<circle class="ours" cx="{LEFT + 5}" cy="{y - 4}" r="4.5"/>'
    yield _text(LEFT + 16, y, "this library", "small")
    yield f'<circle cx="{LEFT + 115}" cy="{y - 4}" r="4.5"/>'
    yield _text(LEFT + 126, y, "peers", "small")
    if limits:
        yield f'<path d="M{LEFT + 195} {y - 10}l6 6-6 6-6-6z"/>'
        yield _text(LEFT + 208, y, "limit: a socket without a lock", "small")


def _middle(row: int) -> float:
    return TOP + ROW * row + ROW / 2


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:g}" class="{kind}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:g}" x2="{x2:.1f}" y2="{y2:g}" class="{kind}"/>'
