"""The picture of a run: troubles and holds in lanes, and the number of acquisitions meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from chaos.colours import FAULT, FROZEN, LANGUAGE
from chaos.demo import outlived, struck_hold
from chaos.holds import Hold
from chaos.run import Run
from chaos.schedule import TTL_S, Kind
from chaos.tally import LANGUAGES

WIDTH_IN, HEIGHT_IN = 11.0, 7.0
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "svg.hashsalt": "redlock",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.8,
}
LEAST_S = 0.08
"""Shorter troubles are drawn this long, or they would not be seen."""

LEAST_HELD_S = 0.012
"""The same for holds."""

LANE, WAIT = 0.76, 0.26
"""How much of a lane's height a bar takes, and one of a client that waits."""

NAMED, NAMED_LARGE = 200, 20
"""Up to how many troubles have their names beside them, and have them in large type."""

LOCK = "the lock"
"""The lane of the only lock, where there are holds to draw."""

GREY = "#888888"
CLASS = {"steady": "#ffffff", "data": "#fbeeda", "clock": "#e6eef8"}
"""Behind the epochs of each class."""

TOLD: dict[str, Any] = {"marker": "D", "markersize": 7, "color": "black", "markeredgecolor": "white"}
"""The mark of a holder that was told of its loss."""

REFUSED: dict[str, Any] = {"marker": "X", "markersize": 8, "color": "#d62728", "markeredgecolor": "white"}
"""The mark of a late write that the store refused."""

HALO: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
"""Behind words that stand on bars. An outline of the letters would leave no text in the file."""

TAKEOVER: dict[str, Any] = {"marker": "^", "markersize": 9, "color": "#2e9c5b", "markeredgecolor": "white"}
"""The mark of a server that became the primary."""


def draw(run: Run, file: Path, holds: Sequence[Hold] = ()) -> None:
    """Writes the picture, as SVG or in the format of the file's name; with the holds, if all are of one lock."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        lanes, rate = figure.subplots(2, 1, sharex=True, height_ratios=[7, 2] if holds else [3, 2])
        heights = _frame(lanes, run, holds)
        _troubles(lanes, run, heights, bool(holds))
        _takeovers(lanes, run, heights)
        _holds(lanes, run, heights, holds)
        _remarks(lanes, run, heights, holds)
        _rate(rate, run)
        for epoch, from_ns, to_ns in run.epochs:
            for axes in (lanes, rate):
                axes.axvspan(run.seconds(from_ns), run.seconds(to_ns), color=CLASS[epoch.of], zorder=-2, linewidth=0)
        title = "Who held the lock" if holds else "How often locks were acquired"
        figure.suptitle(f"{title}, and what was done meanwhile", fontsize=12, weight="bold")
        figure.legend(handles=_legend(run, holds), loc="outside lower center", ncols=6, frameon=False)
        metadata = {"Date": None} if file.suffix == ".svg" else None
        figure.savefig(file, metadata=metadata, dpi=100)


def _frame(axes: Axes, run: Run, holds: Sequence[Hold]) -> dict[str, int]:
    """Names the lanes, and returns the height of each."""
    lanes = dict.fromkeys([LOCK] if holds else []) | run.lanes
    names = [f"{lane}, {role.language} {role.face}" if role else lane for lane, role in lanes.items()]
    axes.set_yticks(range(len(lanes)), names)
    for role, label in zip(lanes.values(), axes.get_yticklabels(), strict=True):
        if role:
            label.set_color(LANGUAGE[role.language])
    axes.set_ylim(len(lanes) - 0.4, -0.8)
    axes.tick_params(axis="y", length=0)
    return {lane: height for height, lane in enumerate(lanes)}


def _troubles(axes: Axes, run: Run, heights: dict[str, int], among_holds: bool) -> None:
    for done in run.done:
        lane, kind = heights[done.trouble.lane], done.trouble.kind
        from_s, for_s = run.seconds(done.from_ns), max((done.to_ns - done.from_ns) / 1e9, LEAST_S)
        how: dict[str, Any] = {"color": _colour(kind)}
        if among_holds and kind.subject == "worker":
            # The holds are still seen through it.
            how = {"facecolor": "none", "edgecolor": _colour(kind), "hatch": "////", "zorder": 4}
        axes.broken_barh([(from_s, for_s)], (lane - LANE / 2, LANE), linewidth=0, **how)
        if among_holds:
            axes.axvspan(from_s, from_s + for_s, color=_colour(kind), alpha=0.08, linewidth=0, zorder=-1)
        if len(run.done) < NAMED:
            size, colour = (8, _colour(kind)) if len(run.done) < NAMED_LARGE else (5, GREY)
            axes.text(from_s, lane - 0.4, kind.name, fontsize=size, color=colour, va="bottom")


def _takeovers(axes: Axes, run: Run, heights: dict[str, int]) -> None:
    for takeover in run.takeovers:
        axes.plot(run.seconds(takeover.at_ns), heights[takeover.lane], zorder=5, **TAKEOVER)


def _colour(kind: Kind) -> str:
    return FAULT if kind.bars or kind.of != "steady" or kind.name == "worker killed" else FROZEN


def _holds(axes: Axes, run: Run, heights: dict[str, int], holds: Sequence[Hold]) -> None:
    for lane, role in run.lanes.items():
        of_lane = [hold for hold in holds if hold.lane == lane]
        if not role or not of_lane:
            continue
        colour, height = LANGUAGE[role.language], heights[lane]
        waits = [(run.seconds(hold.asked_ns), hold.wait_s) for hold in of_lane]
        axes.broken_barh(waits, (height - WAIT / 2, WAIT), color=colour, alpha=0.35, linewidth=0)
        bars = [(run.seconds(hold.since_ns), max(hold.held_s, LEAST_HELD_S)) for hold in of_lane]
        for y in (height, heights[LOCK]):
            axes.broken_barh(bars, (y - LANE / 2, LANE), color=colour, linewidth=0, zorder=3)
        for hold in of_lane:
            if hold.end == "lost" and hold.end_ns:
                axes.plot(run.seconds(hold.end_ns), height, zorder=6, **TOLD)
            for at_ns in hold.refused_ns:
                axes.plot(run.seconds(at_ns), height - LANE / 2, zorder=7, **REFUSED)


def _remarks(axes: Axes, run: Run, heights: dict[str, int], holds: Sequence[Hold]) -> None:
    """Says which holds came through a trouble, and for how long the lock of a holder that was struck stayed with it."""
    for done in run.done if holds else ():
        if done.trouble.kind.subject == "worker":
            hold = struck_hold(holds, done.trouble.lane, done)
            if hold and not outlived(hold, done):
                from_s, to_s, y = run.seconds(hold.granted_ns), run.seconds(hold.valid_until_ns), heights[LOCK] - 0.5
                axes.annotate("", (from_s, y), (to_s, y), arrowprops={"arrowstyle": "<->", "shrinkA": 0, "shrinkB": 0})
                axes.text((from_s + to_s) / 2, y, "one ttl", ha="center", va="bottom")
            continue
        for hold in holds:
            if hold.since_ns <= done.from_ns and outlived(hold, done) and hold.held_s > TTL_S:
                at_s, y = run.seconds(hold.over_ns), heights[hold.lane]
                axes.text(at_s + 0.1, y, "survived", va="center", weight="bold", zorder=8, bbox=HALO)


def _rate(axes: Axes, run: Run) -> None:
    first, seconds = run.start_ns // 10**9, max(1, int(run.seconds(run.end_ns)) + 1)
    counts = [[run.tally.seconds[first + i, language] for i in range(seconds)] for language in LANGUAGES]
    axes.stackplot(range(seconds), counts, colors=[LANGUAGE[language] for language in LANGUAGES], step="post")
    axes.set_xlim(0, seconds)
    axes.set_ylabel("acquisitions a second")
    axes.set_xlabel("seconds")


def _legend(run: Run, holds: Sequence[Hold]) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [Patch(color=LANGUAGE[name], label=name) for name in LANGUAGES]
    if holds:
        handles.append(Patch(color=GREY, alpha=0.35, label="waits"))
        handles.append(Patch(facecolor="none", edgecolor=FROZEN, hatch="////", label="its process is frozen or dead"))
        handles.append(Line2D([], [], linestyle="", label="told of its loss", **TOLD))
        if any(hold.refused_ns for hold in holds):
            handles.append(Line2D([], [], linestyle="", label="its late write is refused", **REFUSED))
    if run.takeovers:
        handles.append(Line2D([], [], linestyle="", label="a replica took over", **TAKEOVER))
    if len(run.scheduled) > 1:
        handles += [Patch(facecolor=colour, edgecolor=GREY, label=f"{of} epoch") for of, colour in CLASS.items()]
    return handles
