"""The picture of who waited and who held when: one lane per worker, and one of the lock itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402

from colours import FAULT, FROZEN, LANGUAGE  # noqa: E402
from fight import LANGUAGES, NODES, Fault, Fight, Hold, Worker  # noqa: E402

# Drawn to be read at 800 pixels: 8 inches, so that a point of type is 1.4 pixels.
WIDTH_IN, HEIGHT_IN = 8.0, 5.4
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "svg.hashsalt": "redlock",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "hatch.linewidth": 0.8,
}
LANE, WAIT = 0.72, 0.72
LEAST_S = 0.012
"""Shorter holds are drawn this long, or they would not be seen."""

GREY = "#444444"


def draw(fight: Fight, file: Path) -> None:
    """Writes the picture as SVG, or what the name of the file says."""
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
                _node_fault(axes, fight, fault, max(lanes.values()))
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
    axes.broken_barh(waits, (y - WAIT / 2, WAIT), color=colour, alpha=0.22, linewidth=0)
    axes.broken_barh(_bars(fight, holds), (y - LANE / 2, LANE), color=colour, linewidth=0, zorder=3)


def _lock(axes: Axes, fight: Fight) -> None:
    for language in LANGUAGES:
        bars = _bars(fight, fight.of(language))
        axes.broken_barh(bars, (-LANE / 2, LANE), color=LANGUAGE[language], linewidth=0, zorder=3)


def _bars(fight: Fight, holds: Sequence[Hold]) -> list[tuple[float, float]]:
    return [(fight.seconds(hold.since_ns), max(hold.held_s, LEAST_S)) for hold in holds]


def _node_fault(axes: Axes, fight: Fight, fault: Fault, bottom: float) -> None:
    from_s, to_s = fight.seconds(fault.from_ns), fight.seconds(fault.to_ns or fight.end_ns)
    frozen = fault.kind == "node frozen"
    colour = FROZEN if frozen else FAULT
    axes.axvspan(from_s, to_s, color=colour, alpha=0.13, linewidth=0, zorder=0)
    for edge in (from_s, to_s):
        axes.axvline(edge, color=colour, linewidth=0.8, zorder=1)
    what = "frozen" if frozen else "killed,\nback empty"
    axes.text((from_s + to_s) / 2, -0.62, f"{fault.subject}\n{what}", color=colour, ha="center", va="bottom")


def _worker_fault(axes: Axes, fight: Fight, fault: Fault, y: float) -> None:
    assert fault.hold
    from_s, to_s = fight.seconds(fault.from_ns), fight.seconds(fault.to_ns or fight.end_ns)
    killed = fault.kind == "holder killed"
    colour = FAULT if killed else FROZEN
    axes.axvline(from_s, color=colour, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    axes.text(from_s, -0.62, fault.kind.replace(" ", "\n"), color=colour, ha="center", va="bottom")
    end_s = fight.seconds(fight.end_ns) if killed else to_s
    axes.broken_barh(
        [(from_s, end_s - from_s)], (y - LANE / 2, LANE), facecolor="none", edgecolor=colour, hatch="////", linewidth=0,
        zorder=4,
    )
    axes.plot(from_s, y, marker="X", markersize=11, color=FAULT if killed else FROZEN, markeredgecolor="white", zorder=6)
    if fault.hold.end == "lost" and fault.hold.end_ns:
        axes.plot(fight.seconds(fault.hold.end_ns), y, marker="D", markersize=8, color="black", markeredgecolor="white")


def _frame(axes: Axes, fight: Fight, lanes: dict[Worker, float]) -> None:
    end_s = fight.seconds(fight.end_ns)
    axes.set_xlim(0, end_s)
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
    handles.append(Patch(color=GREY, alpha=0.22, label="waits"))
    handles.append(Line2D([], [], marker="X", color=FAULT, linestyle="", markersize=9, label="killed"))
    handles.append(Line2D([], [], marker="D", color="black", linestyle="", markersize=7, label="told of its loss"))
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=9, columnspacing=1.2)
