"""The Markdown of the repository: whole pages, sections, and the links in them."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
REPOSITORY = "https://github.com/redlock-rs/redlock"

_FENCE = re.compile(r"^( *)(```+|~~~+)[^\n]*\n.*?^\1\2 *$", re.M | re.S)
_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
_DEFINITION = re.compile(r"^\[([^\]\n]+)\]: (\S+)$", re.M)
_TARGET = re.compile(r"(?<=\]\()([^()\s]+)(?=[\s)])")


class BuildError(Exception):
    """What is wrong with a source of the site."""


@cache
def text_of(path: str) -> str:
    """The text of a file of the repository."""
    file = ROOT / path
    if not file.is_file():
        raise BuildError(f"{path} does not exist, but a page is made from it")
    return file.read_text(encoding="utf-8")


def masked(text: str) -> tuple[str, list[str]]:
    """The text without its code, which `unmasked` puts back."""
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\x02{len(kept) - 1}\x03"

    return _SPAN.sub(keep, _FENCE.sub(keep, text)), kept


def unmasked(text: str, kept: list[str]) -> str:
    """Puts back what `masked` has taken out."""
    while "\x02" in text:
        text = re.sub("\x02(\\d+)\x03", lambda match: kept[int(match[1])], text)
    return text


def sections(text: str, level: int) -> dict[str, str]:
    """The text below each heading of this level, without the heading, up to the next one of this or a higher level."""
    bare, kept = masked(text)
    found: dict[str, str] = {}
    heads = list(re.finditer(r"^(#+) (.+)$", bare, re.M))
    for number, head in enumerate(heads):
        if len(head[1]) != level:
            continue
        ends = (after.start() for after in heads[number + 1 :] if len(after[1]) <= level)
        found[unmasked(head[2], kept)] = unmasked(bare[head.end() : next(ends, len(bare))], kept).strip("\n")
    return found


def part(path: str, title: str) -> str:
    """A section of a file of the repository, or all of it without its heading if there is no `title`."""
    text = text_of(path)
    if not title:
        return text.partition("\n")[2].strip("\n")
    found = sections(text, 2).get(title)
    if found is None:
        raise BuildError(f"{path} has no section {title!r}")
    return found


def definitions(text: str) -> dict[str, str]:
    """The targets of links that stand at the end of a page, by label."""
    return {match[1].lower(): match[2] for match in _DEFINITION.finditer(masked(text)[0])}


@dataclass
class Links:
    """Where what the repository links to is on the site."""

    pages: dict[str, str] = field(default_factory=dict)
    """The page of the site, by a file of the repository."""
    moved: dict[tuple[str, str], str] = field(default_factory=dict)
    """Where a section is that is not on the page of its file, by file and anchor."""
    pictures: set[str] = field(default_factory=set)
    """Pictures that pages show, as files of the repository."""
    ref: str = "main"
    """What links to the repository name: a branch or a tag."""

    def followed(self, target: str, origin: str, page: str) -> str:
        """The target of a link, for a `page`, when it is the `target` of a link in the file `origin`."""
        if target.startswith("#"):
            return self._on_site(origin, target[1:], page) or target
        target = re.sub(rf"^{REPOSITORY}(?=#)", f"{REPOSITORY}/blob/main/README.md", target)
        whole = re.match(rf"{REPOSITORY}/(?:blob|tree)/(?:main|v\d[^/]*)/(.*)", target)
        if whole is None and re.match(r"[a-z]+:", target):
            return target
        path, _, anchor = (whole[1] if whole else target).partition("#")
        if not whole:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        if not (ROOT / path).exists():
            raise BuildError(f"{origin} links to {path}, which does not exist")
        if path.endswith((".svg", ".png")):
            self.pictures.add(path)
            return relative(f"pictures/{posixpath.basename(path)}", page)
        if found := self._on_site(path, anchor, page):
            return found
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{REPOSITORY}/{kind}/{self.ref}/{path}" + (f"#{anchor}" if anchor else "")

    def _on_site(self, path: str, anchor: str, page: str) -> str | None:
        if moved := self.moved.get((path, anchor)):
            where, _, anchor = moved.partition("#")
        else:
            where = self.pages.get(path, "")
        return relative(where, page) + (f"#{anchor}" if anchor else "") if where else None

    def rewritten(self, text: str, origin: str, page: str) -> str:
        """The text of the file `origin` with the links that it has on a `page`, all of them inline."""
        targets = definitions(text_of(origin))
        bare, kept = masked(text)
        bare = _DEFINITION.sub("", bare)

        def reference(match: re.Match[str]) -> str:
            words, label = match[1], match[2] or match[1]
            label = re.sub(r"\s+", " ", unmasked(label, kept)).lower()
            return f"[{words}]({targets[label]})" if label in targets else match[0]

        bare = re.sub(r"\[([^\[\]]+)\](?:\[([^\[\]]*)\])?(?![(\]])", reference, bare)
        bare = _TARGET.sub(lambda match: self.followed(match[1], origin, page), bare)
        return unmasked(bare, kept).strip("\n")


def relative(target: str, page: str) -> str:
    """The way from a page of the site to another file of it."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")
