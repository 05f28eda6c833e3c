"""Changes what MkDocs and its theme write: names that screen readers need, and links of doc comments."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from generate.pages import SOURCES
from generate.sources import REPOSITORY, relative
from generate.typedoc import MODULES

_STARS = ' data-md-component="source"'
_SEARCH = 'data-md-component="search" role="dialog"'


def on_config(config: Any) -> Any:
    """Lists the pages of Node, and shows which versions there are: `mike` writes their list beside them."""
    (reference,) = (tab["Reference"] for tab in config.nav if "Reference" in tab)
    node = next(entry for entry in reference if isinstance(entry, dict) and "Node" in entry)
    node["Node"] = _pages_of_node(Path(config.docs_dir))
    if os.environ.get("SITE_VERSIONS"):
        config.extra["version"] = {"provider": "mike", "alias": True, "default": "latest"}
    return config


def _pages_of_node(docs: Path) -> list[Any]:
    """Each module of the package, with its pages by kind."""
    nav: list[Any] = []
    for module, name in MODULES.items():
        here = docs / "reference" / "node" / module
        pages: list[Any] = [(here / "index.md").relative_to(docs).as_posix()]
        for kind in sorted(place for place in here.iterdir() if place.is_dir()):
            files = [file.relative_to(docs).as_posix() for file in sorted(kind.glob("*.md"))]
            pages.append({kind.name.replace("-", " ").capitalize(): files})
        nav.append({name: pages})
    return nav


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Names the search, which the theme leaves without a name, and asks nobody for the stars on GitHub."""
    del page
    if output.count(_SEARCH) != 1:
        raise ValueError("the theme has changed: where is its search?")
    if _STARS not in output:
        raise ValueError("the theme has changed: where is its link to the repository?")
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"').replace(_STARS, "")


def _breakable(cell: re.Match[str]) -> str:
    """Lets long code in a cell be broken between names, never inside one."""

    def breakable(code: re.Match[str]) -> str:
        words = re.sub(r"(?<=\S)( |::|/|\.)(?=\S)", r"\1<wbr>", code[2]) if len(code[2]) > 20 else code[2]
        return f"{code[1]}{words}</code>"

    return re.sub(r"(<code>)([^<]+)</code>", breakable, cell[0])


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Has links to the repository's pages lead to those of the site: doc comments can only name the former."""

    def followed(match: re.Match[str]) -> str:
        target = SOURCES.get(match[1])
        if target is None:
            return match[0]
        url = target.removesuffix("index.md") if target.endswith("index.md") else target.removesuffix(".md") + "/"
        return f'href="{relative(url or ".", page.url + "x")}/{match[2] or ""}"'

    html = re.sub(r"<td\b[^>]*>.*?</td>", _breakable, html, flags=re.S)
    return re.sub(rf'href="{re.escape(REPOSITORY)}/blob/(?:main|v\d[^/]*)/([^"#]+)(#[^"]*)?"', followed, html)
