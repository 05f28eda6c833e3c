"""What the generator makes of the sources, and that it does not build what is wrong."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

sources: Any = importlib.import_module("generate.sources")
shape: Any = importlib.import_module("generate.shape")
check: Any = importlib.import_module("generate.check")

LANGUAGES = """Text.

```rust,no_run
let guard = redlock.lock("foo").await?;
```

```python
with redlock.lock("foo"):
    # a comment
    work()
```

```js
await lock("foo").using(work);
```

More.
"""


def titles(text: str) -> list[str]:
    return re.findall(r'^=== "(\w+)"$', text, re.M)


def test_programs_in_several_languages_become_tabs() -> None:
    made = shape.with_tabs(LANGUAGES)
    assert titles(made) == ["Python", "Node", "Rust"]
    assert made.startswith("Text.\n\n=== ")
    assert made.endswith("More.\n")
    assert "    ```python\n    with redlock" in made


def links() -> Any:
    return sources.Links(pages={"core/docs/waiting.md": "concepts/waiting.md"}, ref="v1")


@pytest.mark.parametrize(
    ("target", "followed"),
    [
        ("waiting.md", "../concepts/waiting.md"),
        ("waiting.md#a", "../concepts/waiting.md#a"),
        ("../../tests/README.md", "https://github.com/redlock-rs/redlock/blob/v1/tests/README.md"),
        ("https://github.com/redlock-rs/redlock/blob/main/core/docs/waiting.md", "../concepts/waiting.md"),
        ("https://redis.io/docs", "https://redis.io/docs"),
    ],
)
def test_links_lead_to_the_site_or_the_repository(target: str, followed: str) -> None:
    assert links().followed(target, "core/docs/services.md", "guides/services.md") == followed


@pytest.mark.parametrize("target", ["gone.md", "https://github.com/redlock-rs/redlock/blob/main/core/docs/gone.md"])
def test_a_link_to_nothing_ends_the_build(target: str) -> None:
    with pytest.raises(sources.BuildError, match=r"core/docs/gone\.md"):
        links().followed(target, "core/docs/services.md", "guides/services.md")


def test_code_is_left_alone() -> None:
    text = "`[a](gone.md)`\n\n```text\n# no heading [a](gone.md)\n```"
    assert links().rewritten(text, "core/docs/waiting.md", "concepts/waiting.md") == text
    assert sources.sections(f"## One\n\n{text}\n", 2) == {"One": text}


PAGE = '<html><body><h1 id="top">x</h1>{}</body></html>'


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        ('<a href="gone/">x</a>', "index.html: gone/ does not exist"),
        ('<a href="#gone">x</a>', "index.html: #gone has no such section"),
        ('<a href="other/#gone">x</a>', "index.html: other/#gone has no such section"),
        ('<img src="gone.svg" alt="x">', "index.html: gone.svg does not exist"),
        ('<img src="other/a.svg">', "index.html: the picture other/a.svg has no text"),
        ('<script src="https://example.org/x.js"></script>', "index.html: fetches https://example.org/x.js"),
        ('<link rel="preconnect" href="//example.org">', "index.html: fetches //example.org"),
    ],
)
def test_flaws_are_found(body: str, flaw: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text(PAGE.format(""))
    (tmp_path / "other" / "a.svg").write_text("<svg/>")
    (tmp_path / "index.html").write_text(PAGE.format(body))
    assert check.flaws(tmp_path) == [flaw]


def test_a_sound_site_has_no_flaws(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text(PAGE.format('<a href="..">x</a><a href="../#top">x</a>'))
    (tmp_path / "index.html").write_text(PAGE.format('<a href="other/">x</a><a href="https://example.org">x</a>'))
    assert check.flaws(tmp_path) == []
