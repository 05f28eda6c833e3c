"""What the engine tells, and what the page `core/docs/observing.md` says of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from examples.program import ROOT

PAGE = (ROOT / "core" / "docs" / "observing.md").read_text(encoding="utf-8")
SOURCES = ROOT / "core" / "src"

LOG = SOURCES / "sys" / "log.rs"
"""The file with the macro that emits events."""

_EVENT = re.compile(
    r'(\w+) =\s*Event::new\("(\w+)", Topic::(\w+), Level::(\w+), &\[([^\]]*)\]\)\s*(\.for_person\(\))?;'
)
_SCRIPT = re.compile(r' = "(\w+)"')
_CALL = re.compile(r"\blog!\((\w+),")
_PROGRAM = re.compile(r"^```(\S+)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Event:
    """An event: how serious it is, what it is about, and what it tells."""

    level: str
    topic: str
    fields: tuple[str, ...]
    needs_person: bool


@dataclass(frozen=True)
class Metric:
    """A metric."""

    kind: str
    labels: frozenset[str]


@dataclass(frozen=True)
class Call:
    """A place in the engine that emits an event."""

    place: str
    event: str
    fields: tuple[str, ...]


def bindings() -> dict[str, Event]:
    """The event that Python and Node make themselves, by code. It is about the way to the program, not the engine."""
    python = (ROOT / "python" / "redlock" / "_events.py").read_text(encoding="utf-8")
    node = (ROOT / "node" / "ts" / "events.ts").read_text(encoding="utf-8")
    in_python = re.findall(r'return "(\w+)", "(\w+)", logging\.(\w+), created, message, \{"(\w+)":', python)
    in_node = re.findall(
        r'code: "(\w+)",\s*topic: "(\w+)",\s*level: "(\w+)",\s*at: [^\n]*\s*message: [^\n]*\s*fields: \{ (\w+):', node
    )
    (made,) = (
        (code, topic, level.lower().replace("warning", "warn"), field) for code, topic, level, field in in_python
    )
    assert in_node == [made], "both make the same one"
    code, topic, level, field = made
    return {code: Event(level, topic, (field,), needs_person=False)}


def catalogue() -> dict[str, tuple[str, Event]]:
    """The name and the event of each code, as the engine has them."""
    text = (SOURCES / "event.rs").read_text(encoding="utf-8")
    found = _EVENT.findall(text)
    assert len(found) == text.count("Event::new("), "each is an event"
    return {
        code: (name, Event(level.lower(), topic.lower(), tuple(re.findall(r'"(\w+)"', fields)), bool(person)))
        for name, code, topic, level, fields, person in found
    }


def calls() -> list[Call]:
    """Every place in the engine that emits an event."""
    found = []
    for path in sorted(SOURCES.rglob("*.rs")):
        text = path.read_text(encoding="utf-8")
        if path == LOG:
            continue
        assert len(_CALL.findall(text)) == len(re.findall(r"\blog!\(", text)), f"{path}: each names its event"
        for call in _CALL.finditer(text):
            place = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, call.start()) + 1}"
            found.append(Call(place, call[1], tuple(fields_of(arguments(text, call.end())))))
    return found


def arguments(text: str, start: int) -> list[str]:
    """The arguments of a call whose list of them goes on at `start`, up to its closing bracket."""
    found, depth, begin = [], 0, start
    for word in re.finditer(r'"(?:[^"\\]|\\.)*"|[(\[{]|[)\]}]|,', text[start:], re.S):
        if word[0] in "([{":
            depth += 1
        elif word[0] in ")]}":
            depth -= 1
        if depth < 0 or (word[0] == "," and not depth):
            found.append(text[begin : start + word.start()].strip())
            begin = start + word.end()
        if depth < 0:
            return [argument for argument in found if argument]
    raise ValueError(f"the call at {start} has no end")


def fields_of(given: list[str]) -> list[str]:
    """The names of the fields among the arguments of a call; the message is the last one."""
    *fields, message = given
    assert message.startswith('"'), f"it is a text: {message}"
    return [field.split("=")[0].strip().lstrip("%?") for field in fields]


def rows(head: str) -> list[list[str]]:
    """The rows of the page's table that begins with this head."""
    _, _, rest = PAGE.partition(f"| {head} |")
    lines = rest.split("\n\n", 1)[0].splitlines()[2:]
    return [re.split(r" *(?<!\\)\| *", line)[1:-1] for line in lines]


def quoted(cell: str) -> tuple[str, ...]:
    """The words in a cell that are code."""
    return tuple(re.findall(r"`([^`]+)`", cell))


def told_events() -> dict[str, Event]:
    """The events of the page, by code."""
    found = {}
    for code, level, topic, fields, *_ in rows("code | level"):
        (name,) = quoted(code)
        assert name not in found, f"{name} has two rows"
        found[name] = Event(level, topic, quoted(fields), code.startswith("**"))
    return found


def scripts() -> list[str]:
    """The names of all scripts, as the engine has them."""
    text = (SOURCES / "node" / "scripts.rs").read_text(encoding="utf-8")
    (names,) = re.findall(r"\nscripts! \{\n(.*?)\n\}\n", text, re.S)
    found = _SCRIPT.findall(names)
    assert len(set(found)) == len(names.splitlines()), "each has a name"
    return found


def told_scripts() -> list[str]:
    """The scripts that the page names, each time it does."""
    (meaning,) = (row[3] for row in rows("name | kind") if row[0] == "`redlock_node_duration_seconds`")
    # What stands in brackets names some again.
    listed = re.sub(r"\(.*?\)", "", meaning.partition(" by script: ")[2])
    return list(quoted(listed))


def told_metrics() -> dict[str, Metric]:
    """The metrics of the page, by name."""
    found = {}
    for name, kind, labels, *_ in rows("name | kind"):
        (quote,) = quoted(name)
        assert quote not in found, f"{quote} has two rows"
        found[quote] = Metric(kind, frozenset(quoted(labels)))
    return found


def program(language: str, word: str) -> str:
    """The only program of the page in this language that contains `word`."""
    (code,) = (code for written, code in _PROGRAM.findall(PAGE) if written.split(",")[0] == language and word in code)
    assert isinstance(code, str)
    return code
