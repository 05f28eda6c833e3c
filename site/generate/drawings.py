"""Draws recorded runs as SVG in the page, in the colours of the page, so that it can be read in light and dark mode."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Run = dict[str, Any]

WIDTH, NAMES = 760, 118
"""The width of a drawing, and of the names at its left."""

ROW, BAR = 34, 18

DAWN = 1_750_000_000_000_000
"""The wall clock at the start of every run, which fences begin with."""

TROUBLES = {
    "nothing": ("Nothing goes wrong", "The workers take turns."),
    "pause-holder": (
        "The holder is paused",
        "Its lock expires, and another worker gets it with a larger fence. The first one goes on in the middle of a "
        "write, and the store refuses it.",
    ),
    "kill-holder": ("The holder is killed", "The lock is not released. It expires after the ttl."),
    "freeze-node": (
        "A node is frozen",
        "The only node does not answer. The lock is lost when its validity ends, and can be acquired again when the "
        "node is back.",
        "The other four decide, and the workers do not notice.",
    ),
    "restart-node": (
        "A node restarts without its data",
        "It has forgotten who holds the lock. The holder is notified, and the lock cannot be acquired until the "
        "old one would have expired.",
        "The other four have the lock. The restarted node gets the key back.",
    ),
    "freeze-most": (
        "Three of five nodes are frozen",
        "Without a quorum, the lock cannot be acquired. The holder is notified when its validity ends, although the "
        "servers do not answer.",
    ),
    "restart-most": (
        "Three of five nodes restart without their data",
        "A quorum has forgotten the lock. The holder is notified, and the lock cannot be acquired until the "
        "old one would have expired.",
    ),
}
"""What goes wrong in the runs: a title, and what is seen, with one node and with five if that differs."""


def fence(number: int) -> str:
    """A fence without what all of a run begin with."""
    return f"{(number - DAWN) // 1000:,}".replace(",", " ")


@dataclass
class Canvas:
    """Parts of an SVG."""

    height: float
    title: str
    scale: Callable[[float], float]

    def __post_init__(self) -> None:
        self.parts: list[str] = []

    def bar(self, t0: float, t1: float, y: float, kind: str, height: float = BAR) -> None:
        x0, x1 = self.scale(t0), self.scale(t1)
        width, top = max(x1 - x0, 1.5), y - height / 2
        self.parts.append(
            f'<rect class="{kind}" x="{x0:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" rx="2"/>'
        )

    def line(self, t0: float, y0: float, t1: float, y1: float, kind: str) -> None:
        x0, x1 = self.scale(t0), self.scale(t1)
        self.parts.append(f'<line class="{kind}" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"/>')

    def dot(self, t: float, y: float, kind: str, r: float = 4) -> None:
        self.parts.append(f'<circle class="{kind}" cx="{self.scale(t):.1f}" cy="{y:.1f}" r="{r}"/>')

    def cross(self, t: float, y: float) -> None:
        x, r = self.scale(t), 5
        self.parts.append(
            f'<path class="bad-line" d="M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}m{-2 * r} 0l{2 * r} {-2 * r}"/>'
        )

    def word(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        kind = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>')

    def at(self, t: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        self.word(self.scale(t), y, text, kind, anchor)

    def svg(self, about: str) -> str:
        head = (
            f'<svg class="drawing" viewBox="0 0 {WIDTH} {self.height:.0f}" role="img" data-search-exclude '
            'xmlns="http://www.w3.org/2000/svg" '
            f'aria-label="{html.escape(self.title)}. {html.escape(about)}">'
        )
        return head + "".join(self.parts) + "</svg>"


def figure(svg: str, caption: str) -> str:
    """A drawing with what it shows, as HTML without empty lines."""
    return f'<figure class="drawn" markdown="0">{svg}<figcaption>{html.escape(caption)}</figcaption></figure>'


class Recordings:
    """The recorded runs, and what is made of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, name: str) -> Run:
        loaded: Run = json.loads((self.directory / f"{name}.json").read_text(encoding="utf-8"))
        return loaded

    def drawing(self, name: str) -> str:
        """A drawing by its name."""
        if name.startswith("round"):
            return self._round(name)
        wanted = {"takeover": ("pause-holder-1", 8_000), "restart": ("restart-node-1", 8_000)}[name]
        run = self.run(wanted[0])
        title, *told = TROUBLES[run["trouble"]]
        return figure(timeline(run, title, until=wanted[1], nodes=True), f"{title}. {told[0]}")

    def stories(self) -> str:
        """What happens in every run, drawn and told."""
        parts = []
        for trouble, (title, *told) in TROUBLES.items():
            parts.append(f"### {title}\n")
            for count in (1, 5):
                if not (self.directory / f"{trouble}-{count}.json").is_file():
                    continue
                run = self.run(f"{trouble}-{count}")
                nodes = "One node" if count == 1 else "Five nodes"
                about = told[-1] if count == 5 else told[0]
                parts.append(f"**{nodes}.** {about}\n")
                parts.append(figure(timeline(run, f"{title}, {nodes.lower()}", until=14_000, nodes=True), ""))
                parts.append('\n??? note "In words"\n')
                parts += [f"    - {line}" for line in _told(run)]
                parts.append("")
        return "\n".join(parts).replace("<figcaption></figcaption>", "")

    def _round(self, name: str) -> str:
        run = self.run(name)
        nodes, events = run["nodes"], run["events"]
        start = events[0]["t"]
        end: float = max(event["t"] for event in events) - start
        won = next(event["t"] for event in events if event["e"] == "won") - start

        def scale(t: float) -> float:
            return NAMES + 20 + (WIDTH - NAMES - 140) * t / (end * 1.25)

        canvas = Canvas(ROW * (nodes + 1) + 46, "A round", scale)
        rows = [40 + ROW * (number + 1) for number in range(nodes)]
        canvas.word(8, 44, "worker A", "name")
        canvas.line(0, 40, end * 1.25, 40, "rail")
        asked: dict[int, float] = {}
        frozen = set(range(nodes)) - {event["n"] for event in events if event["e"] == "ran"}
        quorum, answered = nodes // 2 + 1, 0
        for number, y in enumerate(rows):
            canvas.word(8, y + 4, f"node {number + 1}" + (" (frozen)" if number in frozen else ""), "name")
            canvas.line(0, y, end * 1.25, y, "rail frozen" if number in frozen else "rail")
        for event in events:
            t = event["t"] - start
            if event["e"] == "ask":
                asked[event["n"]] = t
                if event["n"] in frozen:
                    arrives = min(other["t"] - start for other in events if other["e"] == "ran")
                    canvas.line(t, 40, arrives, rows[event["n"]], "message late")
                    canvas.at(arrives, rows[event["n"]] + 4, "no answer", "small halo bad-text", "start")
            elif event["e"] == "ran":
                n = event["n"]
                canvas.line(asked[n], 40, t, rows[n], "message")
                canvas.dot(t, rows[n], "w0")
                back = t + (t - asked[n])
                canvas.line(t, rows[n], back, 40, "message back" if back <= won else "message late")
                answered += 1
                canvas.at(t + end * 0.02, rows[n] + 4, "granted", "small halo", "start")
        canvas.dot(0, 40, "w0", 5)
        canvas.at(0, 24, "asks", "small")
        canvas.dot(won, 40, "ok", 6)
        enough = f"{quorum} of {nodes} have answered: the lock is held" if nodes > 1 else "the lock is held"
        canvas.at(won, 24, enough, "small strong", "start" if nodes == 1 else "middle")
        about = {
            "round-1": "One request and one answer: the lock is held after one round trip.",
            "round-5": "All five are asked at once. The third answer decides, and the last two are not waited for.",
            "round-frozen": "One of five is frozen. The other four answer, and the third answer decides.",
        }[name]
        return figure(canvas.svg(about), about)


@dataclass
class Hold:
    """A lock in the hands of a worker, or on a node."""

    by: int
    start: float
    end: float
    fence: int
    how: str = ""


def _holds(run: Run, until: float) -> list[Hold]:
    """Who had the lock when, as the workers know."""
    open_: dict[int, Hold] = {}
    done: list[Hold] = []
    for event in run["events"]:
        p = event.get("p")
        if event["e"] == "won":
            open_[p] = Hold(p, event["t"], until, event["fence"])
        elif event["e"] in {"released", "lost", "unconfirmed", "killed"} and p in open_:
            hold = open_.pop(p)
            hold.end, hold.how = event["t"], event["e"]
            done.append(hold)
    return [hold for hold in [*done, *open_.values()] if hold.start < until]


def _kept(run: Run, node: int, until: float) -> Iterator[Hold]:
    """Whose the key is at a node."""
    last: Hold | None = None
    for event in run["events"]:
        if event["e"] != "has" or event["n"] != node:
            continue
        if last:
            last.end = event["t"]
            yield last
        by = event["holder"]
        last = Hold(run["workers"].index(by), event["t"], until, event["fence"]) if by else None
    if last:
        yield last


def _spans(run: Run, begin: str, end: str, key: str, until: float) -> Iterator[tuple[int, float, float]]:
    begun: dict[int, float] = {}
    for event in run["events"]:
        if event["e"] == begin:
            begun[event[key]] = event["t"]
        elif event["e"] == end and event[key] in begun:
            yield event[key], begun.pop(event[key]), event["t"]
    for number, t in begun.items():
        yield number, t, until


def timeline(run: Run, title: str, *, until: float, nodes: bool) -> str:
    """Who held the lock when, what the nodes had, and what the store took."""

    def scale(t: float) -> float:
        return NAMES + (WIDTH - NAMES - 20) * min(t, until) / until

    workers, count = run["workers"], run["nodes"] if nodes else 0
    holds = _holds(run, until)
    shown = sorted({hold.by for hold in holds} if until < 10_000 else range(len(workers)))
    rows: dict[int, float] = {worker: 26 + ROW * place for place, worker in enumerate(shown)}
    store = 26 + ROW * len(shown)
    below = store + ROW + 8
    lower = 22
    canvas = Canvas(below + lower * count + 8, title, scale)
    for worker, y in rows.items():
        canvas.word(8, y + 4, f"worker {workers[worker]}", "name")
        canvas.line(0, y, until, y, "rail")
    canvas.word(8, store + 4, "the store", "name")
    canvas.line(0, store, until, store, "rail")
    for number in range(count):
        _node(canvas, run, number, below + lower * number, until)
    for hold in holds:
        y = rows[hold.by]
        canvas.bar(hold.start, hold.end, y, f"w{hold.by}")
        width = scale(hold.end) - scale(hold.start)
        if width > 70:
            canvas.word(scale(hold.start) + 5, y + 4, f"fence {fence(hold.fence)}", "small on-bar")
        if hold.how == "lost" and hold.end < until:
            canvas.at(hold.end, y - 12, "notified: lost", "small bad-text", "middle")
    for worker, t0, t1 in _spans(run, "paused", "resumed", "p", until):
        canvas.bar(t0, t1, rows[worker], "hatch bad", 22)
        canvas.at(t0 + (t1 - t0) / 2, rows[worker] + 4, "paused", "small halo")
    _writes(canvas, run, store, rows, until)
    for second in range(0, int(until) // 1000 + 1, 2):
        canvas.at(second * 1000, below + lower * count, f"{second} s", "small", "middle" if second else "start")
    return canvas.svg(" ".join(_told(run, until)))


def _node(canvas: Canvas, run: Run, number: int, y: float, until: float) -> None:
    """What a node had, and when it did not answer."""
    canvas.word(8, y + 4, "the node" if run["nodes"] == 1 else f"node {number + 1}", "name")
    canvas.line(0, y, until, y, "rail")
    for kept in _kept(run, number, until):
        if kept.start < until:
            canvas.bar(kept.start, kept.end, y, f"w{kept.by} pale", 10)
    for begin, end, word in (("frozen", "thawed", "frozen"), ("down", "up", "down")):
        for n, t0, t1 in _spans(run, begin, end, "n", until):
            if n == number and t0 < until:
                canvas.bar(t0, t1, y, "hatch bad", 16)
                canvas.at(t0 + (t1 - t0) / 2, y + 4, word, "small halo")
                if word == "down" and t1 < until:
                    canvas.bar(t1, min(t1 + run["ttl"], until), y, "hatch barred", 16)
                    canvas.at(t1 + run["ttl"] / 2, y + 4, "does not count", "small halo")


def _writes(canvas: Canvas, run: Run, store: float, rows: dict[int, float], until: float) -> None:
    """What the store took and refused, and who was killed."""
    for event in run["events"]:
        if event["t"] > until:
            break
        if event["e"] == "write" and event["ok"]:
            canvas.dot(event["t"], store, f"w{event['p']}", 3.5)
        elif event["e"] == "write":
            canvas.cross(event["t"], store)
            words = f"refused: {fence(event['fence'])} is too small"
            is_left = canvas.scale(event["t"]) > WIDTH - 200
            canvas.at(event["t"], store + 19, words, "small bad-text", "end" if is_left else "start")
        elif event["e"] == "killed":
            canvas.cross(event["t"], rows[event["p"]])
            canvas.at(event["t"] + until * 0.012, rows[event["p"]] + 4, "killed", "small bad-text", "start")


def _told(run: Run, until: float = 20_000) -> Iterable[str]:
    """The run in sentences."""
    workers = run["workers"]
    largest = 0
    for event in run["events"]:
        if event["t"] > until:
            return
        at = f"{event['t'] / 1000:.1f} s:"
        who = f"worker {workers[event['p']]}" if "p" in event else ""
        node = f"node {event['n'] + 1}" if "n" in event else ""
        match event["e"]:
            case "won":
                largest = max(largest, event["fence"])
                yield f"{at} {who} gets the lock, with fence {fence(event['fence'])}."
            case "released":
                yield f"{at} {who} releases it."
            case "lost":
                yield f"{at} {who} is notified that it is lost ({event['reason']})."
            case "write" if not event["ok"]:
                yield f"{at} the store refuses {who}: {fence(event['fence'])} is smaller than {fence(largest)}."
            case "paused" | "killed":
                yield f"{at} {who} is {event['e']}."
            case "resumed":
                yield f"{at} {who} goes on."
            case "frozen" | "down":
                yield f"{at} {node} {'is frozen' if event['e'] == 'frozen' else 'is down'}."
            case "thawed" | "up":
                yield f"{at} {node} {'answers again' if event['e'] == 'thawed' else 'is up again, without its data'}."
