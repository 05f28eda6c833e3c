"""The picture of who waited and who held when: one lane per worker, and one of the lock itself."""

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
from demo.fight import LANGUAGES, NODES, Fault, Fight, Hold, Worker

# Drawn to be read at 800 pixels: 8 inches, so that a point of type is 1.4 pixels.
WIDTH_IN, HEIGHT_IN = 8.0, 5.6
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "svg.hashsalt": "redlock",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "hatch.linewidth": 0.8,
}
LANE, WAIT = 0.74, 0.26
LEAST_S = 0.012
"""Shorter holds are drawn this long, or they would not be seen."""

Mark = dict[str, Any]
KILLED: Mark = {"marker": "X", "markersize": 11, "color": FAULT, "markeredgecolor": "white"}
STOPPED: Mark = {"marker": "s", "markersize": 9, "color": "white", "markeredgecolor": FROZEN, "markeredgewidth": 2}
TOLD: Mark = {"marker": "D", "markersize": 9, "color": "black", "markeredgecolor": "white"}

LABEL, LABEL_ROW, LABEL_SHARE = -0.62, 0.85, 0.165
"""Where the names of the faults stand above the lanes, the next row of them, and how much of the width one takes."""

NAMES = {
    "node frozen": "\nfrozen",
    "node killed": " dead,\nback empty",
    "holder killed": " killed,\nits ttl runs out",
    "holder frozen": " frozen,\nits ttl runs out",
}

GREY = "#444444"


def draw(fight: Fight, file: Path) -> None:
    """Writes the picture, as SVG or in the format of the file's name."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        axes = figure.add_subplot()
        lanes = _lanes(fight)
        for worker, y in lanes.items():
            _lane(axes, fight, worker, y)
        _lock(axes, fight)
        for fault in fight.faults:
            if fault.hold:
                _worker_fault(axes, fight, fault, lanes[fault.hold.worker])
            else:
                _node_fault(axes, fight, fault)
        _name_faults(axes, fight)
        _frame(axes, fight, lanes)
        _legend(figure, fight)
        metadata = {"Date": None} if file.suffix == ".svg" else None
        figure.savefig(file, metadata=metadata, dpi=100)


def _lanes(fight: Fight) -> dict[Worker, float]:
    """Where each lane is: the lock at 0, then the workers by language with a gap between two of them."""
    lanes, y = {}, 1.3
    for language in LANGUAGES:
        for worker in (worker for worker in fight.workers if worker.language == language):
            lanes[worker] = y
            y += 1.0
        y += 0.25
    return lanes


def _lane(axes: Axes, fight: Fight, worker: Worker, y: float) -> None:
    colour = LANGUAGE[worker.language]
    holds = [hold for hold in fight.holds if hold.worker is worker]
    waits = [(fight.seconds(hold.asked_ns), hold.wait_s) for hold in holds]
    axes.broken_barh(waits, (y - WAIT / 2, WAIT), color=colour, alpha=0.35, linewidth=0)
    axes.broken_barh(_bars(fight, holds), (y - LANE / 2, LANE), color=colour, linewidth=0, zorder=3)


def _lock(axes: Axes, fight: Fight) -> None:
    for language in LANGUAGES:
        bars = _bars(fight, fight.of(language))
        axes.broken_barh(bars, (-LANE / 2, LANE), color=LANGUAGE[language], linewidth=0, zorder=3)


def _bars(fight: Fight, holds: Sequence[Hold]) -> list[tuple[float, float]]:
    return [(fight.seconds(hold.since_ns), max(hold.held_s, LEAST_S)) for hold in holds]


def _node_fault(axes: Axes, fight: Fight, fault: Fault) -> None:
    from_s, to_s = fight.seconds(fault.from_ns), fight.seconds(fault.to_ns or fight.end_ns)
    colour = _colour(fault)
    axes.axvspan(from_s, to_s, color=colour, alpha=0.13, linewidth=0, zorder=0)
    for edge in (from_s, to_s):
        axes.axvline(edge, color=colour, linewidth=0.8, zorder=1)


def _worker_fault(axes: Axes, fight: Fight, fault: Fault, y: float) -> None:
    assert fault.hold
    from_s, to_s = fight.seconds(fault.from_ns), fight.seconds(fault.to_ns or fight.end_ns)
    killed = fault.kind == "holder killed"
    colour = _colour(fault)
    gone_s = fight.seconds(fight.end_ns) if killed else to_s
    axes.broken_barh(
        [(from_s, gone_s - from_s)],
        (y - LANE / 2, LANE),
        facecolor="none",
        edgecolor=colour,
        hatch="////",
        linewidth=0,
        zorder=2,
    )
    axes.plot([from_s, from_s], [LABEL, y], color=colour, linewidth=1, linestyle=(0, (3, 2)), zorder=4)
    axes.plot(from_s, y, zorder=6, **(KILLED if killed else STOPPED))
    if fault.hold.end == "lost" and fault.hold.end_ns:
        told_s = fight.seconds(fault.hold.end_ns)
        axes.plot(told_s, y, zorder=6, **TOLD)


def _name_faults(axes: Axes, fight: Fight) -> None:
    """Writes the name of each fault above it; names that come too close together go to more rows."""
    taken: list[float] = []
    for fault in fight.faults:
        from_s, to_s = fight.seconds(fault.from_ns), fight.seconds(fault.to_ns or fight.end_ns)
        x = from_s if fault.hold else (from_s + to_s) / 2
        row = next((i for i, until_s in enumerate(taken) if until_s <= x), len(taken))
        taken[row:] = [x + LABEL_SHARE * _end_s(fight), *taken[row + 1 :]]
        text = fault.subject + NAMES[fault.kind]
        y, ha = LABEL - row * LABEL_ROW, "left" if fault.hold else "center"
        axes.text(x, y, text, color=_colour(fault), ha=ha, va="bottom", linespacing=1.1)


def _colour(fault: Fault) -> str:
    return FROZEN if fault.kind.endswith("frozen") else FAULT


def _end_s(fight: Fight) -> float:
    return max(fight.seconds(fight.end_ns), 1.0)


def _frame(axes: Axes, fight: Fight, lanes: dict[Worker, float]) -> None:
    axes.set_xlim(0, _end_s(fight))
    axes.set_ylim(max(lanes.values()) + 0.6, -0.6)
    axes.set_yticks([0, *lanes.values()], ["the lock", *(f"{w.name}\n{w.face}" for w in lanes)])
    for label, worker in zip(axes.get_yticklabels()[1:], lanes, strict=True):
        label.set_color(LANGUAGE[worker.language])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("seconds")
    axes.axhline(0.62, color=GREY, linewidth=0.8)


def _legend(figure: Figure, fight: Fight) -> None:
    figure.suptitle(f"Who held the lock: {len(fight.workers)} processes, {NODES} servers", fontsize=13, weight="bold")
    handles: list[Patch | Line2D] = [Patch(color=LANGUAGE[name], label=f"{name} holds") for name in LANGUAGES]
    handles.append(Patch(color=GREY, alpha=0.35, label="waits"))
    for mark, label in ((KILLED, "killed"), (STOPPED, "frozen"), (TOLD, "told of its loss")):
        handles.append(Line2D([], [], linestyle="", label=label, **mark))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
