"""The display of a run: a lane for every node, view and worker, which moves to the left as the time passes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chaos.colours import LANGUAGE
from chaos.live import said
from chaos.run import Run
from chaos.tally import LANGUAGES, TICK_NS, held

COLUMNS = 36
"""How many ticks are shown."""

LINES, EVENTS = 21, 5
"""How many lines there are in all, and how many of them are for events at most."""

WIDTH, LANE_WIDTH = 78, 26

TAKEOVER = ("▲", "bold green")
"""How a replica is shown that takes over."""

HELD = "·▁▂▃▄▅▆▇█"
"""For how much of a tick the hands of a worker held locks, from none of it to all of it."""

UP = ("─", "dim green")
STOPPED, DOWN, OTHER = ("‖", "cyan"), ("✕", "red"), ("▪", "yellow")
SIGNS = dict.fromkeys(("freeze", "freeze primary", "freeze sentinel", "worker stopped"), STOPPED)
SIGNS |= dict.fromkeys(("kill", "crash", "restart", "wipe", "power cut", "worker killed"), DOWN)
SIGNS |= dict.fromkeys(("kill primary", "kill sentinel"), DOWN)
"""How troubles are shown; all others have the same sign."""


def counts(run: Run) -> str:
    """The run in one line."""
    return "; ".join(_counts(run))


def screen(run: Run, now_ns: int) -> RenderableType:
    """What the live view shows."""
    lanes = _lanes(run, now_ns)
    lines = [_holder(run, now_ns), *map(Text, _counts(run))]
    count = min(EVENTS, LINES - lanes.row_count - len(lines))
    events = [said(run, note) for note in run.notes[-count:]]
    lines += events + [Text()] * (count - len(events))
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    title = f"{run.title} · {run.seconds(now_ns):.0f} s"
    if run.epoch and len(run.scheduled) > 1:
        title += f" · epoch {run.epoch.number + 1} of {len(run.scheduled)}, {run.epoch.of}, {run.phase}"
    return Panel(Group(lanes, *lines), title=title, width=WIDTH, padding=(0, 2))


def _counts(run: Run) -> tuple[str, str]:
    tally = run.tally
    acquired = ", ".join(f"{language} {tally.acquired[language]}" for language in LANGUAGES)
    bad = len(run.violations) + len(tally.troubles)
    return f"acquisitions: {acquired}", f"writes: {tally.accepted}, refused {tally.refused}; violations: {bad}"


def _holder(run: Run, now_ns: int) -> Text:
    """One of the present holds."""
    name, holder = next(reversed(run.tally.holders.items()), ("", None))
    if holder is None:
        return Text("no lock is held", style="dim")
    client = (holder.client, LANGUAGE[holder.language])
    for_s = max(0, now_ns - holder.since_ns) / 1e9
    return Text.assemble(f"{name}: ", client, f" holds fence {holder.fence} for {for_s:.2f} s")


def _lanes(run: Run, now_ns: int) -> Table:
    newest = now_ns // TICK_NS
    shares, signs = _shares(run, now_ns), _signs(run, newest)
    table = Table.grid(padding=(0, 1))
    table.add_column(width=LANE_WIDTH, no_wrap=True)
    table.add_column(width=COLUMNS, no_wrap=True)
    table.add_column(no_wrap=True, justify="right", width=WIDTH - LANE_WIDTH - COLUMNS - 8)
    struck = {trouble.lane: trouble for trouble in run.active}
    for lane, role in run.lanes.items():
        label, style, count = lane, "", ""
        if role:
            label, style = f"{lane}, {role.language} {role.face}", LANGUAGE[role.language]
            count = str(run.tally.by_lane[lane])
        elif lane in struck:
            label = f"{lane}: {struck[lane].kind.name}"
        cells = Text()
        for tick in range(newest - COLUMNS + 1, newest + 1):
            usual = (HELD[math.ceil(shares[lane, tick] * (len(HELD) - 1))], style) if role else UP
            cells.append(*signs.get((lane, tick), usual))
        table.add_row(Text(label, style), cells, count)
    return table


def _shares(run: Run, now_ns: int) -> dict[tuple[str, int], float]:
    """For how much of each tick the hands of a worker held locks, on average."""
    held_ns = Counter[tuple[str, int]]()
    for worker in run.arena.living():
        for client in worker.holding:
            for tick, so_long_ns in held(worker, client, now_ns):
                held_ns[worker.lane, tick] += so_long_ns
    newest, whole_ns = now_ns // TICK_NS, TICK_NS * run.arena.hands
    shown = [(lane, tick) for lane in run.lanes for tick in range(newest - COLUMNS + 1, newest + 1)]
    return {cell: min(1.0, (held_ns[cell] + run.tally.held_ns[cell]) / whole_ns) for cell in shown}


def _signs(run: Run, newest: int) -> dict[tuple[str, int], tuple[str, str]]:
    """The signs of troubles, by lane and tick."""
    signs = {}
    for lane, name, first, last in _spans(run, newest):
        for tick in range(max(first, newest - COLUMNS + 1), last + 1):
            signs[lane, tick] = SIGNS.get(name, OTHER)
    return signs | {(takeover.lane, takeover.at_ns // TICK_NS): TAKEOVER for takeover in run.takeovers}


def _spans(run: Run, newest: int) -> Iterator[tuple[str, str, int, int]]:
    """The lane, the kind, and the first and the last tick of each trouble that may be shown."""
    for done in reversed(run.done):
        if done.to_ns // TICK_NS <= newest - COLUMNS:
            break
        yield done.trouble.lane, done.trouble.kind.name, done.from_ns // TICK_NS, done.to_ns // TICK_NS
    for trouble, from_ns in run.active.items():
        yield trouble.lane, trouble.kind.name, from_ns // TICK_NS, newest
