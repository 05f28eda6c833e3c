"""The result of a run, in words and figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.colours import LANGUAGE
from chaos.planted import PLANTED
from chaos.run import Run
from chaos.schedule import kinds
from chaos.tally import LANGUAGES
from chaos.verdict import Promise, complain, number_of, tabled, time_of, verdicts

JUDGED = {
    "fences": r"was given twice|got the smaller fence|bridged|won when it was over|malformed",
    "exclusion": r"two holders at once|granted in quarantine|too soon",
    "told in time": r"told late|never told|revived",
    "keys gone": r"leaked",
    "calls come back": r"stuck",
    "store": r"stale write|refused|lost update|miscounted",
}
"""The promises, and the checker's words for a violation of each."""


def promises(run: Run) -> list[Promise]:
    """Everything that must hold for the run to succeed."""
    tally = run.tally
    sorted_ = {what: [line for line in run.violations if re.search(said, line)] for what, said in JUDGED.items()}
    other = len(run.violations) - sum(map(len, sorted_.values()))
    silent = [language for language in LANGUAGES if not tally.acquired[language]]
    expected = kinds(run.scheduled)
    missing = expected - {done.trouble.kind.name for done in run.done}
    kept = [Promise(what, not lines, number_of(len(lines), "violation")) for what, lines in sorted_.items()]
    excused = f"{kept[1].text}; {run.excused} excused, {run.arena.excuse}"
    kept[1] = Promise(kept[1].what, kept[1].kept, excused)
    writes = f"{tally.accepted} writes accepted, {tally.refused} refused, {tally.lost_updates} lost"
    kept[-1] = Promise("store", kept[-1].kept and not tally.lost_updates, f"{kept[-1].text}; {writes}")
    compared = f"{len(tally.metrics)} processes, {number_of(len(run.miscounted), 'difference')} from their history"
    waited = f"{run.served} of {run.waited}, after {number_of(len(run.epochs), 'epoch')}"
    return [
        *kept,
        Promise("history", not other and bool(run.summaries), number_of(other, "other violation")),
        Promise("served", run.served == run.waited, waited),
        Promise("no early loss", not run.early, f"{len(run.early)} told lost without a cause"),
        Promise("metrics", not run.miscounted, compared),
        Promise("workers", not tally.troubles, number_of(len(tally.troubles), "trouble")),
        Promise("every language acquired", not silent, "none of " + ", ".join(silent) if silent else "all three"),
        *_shapes(run),
        Promise(
            "every kind of trouble",
            not missing or len(run.epochs) < len(run.scheduled),
            f"{len(expected) - len(missing)} of {len(expected)} kinds, {number_of(len(run.done), 'time')}",
        ),
    ]


def _shapes(run: Run) -> Iterator[Promise]:
    """Whether every language has acquired every shape, where there is more than one."""
    if len(run.shapes) > 1:
        unused = [
            f"{what} in {each}" for what in run.shapes for each in LANGUAGES if not run.tally.by_shape[what, each]
        ]
        yield Promise("every shape acquired", not unused, "no " + ", ".join(unused) if unused else "in all languages")
    if "hand" in run.ways:
        came = _counted(Counter(code for _, code in run.tally.attached.elements()))
        never = [each for each in LANGUAGES if not run.tally.attached[each, "released"]]
        yield Promise("every language attached", not never, "none in " + ", ".join(never) if never else came)


def broken(run: Run) -> list[str]:
    """The promises that were not kept."""
    return [promise.what for promise in promises(run) if not promise.kept]


def tables(run: Run) -> list[Table]:
    """The figures of a run of chaos."""
    return [_acquisitions(run), _troubles(run)]


def write(
    console: Console, run: Run, figures: Sequence[Table], notes: Mapping[str, str], files: Sequence[Path]
) -> bool:
    """Prints the report; `True` if every promise held."""
    console.print()
    for table in figures:
        console.print(table)
    kept = promises(run)
    console.print(verdicts(kept))
    complain(console, "the checker", run.violations)
    complain(console, "trouble", run.tally.troubles)
    complain(console, "told lost without a cause", run.early)
    complain(console, "the metrics", run.miscounted)
    table = Table.grid(padding=(0, 2))
    table.add_row("  errors", _counted(run.tally.errors))
    table.add_row("  losses", _counted(run.tally.losses))
    for what, note in notes.items():
        table.add_row(f"  {what}", Text(note))
    if run.arena.fault:
        table.add_row("  planted", PLANTED[run.arena.fault].what)
    table.add_row("  written", Text("\n".join(map(str, files)), no_wrap=True, overflow="fold"))
    console.print(table, highlight=False)
    good = all(promise.kept for promise in kept)
    text = "OK: every promise was kept." if good else "FAILED: see BAD above."
    if run.interrupted:
        text += " Interrupted: judged is what there was."
    console.print(Text(f"\n{text}", style="bold green" if good else "bold red"))
    return good


def _acquisitions(run: Run) -> Table:
    tally = run.tally
    seconds = run.seconds(run.end_ns)
    title = f"{sum(tally.acquired.values())} acquisitions in {seconds:.0f} s, {len(run.epochs)} epochs"
    table = tabled(title, "", ">acquired", ">a second", ">denied")
    for language in LANGUAGES:
        count = tally.acquired[language]
        name = Text(language, style=f"bold {LANGUAGE[language]}")
        table.add_row(name, str(count), f"{count / seconds:.0f}", str(tally.denied[language]))
        for face, by_face in sorted(tally.by_face.items()):
            if face.startswith(language) and by_face != count:
                table.add_row(f"  {face.split()[-1]}", str(by_face), f"{by_face / seconds:.0f}", "", style="dim")
    for shape in run.shapes:
        count = sum(tally.by_shape[shape, language] for language in LANGUAGES)
        table.add_row(f"shape {shape}", str(count), f"{count / seconds:.0f}", "", style="dim")
    table.add_row("longest wait", time_of(tally.longest_wait_ns / 1e9), "", "", style="dim")
    return table


def _troubles(run: Run) -> Table:
    times = Counter(done.trouble.kind.name for done in run.done)
    table = tabled("what was done to them", *["", ">times"] * 3)
    rows = [f"{kind.name}\0{times[kind.name]}" for kind in run.arena.plan.kinds]
    third = -(-len(rows) // 3)
    rows += ["\0"] * (3 * third - len(rows))
    for i in range(third):
        table.add_row(*(cell for row in rows[i::third] for cell in row.split("\0")))
    return table


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in counts.most_common()) or "none"
