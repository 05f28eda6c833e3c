"""Shapes the repository's Markdown for the site: tabs, headings, and what Python-Markdown reads otherwise."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from generate.sources import masked, unmasked

TABS = ["Python", "asyncio", "Node", "Rust"]
"""The names of the tabs, in their order everywhere."""

_LANGUAGES = {"python": "Python", "js": "Node", "ts": "Node", "rust": "Rust", "rs": "Rust"}
_LEXERS = {"rs": "rust", "js": "javascript", "ts": "typescript"}
_BLOCK = r"^```(\w+)[^\n]*\n(?:.*?)^```$\n?"
_LEAD = re.compile(r"(?:^|(?<= )|(?<=\n))In (Python|Node|Rust)(, with [^\n]*)?:$")
_WARNING = re.compile(r"^> \*\*Warning\.\*\* (.*(?:\n>.*)*)", re.M)
_RUN_IN = re.compile(r"^\*\*([^*\n]+?)\.\*\* ", re.M)
_RUN_ON = re.compile(r"^\*\*([^*\n.]+)\*\*(?= \(|,)", re.M)


@dataclass(frozen=True)
class Tab:
    """What one tab shows."""

    title: str
    text: str


def tabs(shown: Iterable[Tab]) -> str:
    """A group of tabs, in the order of all groups."""
    parts = []
    for tab in sorted(shown, key=lambda tab: TABS.index(tab.title)):
        parts.append(f'=== "{tab.title}"\n\n{textwrap.indent(tab.text.strip(), "    ")}\n')
    return "\n".join(parts)


def title_of(language: str, code: str) -> str | None:
    """The name of the tab for a program; none if its language has no tab."""
    if language == "python" and re.search(
        r"^(?:import asyncio$|from redlock import asyncio)|\bredlock\.asyncio\b", code, re.M
    ):
        return "asyncio"
    return _LANGUAGES.get(language)


def code_block(language: str, code: str) -> str:
    """A block of code."""
    return f"```{_LEXERS.get(language, language)}\n{code.strip(chr(10))}\n```\n"


def relexed(text: str) -> str:
    """The text with the names of languages that this site's highlighter knows, without what only rustdoc reads."""
    return re.sub(
        r"^( *)```(\w+)[^\n]*$", lambda match: f"{match[1]}```{_LEXERS.get(match[2], match[2])}", text, flags=re.M
    )


def _titles(group: list[str]) -> list[str | None]:
    heads = [re.match(r"```(\w+)[^\n]*\n", block) for block in group]
    return [title_of(head[1], block) if head else None for head, block in zip(heads, group, strict=True)]


def with_tabs(text: str, also: Mapping[str, str] | None = None) -> str:
    """The text with tabs where programs in several languages follow each other. `also` has more programs for a group.

    They follow each other directly, or each after a line such as "In Python:", or below headings such as "In Python".
    """
    text = _sections_to_tabs(text)
    pieces = re.split(rf"({_BLOCK})", text, flags=re.M | re.S)
    # The pattern's group splits too: text, block, language, text, ...
    texts, blocks = pieces[::3], pieces[1::3]
    out: list[str] = []
    number = 0
    while number < len(blocks):
        lead = texts[number]
        group, leads = [number], [_LEAD.search(lead.rstrip("\n"))]
        while group[-1] + 1 < len(blocks):
            between = texts[group[-1] + 1].strip("\n")
            led = _LEAD.fullmatch(between)
            if between and not (led and leads[0]):
                break
            group.append(group[-1] + 1)
            leads.append(led)
        titles = _titles([blocks[of] for of in group])
        if len(group) < 2 or None in titles or len(set(titles)) < len(titles):
            out += [lead, blocks[number]]
            number += 1
            continue
        shown = []
        for of, title, led in zip(group, titles, leads, strict=True):
            more = f"With {led[2].removeprefix(', with ')}:\n\n" if led and led[2] else ""
            shown.append(Tab(str(title), more + blocks[of]))
        shown += [Tab(title, code) for title, code in (also or {}).items() if title not in titles]
        out += [lead.rstrip("\n")[: leads[0].start()].rstrip(" ") + "\n\n" if leads[0] else lead, tabs(shown)]
        number = group[-1] + 1
    return "".join(out) + texts[-1]


def _sections_to_tabs(text: str) -> str:
    """Makes tabs of sections that are called "In Python", "In Node" and "In Rust", and follow each other."""
    bare, kept = masked(text)
    pieces = [unmasked(piece, kept) for piece in re.split(r"^(#+) (.+)\n", bare, flags=re.M)]
    out, group = [pieces[0]], list[Tab]()
    for marks, title, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        language = re.fullmatch(r"In (Python|Node|Rust)", title)
        if not language:
            out += [_ended(group), f"{marks} {title}\n{body}"]
            continue
        # The last one of a group is followed by what belongs to all of them, after its code.
        own, _, after = body.rpartition("\n```\n")
        group.append(Tab(language[1], f"{own}\n```"))
        if after.strip():
            out += [_ended(group), f"\n{after}"]
    return "".join([*out, _ended(group)])


def _ended(group: list[Tab]) -> str:
    text = f"\n{tabs(group)}\n" if group else ""
    group.clear()
    return text


def with_headings(text: str, level: int) -> str:
    """The text with headings in the place of bold words at the beginning of paragraphs."""
    bare, kept = masked(text)
    marks = "#" * level
    bare = _RUN_IN.sub(lambda match: f"{marks} {match[1]}\n\n", bare)
    bare = _RUN_ON.sub(lambda match: f"{marks} {match[1]}\n\n{match[0]}", bare)
    return unmasked(bare, kept)


def deeper(text: str, by: int) -> str:
    """The text with its headings so many levels deeper."""
    bare, kept = masked(text)
    return unmasked(re.sub(r"^(#+) ", lambda match: f"{match[1]}{'#' * by} ", bare, flags=re.M), kept)


def for_mkdocs(text: str) -> str:
    """What CommonMark and Python-Markdown read differently: lists in lists, and bars in tables' code; and warnings."""
    bare, kept = masked(text)
    bare = _WARNING.sub(lambda match: "!!! warning\n\n    " + re.sub(r"^> ?", "    ", match[1], flags=re.M), bare)
    bare = re.sub(r"^ {2,3}(?=[-*] )", "    ", bare, flags=re.M)
    lines = []
    for line in bare.split("\n"):
        shown = unmasked(line, kept) if line.startswith("|") else line
        lines.append(re.sub(r"`[^`]+`", lambda span: span[0].replace(r"\|", "|"), shown))
    return unmasked("\n".join(lines), kept)
