"""The result of the fight, in words and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.checker import Judgement
from chaos.colours import LANGUAGE
from chaos.verdict import Promise, complain, number_of, tabled, time_of, verdicts
from demo.fight import LANGUAGES, NODES, TTL_S, Fault, Fight, Hold, mean

SHOWS = (
    "One lock shared by three languages stays with one holder at a time while nodes hang or die and holders are "
    "frozen or killed, and no two acquisitions have fences out of order."
)
SHOWS_NOT = (
    "What several machines would add (clocks that jump, networks that split), and more than two nodes of five in "
    "trouble at once. A run like this can find a mistake; it cannot prove that there is none."
)


def promises(fight: Fight, judgement: Judgement) -> list[Promise]:
    """Everything that must hold for the demo to succeed."""
    counted = sum(hold.counted for hold in fight.holds)
    silent = [language for language in LANGUAGES if not fight.of(language)]
    killed = sum(worker.state == "killed" for worker in fight.workers)
    ended = len(fight.workers) - killed
    fences = [hold.fence for hold in fight.holds]
    ends = f"{ended} to the end, {killed} killed; {number_of(len(fight.troubles), 'trouble')}"
    order = f"{len(fences)} fences, {min(fences)} to {max(fences)}" if fences else "no fence at all"
    return [
        Promise("one holder, rising fences", judgement.good, number_of(len(judgement.violations), "violation")),
        Promise("fences, each given once", len(set(fences)) == len(fences) > 0, order),
        Promise("no update lost", fight.count == counted, f"the file counts {fight.count}, its writers {counted}"),
        Promise("every language acquired", not silent, "none of " + ", ".join(silent) if silent else "all three"),
        Promise("workers", not fight.troubles, ends),
    ]


def write(console: Console, fight: Fight, judgement: Judgement, files: Sequence[Path]) -> bool:
    """Prints the report; `True` if every promise held."""
    console.print()
    console.print(_acquisitions(fight))
    if fight.faults:
        console.print(_faults(fight))
    kept = promises(fight, judgement)
    console.print(verdicts(kept))
    complain(console, "the checker", judgement.violations)
    complain(console, "trouble", fight.troubles)
    complain(console, "found no quorum in time (allowed)", fight.refused)
    notes = Table.grid(padding=(0, 2))
    notes.add_row("  checker", judgement.summary)
    notes.add_row("  shown", SHOWS)
    notes.add_row("  not shown", SHOWS_NOT)
    notes.add_row("  written", Text("\n".join(str(file) for file in files), no_wrap=True, overflow="fold"))
    console.print(notes, highlight=False)
    good = all(promise.kept for promise in kept)
    text = "OK: one holder at a time, fences in order, no update lost." if good else "FAILED: see BAD above."
    console.print(Text(f"\n{text}", style="bold green" if good else "bold red"))
    return good


def outcome(fight: Fight, fault: Fault) -> str:
    """The result of a fault, in one sentence."""
    hold = fault.hold
    match fault.kind:
        case "holder killed" if hold:
            return f"{_next(fight, hold, fault.from_ns)}, {TTL_S:g} s being the ttl"
        case "holder frozen" if hold:
            told = f"it woke up, was told lost ({hold.reason})" if hold.end == "lost" else f"its lock was {hold.end}"
            wrote = "and wrote all the same" if hold.counted else "and wrote nothing"
            return f"{_next(fight, hold, fault.from_ns)}; {told} {wrote}"
        case "node killed" if kept := _held_across(fight, fault):
            renewed = f"renewed {number_of(kept.renewals, 'time')}"
            if kept.end != "released":
                return f"happened under {kept.worker.name}, whose lock was {kept.end}"
            return f"came back empty under {kept.worker.name}, which held the lock for {kept.held_s:.1f} s, {renewed}"
    meanwhile = fight.during(fault.from_ns, fault.to_ns or fight.end_ns)
    longest = max((hold.wait_s for hold in meanwhile), default=0.0)
    return f"{number_of(len(meanwhile), 'acquisition')} meanwhile, longest wait {time_of(longest)}"


def _next(fight: Fight, hold: Hold, from_ns: int) -> str:
    following = fight.after(hold)
    if following is None:
        return "nobody had the lock afterwards"
    return f"{following.worker.name} had it {(following.since_ns - from_ns) / 1e9:.1f} s later"


def _held_across(fight: Fight, fault: Fault) -> Hold | None:
    to_ns = fault.to_ns or fight.end_ns
    return next((h for h in fight.holds if h.since_ns <= fault.from_ns and (h.end_ns or fight.end_ns) >= to_ns), None)


def _acquisitions(fight: Fight) -> Table:
    workers = f"{len(fight.workers)} processes, one lock on {NODES} servers, {fight.seconds(fight.end_ns):.1f} s"
    table = tabled(workers, "", ">acquisitions", ">mean hold", ">longest", ">mean wait", ">longest")
    for language in LANGUAGES:
        table.add_row(Text(language, style=f"bold {LANGUAGE[language]}"), *_figures(fight.of(language)))
    table.add_row("all", *_figures(fight.holds), style="dim")
    return table


def _figures(holds: Sequence[Hold]) -> list[str]:
    held, waited = [hold.held_s for hold in holds], [hold.wait_s for hold in holds]
    times = mean(held), max(held, default=0.0), mean(waited), max(waited, default=0.0)
    return [str(len(holds)), *map(time_of, times)]


def _faults(fight: Fight) -> Table:
    table = tabled("what was done to them", ">from", ">to", "", "what came of it")
    for fault in fight.faults:
        to = f"{fight.seconds(fault.to_ns):.1f} s" if fault.to_ns else ""
        kind = fault.kind.split()[-1]
        text = f"{fault.subject} {kind}" + (" holding" if fault.hold else "")
        table.add_row(f"{fight.seconds(fault.from_ns):.1f} s", to, text, outcome(fight, fault))
    return table
