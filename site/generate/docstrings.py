"""Prepares the doc comments of the Python package, which griffe and Markdown partly read otherwise."""

from __future__ import annotations

import json
import re
from typing import Any

import griffe

from generate.sources import text_of

_DOCTEST = re.compile(r"^(>>> .*(?:\n(?!\s*$).+)*)", re.M)
_NAME = re.compile(r"(?<![\[`])`(\w+(?:\.\w+)?)`(?![\]`])")


class Docstrings(griffe.Extension):
    """Makes blocks of doctests, and links of public names."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Goes through the package once it is loaded."""
        self._public = _public_names()
        self._walk(pkg, set())

    def _walk(self, owner: griffe.Module | griffe.Class, seen: set[str]) -> None:
        if owner.path in seen:
            return
        seen.add(owner.path)
        self._prepare(owner)
        for member in owner.members.values():
            if isinstance(member, griffe.Module | griffe.Class):
                self._walk(member, seen)
            elif isinstance(member, griffe.Object):
                self._prepare(member)

    def _prepare(self, item: griffe.Object) -> None:
        if item.docstring is None:
            return
        is_asyncio = item.path.startswith(("redlock.asyncio", "redlock._awaited"))

        def linked(match: re.Match[str]) -> str:
            name = match[1]
            if name not in self._public or item.path.endswith(f".{name}"):
                return match[0]
            own = is_asyncio and name.split(".")[0] in {"Lock", "Redlock", "Election"}
            return f"[{match[0]}][redlock.{'asyncio.' if own else ''}{name}]"

        text = _DOCTEST.sub(lambda match: f"```pycon\n{match[1]}\n```", item.docstring.value)
        parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
        parts[::2] = [_NAME.sub(linked, part) for part in parts[::2]]
        item.docstring.value = "".join(parts)


def _public_names() -> set[str]:
    """What has an entry of its own in the reference."""
    names: set[str] = set()
    for case in json.loads(text_of("tests/conformance/tables/surface.json"))["cases"]:
        given = case["python"]
        if case["kind"] in {"class", "error", "type", "method", "property"}:
            names |= {given} if isinstance(given, str) else set(given or [])
    return {name for name in names if re.fullmatch(r"[A-Z]\w+(?:\.[a-z]\w*)?", name)}
