"""The result of a run, in words and figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.planted import PLANTED
from chaos.run import Run
from chaos.schedule import kinds
from chaos.tally import LANGUAGES

JUDGED = {
    "fences": r"was given twice|got the smaller fence|bridged|won when it was over|malformed",
    "exclusion": r"two holders at once|too soon",
    "told in time": r"told late|never told|revived",
    "keys gone": r"leaked",
    "calls come back": r"stuck",
    "store": r"stale write|refused|lost update|miscounted",
}
"""The promises, and the checker's words for a violation of each."""

SHOWN = 5
"""How many complaints of a kind are shown."""


@dataclass(frozen=True)
class Promise:
    """One line of the verdict."""

    what: str
    kept: bool
    text: str


def promises(run: Run) -> list[Promise]:
    """Everything that must hold for the run to succeed."""
    tally = run.tally
    sorted_ = {what: [line for line in run.violations if re.search(said, line)] for what, said in JUDGED.items()}
    other = len(run.violations) - sum(map(len, sorted_.values()))
    silent = [language for language in LANGUAGES if not tally.acquired[language]]
    expected = kinds(run.scheduled)
    missing = expected - {done.trouble.kind.name for done in run.done}
    kept = [Promise(what, not lines, f"{len(lines)} violations") for what, lines in sorted_.items()]
    excused = f"{kept[1].text}; {run.excused} excused, {run.arena.excuse}"
    kept[1] = Promise(kept[1].what, kept[1].kept, excused)
    writes = f"{tally.accepted} writes accepted, {tally.refused} refused, {tally.lost_updates} lost"
    kept[-1] = Promise("store", kept[-1].kept and not tally.lost_updates, f"{kept[-1].text}; {writes}")
    return [
        *kept,
        Promise("history", not other and bool(run.summaries), f"{other} other violations"),
        Promise("served", run.served == run.waited, f"{run.served} of {run.waited}, in {len(run.summaries)} epochs"),
        Promise("no early loss", not run.early, f"{len(run.early)} told lost without a cause"),
        Promise("workers", not tally.troubles, f"{len(tally.troubles)} troubles"),
        Promise("every language acquired", not silent, "none of " + ", ".join(silent) if silent else "all three"),
        *_shapes(run),
        Promise(
            "every kind of trouble",
            not missing or len(run.summaries) < len(run.scheduled),
            f"{len(expected) - len(missing)} of {len(expected)} kinds, {len(run.done)} times",
        ),
    ]


def _shapes(run: Run) -> Iterator[Promise]:
    """Whether every language has acquired every shape, where there is more than one."""
    if len(run.shapes) > 1:
        unused = [
            f"{what} in {each}" for what in run.shapes for each in LANGUAGES if not run.tally.by_shape[what, each]
        ]
        yield Promise("every shape acquired", not unused, "no " + ", ".join(unused) if unused else "in all languages")


def broken(run: Run) -> list[str]:
    """The promises that were not kept."""
    return [promise.what for promise in promises(run) if not promise.kept]


def write(console: Console, run: Run) -> bool:
    """Prints the report; `True` if every promise held."""
    console.print()
    console.print(_acquisitions(run))
    kept = promises(run)
    table = _tabled("what had to hold", "", "", "")
    table.show_header = False
    for promise in kept:
        verdict = Text("ok", style="green") if promise.kept else Text("BAD", style="bold red")
        table.add_row(promise.what, verdict, promise.text)
    console.print(table)
    _complain(console, "the checker", run.violations)
    _complain(console, "trouble", run.tally.troubles)
    _complain(console, "told lost without a cause", run.early)
    notes = Table.grid(padding=(0, 2))
    notes.add_row("  errors", _counted(run.tally.errors))
    notes.add_row("  losses", _counted(run.tally.losses))
    for what, remark in run.remarks().items():
        notes.add_row(f"  {what}", Text(remark))
    if run.arena.fault:
        notes.add_row("  planted", PLANTED[run.arena.fault].what)
    notes.add_row("  written", Text(str(run.out), no_wrap=True, overflow="fold"))
    console.print(notes, highlight=False)
    good = all(promise.kept for promise in kept)
    text = "OK: every promise was kept." if good else "FAILED: see BAD above."
    if run.interrupted:
        text += " Interrupted: judged are the epochs before that."
    console.print(Text(f"\n{text}", style="bold green" if good else "bold red"))
    return good


def _acquisitions(run: Run) -> Table:
    tally = run.tally
    seconds = run.seconds(run.end_ns)
    title = f"{sum(tally.acquired.values())} acquisitions in {seconds:.0f} s, {len(run.summaries)} epochs"
    table = _tabled(title, "", ">acquired", ">a second", ">denied")
    for language, colour in LANGUAGES.items():
        count = tally.acquired[language]
        name = Text(language, style=f"bold {colour}")
        table.add_row(name, str(count), f"{count / seconds:.0f}", str(tally.denied[language]))
        for face, by_face in sorted(tally.by_face.items()):
            if face.startswith(language) and by_face != count:
                table.add_row(f"  {face.split()[-1]}", str(by_face), f"{by_face / seconds:.0f}", "", style="dim")
    for shape in run.shapes:
        count = sum(tally.by_shape[shape, language] for language in LANGUAGES)
        table.add_row(f"shape {shape}", str(count), f"{count / seconds:.0f}", "", style="dim")
    table.add_row("longest wait", f"{tally.longest_wait_ns / 1e9:.2f} s", "", "", style="dim")
    return table


def _tabled(title: str, *columns: str) -> Table:
    """An empty table; columns that begin with `>` are figures."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", no_wrap=right)
    return table


def _complain(console: Console, what: str, complaints: Sequence[str]) -> None:
    """Prints some of the complaints, if there are any."""
    if not complaints:
        return
    console.print(Text(f"{what}:", style="bold"))
    for complaint in complaints[:SHOWN]:
        console.print(Text(f"  {complaint}"))
    if len(complaints) > SHOWN:
        console.print(Text(f"  and {len(complaints) - SHOWN} more"))
    console.print()


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.most_common()) or "none"
