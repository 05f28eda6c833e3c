"""The display of the fight."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chaos.colours import LANGUAGE
from chaos.live import said
from demo.fight import LANGUAGES, NODES, Fight, Hold, Worker

TICK_S = 0.1
EVENTS = 5
BAR = 30

NODE_STYLE = {"up": "green", "frozen": "cyan", "dead": "red"}
NODE_SIGN = {"up": "●", "frozen": "‖", "dead": "✕"}
STATE_STYLE = {"holding": "bold", "frozen": "cyan", "killed": "red"}


def counts(fight: Fight) -> str:
    """How often each language has acquired."""
    return "acquisitions: " + ", ".join(f"{language} {len(fight.of(language))}" for language in LANGUAGES)


def screen(fight: Fight, now_ns: int) -> RenderableType:
    """What the live view shows."""
    blank = Text()
    latest = fight.notes[-EVENTS:]
    events = [said(fight, note) for note in latest] + [blank] * (EVENTS - len(latest))
    body = Group(
        _nodes(fight), _holder(fight, now_ns), blank, _workers(fight, now_ns), blank, _tally(fight), blank, *events
    )
    return Panel(body, title=f"one lock, {NODES} servers · {fight.seconds(now_ns):.1f} s", width=78, padding=(0, 2))


def _nodes(fight: Fight) -> Text:
    line = Text("nodes   ")
    for i, state in enumerate(fight.nodes, start=1):
        line.append(f"{i} {NODE_SIGN[state]} {state:<9}", style=NODE_STYLE[state])
    return line


def _holder(fight: Fight, now_ns: int) -> Text:
    hold = fight.holder()
    if hold is None or not _worth_naming(hold, now_ns):
        return Text("lock    free, or between two holders", style="dim")
    since_s = (now_ns - hold.since_ns) / 1e9
    name = (hold.worker.name, f"bold {LANGUAGE[hold.worker.language]}")
    return Text.assemble("lock    ", name, f"   fence {hold.fence}   for {since_s:.2f} s")


def _worth_naming(hold: Hold, now_ns: int) -> bool:
    # A frozen holder cannot report that its validity has ended.
    return hold.worker.state != "frozen" or now_ns < hold.valid_until_ns


def _workers(fight: Fight, now_ns: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("worker", width=10)
    table.add_column("face", width=9)
    table.add_column("", width=8)
    table.add_column("since", width=8, justify="right")
    table.add_column("acquisitions", justify="right")
    for worker in fight.workers:
        style = STATE_STYLE.get(worker.state, "dim")
        table.add_row(
            Text(worker.name, style=LANGUAGE[worker.language]),
            worker.face,
            Text(worker.state, style=style),
            _since(worker, now_ns),
            str(worker.acquisitions),
        )
    return table


def _since(worker: Worker, now_ns: int) -> str:
    since_ns = worker.hold.since_ns if worker.hold else worker.asked_ns
    return f"{max(0, now_ns - since_ns) / 1e9:.2f} s" if since_ns else ""


def _tally(fight: Fight) -> Table:
    counts = {language: len(fight.of(language)) for language in LANGUAGES}
    most = max(*counts.values(), 1)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=10)
    table.add_column(width=5, justify="right")
    table.add_column()
    for language, count in counts.items():
        bar = Text("█" * round(BAR * count / most), style=LANGUAGE[language])
        table.add_row(language, str(count), bar)
    return table
