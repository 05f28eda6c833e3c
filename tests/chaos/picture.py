"""The picture of a run: the troubles of each subject, and the number of acquisitions meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from chaos.colours import FAULT, FROZEN, LANGUAGE
from chaos.run import Done, Run
from chaos.schedule import CREW, NODES, VIEWS
from chaos.tally import LANGUAGES

WIDTH_IN, HEIGHT_IN = 11.0, 7.0
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "svg.hashsalt": "redlock",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
LEAST_S = 0.08
"""Shorter troubles are drawn this long, or they would not be seen."""

GREY = "#888888"
CLASS = {"steady": "#ffffff", "data": "#fbeeda", "clock": "#e6eef8"}
"""Behind the epochs of each class."""


def draw(run: Run, file: Path) -> None:
    """Writes the picture, as SVG or in the format of the file's name."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        troubles, rate = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        _troubles(troubles, run)
        _rate(rate, run)
        for epoch, from_ns, to_ns in run.epochs:
            for axes in (troubles, rate):
                axes.axvspan(run.seconds(from_ns), run.seconds(to_ns), color=CLASS[epoch.of], zorder=-2, linewidth=0)
        figure.suptitle("What was done, and how often the lock was taken meanwhile", fontsize=12, weight="bold")
        handles = [Patch(color=LANGUAGE[name], label=name) for name in LANGUAGES]
        handles += [Patch(facecolor=colour, edgecolor=GREY, label=f"{of} epoch") for of, colour in CLASS.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)
        metadata = {"Date": None} if file.suffix == ".svg" else None
        figure.savefig(file, metadata=metadata, dpi=100)


def _troubles(axes: Axes, run: Run) -> None:
    lanes = [f"node {i + 1}" for i in range(NODES)]
    lanes += [f"view {'ABC'[i]}" for i in range(VIEWS)]
    lanes += [f"worker {i + 1}" for i in range(CREW)]
    for done in run.done:
        lane = lanes.index(_lane(done))
        from_s, for_s = run.seconds(done.from_ns), (done.to_ns - done.from_ns) / 1e9
        colour = FAULT if done.trouble.kind.bars or done.trouble.kind.of != "steady" else FROZEN
        axes.broken_barh([(from_s, max(for_s, LEAST_S))], (lane - 0.38, 0.76), color=colour, linewidth=0)
        if run.seconds(run.end_ns) < 100:
            axes.text(from_s, lane - 0.4, done.trouble.kind.name, fontsize=5, color=GREY, va="bottom")
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_ylim(len(lanes) - 0.4, -0.8)
    axes.tick_params(axis="y", length=0)


def _lane(done: Done) -> str:
    subject = done.trouble.subject
    return subject.split(" to ")[0]


def _rate(axes: Axes, run: Run) -> None:
    first, seconds = run.start_ns // 10**9, max(1, int(run.seconds(run.end_ns)) + 1)
    counts = [[run.tally.seconds[first + i, language] for i in range(seconds)] for language in LANGUAGES]
    axes.stackplot(range(seconds), counts, colors=[LANGUAGE[language] for language in LANGUAGES], step="post")
    axes.set_xlim(0, seconds)
    axes.set_ylabel("acquisitions a second")
    axes.set_xlabel("seconds")
