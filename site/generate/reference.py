"""Tables of the reference, from the tables that the conformance suite tests every language against."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from generate.sources import BuildError, part, text_of

TABLES = "tests/conformance/tables"
ERRORS = ("core/docs/errors.md", "")
OPTIONS = ("core/docs/options.md", "All options")
"""The pages whose tables say what errors and options mean."""

GROUPS = {
    "module": "Functions of the module",
    "client": "Client",
    "options": "Options",
    "lock": "Lock",
    "functions": "Functions under a lock",
    "election": "Election",
    "errors": "Errors",
    "reasons": "Reasons of a loss",
    "diagnosis": "Diagnosis",
    "metrics": "Metrics",
    "log": "Events",
    "lock views": "Views of locks",
    "views": "Views of nodes",
    "testing": "Testing",
}
"""The titles of the groups of `surface.json`."""


def _table(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text_of(f"{TABLES}/{name}.json"))
    return loaded


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _rows_of(path: str, title: str) -> list[list[str]]:
    """The rows of the first table of a section, without its head."""
    lines = [line for line in part(path, title).split("\n") if line.startswith("|")]
    return [_cells(line) for line in lines[2:]]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def errors() -> str:
    """Every error: what it means, its class in each language, and whether the same call may succeed later."""
    meanings = {cells[0].strip("`"): cells[3] for cells in _rows_of(*ERRORS)}
    lines = [
        _row("code", "meaning", "Python", "also a, in Python", "Node", "Rust", "the same call may succeed later"),
        _row(*["---"] * 7),
    ]
    cases = _table("errors")["cases"]
    if (codes := {case["code"] for case in cases}) != meanings.keys():
        raise BuildError(f"{ERRORS[0]} and errors.json name different codes: {codes ^ meanings.keys()}")
    for case in cases:
        base = f"`{case['python_base']}`" if case["python_base"] else ""
        rust = "ErrorKind::" + "".join(word.title() for word in case["code"].split("_"))
        again = "yes" if case["retryable"] else "no"
        lines.append(
            _row(
                f"`{case['code']}`",
                meanings[case["code"]],
                f"[`{case['python']}`][redlock.{case['python']}]",
                base,
                f"`{case['js']}`",
                f"`{rust}`",
                again,
            )
        )
    return "\n".join(lines)


def reasons() -> str:
    """The reasons of `LockLost`, in their order."""
    return ", ".join(f"`{reason}`" for reason in _table("errors")["lost_reasons"])


def options() -> str:
    """The options that the page lists, each with a link to its example, and how each language spells them."""
    spelt: dict[str, dict[str, str]] = {}
    for case in _table("surface")["cases"]:
        if case["group"] == "options":
            spelt[case["concept"]] = case
    lines = [_row("option", "default", "meaning", "Node", "Rust"), _row(*["---"] * 5)]
    for name, default, meaning in _rows_of(*OPTIONS):
        bare = name.strip("`")
        if bare not in spelt:
            raise BuildError(f"{OPTIONS[0]} has the option {bare}, and surface.json has not")
        case = spelt[bare]
        node = _first(case["node"]).rpartition(".")[2]
        rust = _first(case["rust"]).replace("::", ".").rpartition(".")[2]
        spellings = (f"`{node}`" if node else "", f"`.{rust}(…)`" if rust else "")
        lines.append(_row(f"[{name}](#{bare})", default, meaning, *spellings))
    return "\n".join(lines)


def follows() -> str:
    """What other options are by default with some ttls, as tested in every language."""
    lines = [_row("`ttl`", "`node_timeout`", "`restart_delay`", "`fence_ttl`"), _row(*["---"] * 4)]
    for case in sorted(_table("options")["cases"], key=lambda case: case["options"].get("ttl_ms", 10_000)):
        ttl = case["options"].get("ttl_ms", 10_000)
        if "ok" in case and case["options"].keys() <= {"ttl_ms"} and ttl % 100 == 0:
            ok = case["ok"]
            lines.append(
                _row(*(_time(ok[f"{name}_ms"]) for name in ("ttl", "node_timeout", "restart_delay", "fence_ttl")))
            )
    return "\n".join(lines)


def refused() -> str:
    """Times and other values that are refused in every language, and the cases' names."""
    lines = [_row("given", "why it is refused"), _row(*["---"] * 2)]
    for case in _table("options")["cases"]:
        shown = {name.removesuffix("_ms"): _given(name, value) for name, value in case["options"].items()}
        if "error" in case and all(len(value) < 30 and value.isprintable() for value in shown.values()):
            given = ", ".join(f"`{name}` = {value}" for name, value in shown.items())
            lines.append(_row(given, case["name"]))
    return "\n".join(lines)


def _given(name: str, value: object) -> str:
    if name.endswith("_ms") and isinstance(value, int | float):
        return _time(value)
    return f"`{json.dumps(value)}`"


def _time(milliseconds: float) -> str:
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size:g} {unit}"
    return f"{milliseconds:.10g} ms"


def _first(names: str | list[str] | None) -> str:
    return (names[0] if isinstance(names, list) else names) or ""


def surface(page: str) -> str:
    """Every public name in every language, by group."""
    del page
    table = _table("surface")
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in table["cases"]:
        groups.setdefault(case["group"], []).append(case)
    parts: list[str] = []
    for group, cases in groups.items():
        parts += [f"## {GROUPS.get(group, group.capitalize())}\n"]
        parts += [_row("what", "Python and asyncio", "Node", "Rust"), _row(*["---"] * 4)]
        for case in cases:
            names = [
                _names(case["python"], case["asyncio"]),
                _names(case["node"]),
                _names(case["rust"], case["blocking"]),
            ]
            parts.append(_row(case["concept"].replace("|", "\\|"), *names))
        parts.append("")
    if unknown := groups.keys() - GROUPS.keys():
        raise BuildError(f"surface.json has groups without a title: {unknown}")
    parts += ["## Why languages differ\n"]
    parts += [f"- *{name}*: {why}" for name, why in table["differences"].items()]
    return "\n".join(parts)


def _names(names: str | list[str] | None, others: str | list[str] | None = None) -> str:
    shown = [names] if isinstance(names, str) else list(names or [])
    more = [others] if isinstance(others, str) else list(others or [])
    # `blocking::` is the same without async; it is said once, above the tables.
    shown += [name for name in more if name not in shown and not name.startswith("blocking::")]
    return "<br>".join(f"`{name}`" for name in shown)


class Rustdoc:
    """What rustdoc has written, and where a name is in it."""

    def __init__(self, directory: Path) -> None:
        self._pages = {file.relative_to(directory).as_posix(): file for file in directory.rglob("*.html")}

    def place(self, name: str) -> str | None:
        """The file and the anchor of a name such as `Guard::release`, within rustdoc's directory."""
        *module, item = re.split(r"::|\.", name)
        where = "redlock/"
        while module and module[0].islower():
            where += f"{module.pop(0)}/"
        if not module:
            kinds = ("struct", "enum", "trait", "fn", "type", "constant")
            return next((page for kind in kinds if (page := f"{where}{kind}.{item}.html") in self._pages), None)
        owners = [f"{where}{kind}.{module[0]}.html" for kind in ("struct", "enum", "trait")]
        owner = next((page for page in owners if page in self._pages), None)
        if owner is None:
            return None
        text = self._text(owner)
        last = module[1] if len(module) > 1 else item
        field = f"variant.{last}.field.{item}" if len(module) > 1 else f"structfield.{item}"
        for anchor in (f"method.{item}", f"variant.{item}", field, f"tymethod.{item}", f"associatedconstant.{item}"):
            if f'id="{anchor}"' in text:
                return f"{owner}#{anchor}"
        return None

    @cache  # noqa: B019 - one object lives as long as the build
    def _text(self, page: str) -> str:
        return self._pages[page].read_text(encoding="utf-8")

    def says(self, place: str) -> tuple[str, str]:
        """The signature of what is in a place, and the first sentence of its comment."""
        page, _, anchor = place.partition("#")
        text = self._text(page)
        text = text[text.index(f'id="{anchor}"') if anchor else text.index('<pre class="rust item-decl">') :]
        declared = r'<h[34] class="code-header">(.*?)</h[34]>' if anchor else r"<code>(.*?)</code></pre>"
        signature = re.search(declared, text, re.S)
        comment = re.search(r'<div class="docblock">\s*<p>(.*?)</p>', text, re.S)
        lines = _plain(signature[1]).strip().split("\n") if signature else []
        # What a struct or an enum has is told by its methods and variants.
        shown = "\n".join(lines) if anchor or len(lines) <= 8 else lines[0]
        return shown.replace("\u00a0", " "), _sentence(_plain(comment[1])) if comment else ""


def _plain(markup: str) -> str:
    """The text of a piece of HTML."""
    return html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"<br ?/?>", "\n", markup)))


def _sentence(text: str) -> str:
    return re.sub(r"([\[\]<>*_`])", r"\\\1", re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0])


def rust(rustdoc: Rustdoc | None, groups: Iterable[str]) -> str:
    """The names of these groups in Rust, each with its signature and its place in rustdoc."""
    parts = []
    for group in groups:
        parts.append(f"## {GROUPS[group]}\n")
        for name in _rust_names()[group]:
            place = rustdoc.place(name) if rustdoc else None
            if rustdoc is None or place is None:
                raise BuildError(f"rustdoc does not have {name}, which surface.json names")
            # Without async it is the same.
            if not name.startswith("blocking::"):
                signature, says = rustdoc.says(place)
                program = f"```rust\n{signature}\n```\n" if signature else ""
                parts += [f"### `{name}`\n", program, f"{says} [More](redlock/{place.removeprefix('redlock/')})\n"]
    return "\n".join(parts)


def rust_groups() -> set[tuple[str, str]]:
    """Each group that has names in Rust."""
    return {("rust", group) for group in _rust_names()}


def _rust_names() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for case in _table("surface")["cases"]:
        for given in (case["rust"], case["blocking"]):
            names.setdefault(case["group"], []).extend([given] if isinstance(given, str) else given or [])
    return {group: list(dict.fromkeys(found)) for group, found in names.items() if found}


_SHOWN = {"function", "class", "type", "error", "constant"}
"""The kinds of names that have an entry of their own in the reference of Python."""

_OF_ASYNCIO = {"module", "client", "lock", "functions", "election"}
"""The groups of `surface.json` in which names of asyncio differ from the others'."""


def python(face: str, groups: Iterable[str]) -> str:
    """What mkdocstrings shows of these groups of a face: every name of `surface.json`."""
    return "\n".join(f"::: {name}\n" for group in groups for name in _python_names()[face, group])


def python_groups() -> set[tuple[str, str]]:
    """Each face, and each group that has names of its own there."""
    return set(_python_names())


def _python_names() -> dict[tuple[str, str], list[str]]:
    names: dict[tuple[str, str], list[str]] = {}
    for case in _table("surface")["cases"]:
        for face, package in (("python", "redlock"), ("asyncio", "redlock.asyncio")):
            if case["kind"] not in _SHOWN or (face == "asyncio" and case["group"] not in _OF_ASYNCIO):
                continue
            for name in [case[face]] if isinstance(case[face], str) else case[face] or []:
                whole = re.fullmatch(r"((?:testing|otel)\.)?(\w+)", name)
                if whole and not (face == "asyncio" and whole[1]):
                    names.setdefault((face, case["group"]), []).append(f"{package}.{name}")
    return {key: list(dict.fromkeys(found)) for key, found in names.items()}
