"""Changes what MkDocs and its theme write: names that screen readers need, and links of doc comments."""

from __future__ import annotations

import os
import re
from typing import Any

from generate.pages import SOURCES
from generate.sources import REPOSITORY, relative

_SEARCH = 'data-md-component="search" role="dialog"'


def on_config(config: Any) -> Any:
    """Shows which versions there are, where they are: `mike` writes the list beside them."""
    if os.environ.get("SITE_VERSIONS"):
        config.extra["version"] = {"provider": "mike", "alias": True, "default": "latest"}
    return config


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Names the dialog of the search, which the theme leaves without a name."""
    del page
    if output.count(_SEARCH) != 1:
        raise ValueError("the theme has changed: where is its search?")
    return output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')


def _breakable(cell: re.Match[str]) -> str:
    """Lets long names in a cell be broken where their words end."""

    def breakable(code: re.Match[str]) -> str:
        words = re.sub(r"(?<=[\w.])(_|::|/|\.|-)(?=\w)", r"\1<wbr>", code[2]) if len(code[2]) > 12 else code[2]
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
