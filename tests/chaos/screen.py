"""The display of a run."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chaos.colours import LANGUAGE
from chaos.live import said
from chaos.run import Run
from chaos.tally import LANGUAGES, Holder

HOLDERS, ACTIVE, EVENTS = 6, 4, 4
"""How many lines of each there are."""

WIDTH = 78


def counts(run: Run) -> str:
    """The run in one line."""
    tally = run.tally
    acquired = ", ".join(f"{language} {tally.acquired[language]}" for language in LANGUAGES)
    bad = len(run.violations) + len(tally.troubles)
    return f"acquisitions: {acquired}; writes: {tally.accepted}, refused {tally.refused}; violations: {bad}"


def screen(run: Run, now_ns: int) -> RenderableType:
    """What the live view shows."""
    blank = Text()
    events = [said(run, note) for note in run.notes[-EVENTS:]]
    body = Group(
        _tally(run),
        blank,
        *_filled([_held(holder, name, now_ns) for name, holder in run.tally.holders.items()], HOLDERS),
        blank,
        *_filled([Text(f"{trouble.kind.name:<18} {trouble.subject}", "red") for trouble in run.active], ACTIVE),
        blank,
        *_filled(events, EVENTS),
    )
    epoch = f"epoch {run.epoch.number + 1} of {len(run.scheduled)}, {run.epoch.of}, {run.phase}" if run.epoch else ""
    return Panel(body, title=f"chaos · {run.seconds(now_ns):.0f} s · {epoch}", width=WIDTH, padding=(0, 2))


def _filled(lines: list[Text], count: int) -> list[Text]:
    return lines[-count:] + [Text()] * (count - len(lines))


def _held(holder: Holder, name: str, now_ns: int) -> Text:
    for_s = max(0, now_ns - holder.since_ns) / 1e9
    client = (f"{holder.client:<16}", LANGUAGE[holder.language])
    return Text.assemble(f"{name:<14} ", client, f" fence {holder.fence}  {for_s:5.2f} s")


def _tally(run: Run) -> Table:
    tally = run.tally
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", "acquired", "denied"):
        table.add_column(column, justify="right" if column else "left")
    table.add_column("")
    bad = len(run.violations) + len(tally.troubles)
    notes = [
        Text(f"writes accepted {tally.accepted}, refused {tally.refused}"),
        Text(f"told of a loss {sum(tally.losses.values())}, extended {tally.extended}"),
        Text(f"violations {bad}", style="bold red" if bad else "green"),
    ]
    for language, note in zip(LANGUAGES, notes, strict=True):
        name = Text(language, style=LANGUAGE[language])
        table.add_row(name, str(tally.acquired[language]), str(tally.denied[language]), note)
    return table
