"""One picture for each question: bars, the best on top."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from bench.results import Results
from bench.subjects import LIMIT, OURS
from bench.workload import Workload

OURS_COLOUR, PEER_COLOUR, LIMIT_COLOUR, FAILED_COLOUR = "#2f6fb0", "#b9bec6", "#b3202c", "#8a5a5a"

LINES: dict[str, Any] = {"bare": "-", "bare-scripts": (0, (4, 2))}

PAPER: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
"""Behind text that a line may cross."""

# Drawn to be read at 800 pixels, on white whatever is around it.
WIDTH_IN, BAR_IN, FRAME_IN = 8.0, 0.31, 1.35
STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "svg.fonttype": "none",
    "font.size": 10.0,
    "svg.hashsalt": "redlock",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "text.parse_math": False,
}

WIDE = 25
"""By how many times the longest bar exceeds the shortest one that is drawn to scale."""


def draw(results: Results, directory: Path) -> list[Path]:
    """Draws every picture as SVG; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for workload in results.workloads:
        if workload.drawn and results.ranking(workload):
            files.append(directory / f"{workload.name}.svg")
            with mpl.rc_context(STYLE):
                _picture(results, workload).savefig(files[-1], metadata={"Date": None}, facecolor="white")
    return files


def _picture(results: Results, workload: Workload) -> Figure:
    column = workload.columns[0]
    names = [name for name in results.ranking(workload) if results.subjects[name]["kind"] != LIMIT]
    failed = [name for name in results.subjects if results.failure(workload, name) and name not in names]
    figure = Figure(figsize=(WIDTH_IN, FRAME_IN + BAR_IN * (len(names) + len(failed))), layout="constrained")
    axes = figure.add_subplot()
    values = [results.figure(workload, column, name) or 0 for name in names]
    limits = {name: limit for name in workload.limits if (limit := results.figure(workload, column, name)) is not None}
    wide = _scale(axes, [*values, *limits.values()])
    for y, (name, value) in enumerate(zip(names, values, strict=True)):
        _bar(axes, results, workload, name, y, value)
    for name, limit in limits.items():
        axes.axvline(limit, color=LIMIT_COLOUR, linewidth=1.2, linestyle=LINES[name], zorder=3)
    for y, name in enumerate(failed, len(names)):
        _failure(axes, y, results.failure(workload, name) or "")
    _name_bars(axes, results, [*names, *failed])
    better = "more is better" if column.more_is_better else "less is better"
    axes.set_xlabel(f"{column.title} ({better}{', logarithmic' if wide else ''})")
    figure.suptitle(workload.title, fontsize=13, weight="bold")
    _legend(figure, results, limits)
    return figure


def _scale(axes: Axes, values: list[float]) -> bool:
    """Makes room for these and their labels; returns whether the scale is logarithmic."""
    most, least = max(values), min(values)
    wide = least > 0 and most / least > WIDE
    if wide:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        left = 10 ** math.floor(math.log10(least * 0.8))
        axes.set_xlim(left, most * (most / left) ** 0.16)
    else:
        axes.set_xlim(0, most * 1.25 or 1)
    return wide


def _bar(axes: Axes, results: Results, workload: Workload, name: str, y: int, value: float) -> None:
    column, right = workload.columns[0], axes.get_xlim()[1]
    colour = OURS_COLOUR if results.subjects[name]["kind"] == OURS else PEER_COLOUR
    axes.barh(y, value, height=0.72, color=colour, zorder=2)
    end = value
    spread = results.spread(workload, column, name)
    if spread and spread.high > spread.low:
        # Values far beyond all medians would leave no room for these; the table has them.
        end = max(min(spread.high, right if spread.high < right * 0.9 else value * 1.02), value)
        axes.plot([spread.low, spread.high], [y, y], color="#222222", linewidth=1.2, zorder=4, solid_capstyle="butt")
    text = column.form.format(value)
    axes.annotate(text, (end, y), (5, 0), textcoords="offset points", va="center", fontsize=9, zorder=6, bbox=PAPER)


def _failure(axes: Axes, y: int, seen: str) -> None:
    text, place = f"failed: {seen[:60]}", ("axes fraction", "data")
    axes.annotate(
        text, (0, y), (6, 0), place, "offset points", va="center", color=FAILED_COLOUR, fontsize=9, zorder=6, bbox=PAPER
    )


def _name_bars(axes: Axes, results: Results, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), [results.subjects[name]["title"] for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        if results.subjects[name]["kind"] == OURS:
            label.set_fontweight("bold")


def _legend(figure: Figure, results: Results, limits: dict[str, float]) -> None:
    handles: list[Any] = [Patch(color=OURS_COLOUR, label="this library"), Patch(color=PEER_COLOUR, label="peers")]
    for name in limits:
        label = f"limit: {results.subjects[name]['title']}"
        handles.append(Line2D([], [], color=LIMIT_COLOUR, linewidth=1.2, linestyle=LINES[name], label=label))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
