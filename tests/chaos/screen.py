"""Shows a run while it continues: on a terminal a lane for each subject, and plain lines elsewhere."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chaos.run import Note, Run
from chaos.tally import LANGUAGES
from support.clock import now_ns

PLAIN_EVERY_S = 2.0
"""How often plain lines have the counts."""

COLUMNS = 36
"""How many looks at the run are shown beside each other, each at a lane."""

LINES, EVENTS = 21, 5
"""How many lines there are in all, and how many of them are for events at most."""

WIDTH, LANE_WIDTH = 78, 26

HELD = "·▁▂▃▄▅▆▇█"
"""How many of the hands of a worker hold locks, from none of them to all."""

UP, TAKEOVER = ("─", "dim green"), ("▲", "bold green")
STOPPED, DOWN, OTHER = ("‖", "cyan"), ("✕", "red"), ("▪", "yellow")
SIGNS = dict.fromkeys(("freeze", "freeze primary", "freeze sentinel", "worker stopped"), STOPPED)
SIGNS |= dict.fromkeys(("kill", "crash", "restart", "wipe", "power cut", "worker killed"), DOWN)
SIGNS |= dict.fromkeys(("kill primary", "kill sentinel"), DOWN)
"""How troubles are shown; all others have the same sign."""


@contextmanager
def showing(console: Console, run: Run) -> Iterator[None]:
    """Shows the run for the block."""
    if console.is_terminal and not console.is_dumb_terminal:
        screen = Screen(run)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            run.show = lambda: live.update(screen.draw(), refresh=True)
            yield
        # The events stay on the screen, above the report.
        for note in run.notes:
            console.print(said(run, note), highlight=False)
    else:
        plain = Plain(console, run)
        run.show = plain.show
        yield
        plain.tell()


class Plain:
    """A line for each event, and one in between, so that silence means something."""

    def __init__(self, console: Console, run: Run) -> None:
        self._console, self._run = console, run
        self._told = 0
        self._next_s = PLAIN_EVERY_S

    def show(self) -> None:
        """Prints what is new."""
        self.tell()
        at_ns = now_ns()
        if self._run.seconds(at_ns) >= self._next_s:
            self._print(Note(at_ns, "; ".join(counts(self._run))))
            self._next_s += PLAIN_EVERY_S

    def tell(self) -> None:
        """Prints the events since the last time."""
        new = self._run.notes[self._told :]
        self._told += len(new)
        for note in new:
            self._print(note)

    def _print(self, note: Note) -> None:
        self._console.print(said(self._run, note), highlight=False, soft_wrap=True)
        # A reader behind a pipe wants each line at once.
        self._console.file.flush()


class Screen:
    """A lane for every node, view and worker, which moves to the left with each look at the run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._cells = {lane: deque([(" ", "")] * COLUMNS, COLUMNS) for lane in run.lanes}
        self._done = self._takeovers = 0

    def draw(self) -> RenderableType:
        """Looks at the run, and returns what is shown."""
        run, at_ns = self._run, now_ns()
        lanes = self._lanes()
        lines = [Text(text) for text in counts(run)]
        count = min(EVENTS, LINES - lanes.row_count - len(lines))
        lines += [said(run, note) for note in run.notes[-count:]]
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        title = f"{run.title} · {run.seconds(at_ns):.0f} s"
        if run.epoch and len(run.scheduled) > 1:
            title += f" · epoch {run.epoch.number + 1} of {len(run.scheduled)}, {run.epoch.of}, {run.phase}"
        return Panel(Group(lanes, *lines), title=title, width=WIDTH, padding=(0, 2))

    def _lanes(self) -> Table:
        run = self._run
        signs = self._signs()
        holding = {worker.lane: len(worker.holding) / run.arena.hands for worker in run.arena.living()}
        table = Table.grid(padding=(0, 1))
        table.add_column(width=LANE_WIDTH, no_wrap=True)
        table.add_column(width=COLUMNS, no_wrap=True)
        table.add_column(no_wrap=True, justify="right", width=WIDTH - LANE_WIDTH - COLUMNS - 8)
        struck = {trouble.lane: trouble for trouble in run.active}
        for lane, role in run.lanes.items():
            label, style, count, usual = lane, "", "", UP
            if role:
                label, style = f"{lane}, {role.language} {role.face}", LANGUAGES[role.language]
                count = str(run.tally.by_lane[lane])
                usual = HELD[math.ceil(min(1, holding.get(lane, 0)) * (len(HELD) - 1))], style
            elif lane in struck:
                label = f"{lane}: {struck[lane].kind.name}"
            self._cells[lane].append(signs.get(lane, usual))
            table.add_row(Text(label, style), Text.assemble(*self._cells[lane]), count)
        return table

    def _signs(self) -> dict[str, tuple[str, str]]:
        """The signs of the troubles since the last look, by lane."""
        run = self._run
        troubles = [*(done.trouble for done in run.done[self._done :]), *run.active]
        signs = {trouble.lane: SIGNS.get(trouble.kind.name, OTHER) for trouble in troubles}
        signs |= dict.fromkeys((takeover.lane for takeover in run.takeovers[self._takeovers :]), TAKEOVER)
        self._done, self._takeovers = len(run.done), len(run.takeovers)
        return signs


def counts(run: Run) -> tuple[str, str]:
    """The run in two lines."""
    tally = run.tally
    acquired = ", ".join(f"{language} {tally.acquired[language]}" for language in LANGUAGES)
    bad = len(run.violations) + len(tally.troubles)
    return f"acquisitions: {acquired}", f"writes: {tally.accepted}, refused {tally.refused}; violations: {bad}"


def said(run: Run, note: Note) -> Text:
    """One line for an event."""
    return Text.assemble((f"{run.seconds(note.at_ns):6.1f} s  ", "dim"), note.text)
