"""The promises and whether they were kept, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

SHOWN = 5
"""How many complaints of a kind are shown."""


@dataclass(frozen=True)
class Promise:
    """One line of the verdict."""

    what: str
    kept: bool
    text: str


def verdicts(kept: Sequence[Promise]) -> Table:
    """A table of the promises, and whether they were kept."""
    table = tabled("what had to hold", "", "", "")
    table.show_header = False
    for promise in kept:
        verdict = Text("ok", style="green") if promise.kept else Text("BAD", style="bold red")
        table.add_row(promise.what, verdict, promise.text)
    return table


def tabled(title: str, *columns: str) -> Table:
    """An empty table; columns that begin with `>` are figures."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", no_wrap=right)
    return table


def complain(console: Console, what: str, complaints: Sequence[str]) -> None:
    """Prints some of the complaints, if there are any."""
    if not complaints:
        return
    console.print(Text(f"{what}:", style="bold"))
    for complaint in complaints[:SHOWN]:
        console.print(Text(f"  {complaint}"))
    if len(complaints) > SHOWN:
        console.print(Text(f"  and {len(complaints) - SHOWN} more"))
    console.print()


def time_of(seconds: float) -> str:
    """A span of time as people read it."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def number_of(n: int, what: str) -> str:
    """`3 times`, `1 time`."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
