"""Checks the site that was built: links, anchors, pictures, and that nothing comes from anybody else."""

from __future__ import annotations

import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADS = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "object": "data",
    "script": "src",
    "source": "srcset",
    "video": "src",
}
"""What a page fetches by itself."""

_FETCHED = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "manifest"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.unnamed_pictures: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if found := given.get("id") or (tag == "a" and given.get("name")):
            self.anchors.add(str(found))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and _FETCHED & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))
        if tag in _LOADS and _LOADS[tag] in given:
            self.loads.append(given[_LOADS[tag]])
        if tag == "img" and "alt" not in given:
            self.unnamed_pictures.append(given.get("src", ""))


def flaws(site: Path) -> list[str]:
    """What is wrong, a line each."""
    pages: dict[str, _Page] = {}
    for file in sorted(site.rglob("*.html")):
        page = _Page()
        page.feed(file.read_text(encoding="utf-8"))
        pages[file.relative_to(site).as_posix()] = page
    files = {file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()}
    found: list[str] = []
    for name, page in pages.items():
        # It is shown under any address that does not exist, so its links are absolute.
        if name == "404.html":
            continue
        found += [f"{name}: the picture {source} has no text" for source in page.unnamed_pictures]
        for target in page.loads:
            if urlsplit(target).scheme not in {"", "data"} or target.startswith("//"):
                found.append(f"{name}: fetches {target}")
            elif urlsplit(target).scheme == "" and _file(target, name, files) is None:
                found.append(f"{name}: {target} does not exist")
        # Rustdoc has checked its own links, and inherits some from other crates' comments.
        for target in [] if name.startswith("reference/rust/redlock/") else page.links:
            found += _broken(target, name, pages, files)
    for file in sorted(site.rglob("*.css")):
        for target in re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", file.read_text(encoding="utf-8")):
            if re.match(r"(?:[a-z]+:)?//", target):
                found.append(f"{file.relative_to(site)}: fetches {target}")
    return found


def _broken(target: str, name: str, pages: dict[str, _Page], files: set[str]) -> list[str]:
    parts = urlsplit(target)
    if parts.scheme or target.startswith("//") or not target:
        return []
    file = _file(target, name, files)
    if file is None:
        return [f"{name}: {target} does not exist"]
    anchor = unquote(parts.fragment)
    if anchor and file in pages and anchor not in pages[file].anchors:
        return [f"{name}: {target} has no such section"]
    return []


def _file(target: str, name: str, files: set[str]) -> str | None:
    """The file that a relative address on a page leads to."""
    path = unquote(urlsplit(target).path)
    if not path:
        return name
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
    for candidate in (joined, posixpath.normpath(f"{joined}/index.html")):
        if candidate in files and not (path.endswith("/") and candidate == joined):
            return candidate
    return None
