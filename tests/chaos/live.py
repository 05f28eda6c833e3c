"""Shows a run while it continues: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

PLAIN_EVERY_S = 2.0


@dataclass(frozen=True)
class Note:
    """An event worth reporting."""

    at_ns: int
    text: str


@dataclass(eq=False)
class Story:
    """The content of the display: when it began, and the notes since then."""

    start_ns: int = 0
    notes: list[Note] = field(default_factory=list)

    def seconds(self, at_ns: int) -> float:
        """Since the start."""
        return (at_ns - self.start_ns) / 1e9

    def note(self, at_ns: int, text: str) -> None:
        """Adds a note."""
        self.notes.append(Note(at_ns, text))


class View(Protocol):
    """Shows the present state; it is called often."""

    def show(self, now_ns: int) -> None:
        """Shows it."""


@contextmanager
def opened(
    console: Console, story: Story, screen: Callable[[int], RenderableType], counts: Callable[[], str]
) -> Iterator[View]:
    """The view that fits the console: of the whole `screen` at a time, or of the notes with `counts` in between."""
    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield LiveView(live, screen)
            # The events stay on the screen, above the report.
        for note in story.notes:
            console.print(said(story, note), highlight=False)
    else:
        plain = PlainView(console, story, counts)
        yield plain
        plain.tell()


class PlainView:
    """A line for each event, and one in between, so that silence means something."""

    def __init__(self, console: Console, story: Story, counts: Callable[[], str]) -> None:
        self._console = console
        self._story = story
        self._counts = counts
        self._told = 0
        self._next_s = PLAIN_EVERY_S

    def show(self, now_ns: int) -> None:
        """Prints what is new."""
        self.tell()
        if self._story.seconds(now_ns) >= self._next_s:
            self._print(Note(now_ns, self._counts()))
            self._next_s += PLAIN_EVERY_S

    def tell(self) -> None:
        """Prints the events since the last time."""
        new = self._story.notes[self._told :]
        self._told += len(new)
        for note in new:
            self._print(note)

    def _print(self, note: Note) -> None:
        self._console.print(said(self._story, note), highlight=False, soft_wrap=True)
        # A reader behind a pipe wants each line at once.
        self._console.file.flush()


class LiveView:
    """Everything in one screen."""

    def __init__(self, live: Live, screen: Callable[[int], RenderableType]) -> None:
        self._live = live
        self._screen = screen

    def show(self, now_ns: int) -> None:
        """Draws it again."""
        self._live.update(self._screen(now_ns), refresh=True)


def said(story: Story, note: Note) -> Text:
    """One line for an event."""
    return Text.assemble((f"{story.seconds(note.at_ns):6.1f} s  ", "dim"), note.text)
