"""A page that names what is not there is not built. The generator runs in the site's own environment (`make site`)."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
PYTHON = ROOT / "target" / "site-venv" / "bin" / "python"
BUILT = ROOT / "target" / "site"
DOCS = ROOT / "target" / "site-docs"

RENDER = """
import json, sys
from pathlib import Path
from generate.drawings import Recordings
from generate.pages import Pages
from generate.sources import BuildError, Links, ROOT
pages = Pages(Links(), Recordings(ROOT / "target" / "site-runs"), None)
pages._page = "guides/page.md"
try:
    print(json.dumps(pages._environment.from_string(sys.argv[1]).render()))
except BuildError as error:
    print(json.dumps(f"refused: {error}"))
"""


def rendered(template: str) -> str:
    """What becomes of a template."""
    done = subprocess.run([PYTHON, "-c", RENDER, template], cwd=SITE, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("template", "flaw"),
    [
        ('{{ page("core/docs/gone.md") }}', "core/docs/gone.md does not exist"),
        ('{{ section("README.md", "Gone") }}', "README.md has no section 'Gone'"),
        ('{{ paragraphs("README.md", "Gone") }}', "README.md has no section 'Gone'"),
        ('{{ named("core/docs/waiting.md", "Gone") }}', "core/docs/waiting.md has nothing that is called 'Gone'"),
        ('{{ example("start/gone") }}', "there is no example start/gone"),
        ('{{ example("which-lock/mutex") }}', "example which-lock/mutex is not in every language"),
        ('{{ page("core/docs/frameworks.md", without=("Gone",)) }}', "core/docs/frameworks.md has no section 'Gone'"),
        ('{{ page("core/docs/which-lock.md", also={"Gone": "start/lock"}) }}', "core/docs/which-lock.md has no"),
    ],
)
def test_what_is_gone_is_refused(template: str, flaw: str) -> None:
    assert rendered(template).startswith(f"refused: {flaw}")


def test_a_page_links_to_pages_of_the_site() -> None:
    text = rendered('{{ page("core/docs/services.md") }}')
    assert "](../concepts/waiting.md)" in text
    assert "](../security.md#the-fewest-rights)" in text
    assert "](waiting.md)" not in text


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md$", (SITE / "mkdocs.yml").read_text(), re.M))
    pages = {file.relative_to(SITE / "pages").as_posix() for file in (SITE / "pages").rglob("*.md")}
    assert listed == pages | {"reference/node/index/index.md"}


def test_the_site_says_the_promise() -> None:
    page = (DOCS / "concepts" / "promise.md").read_text()
    said = (ROOT / "core" / "docs" / "promise.md").read_text().partition("\n")[2]
    # This section has a link, which is another one on the site.
    before, _, rest = said.partition("## What it does not promise")
    for part in (before, rest[rest.index("\n## ") :]):
        assert re.sub(r"\s+", " ", part).strip() in re.sub(r"\s+", " ", page)


SHOWN = re.compile(r"^ *```(python|javascript|typescript|rust)\n(.*?)^ *```$", re.M | re.S)


def test_every_program_on_the_site_is_one_that_is_run() -> None:
    """The tests of core/docs and the examples run them. Doc comments in the reference have their own."""
    sources = [ROOT / "README.md", *(ROOT / "core" / "docs").glob("*.md"), ROOT / ".github" / "SECURITY.md"]
    run = "".join(file.read_text() for file in [*sources, *(SITE / "examples").rglob("*.*")] if file.is_file())
    known = re.sub(r"\s+", " ", run)
    for file in DOCS.rglob("*.md"):
        if file.is_relative_to(DOCS / "reference"):
            continue
        for _, code in SHOWN.findall(file.read_text()):
            assert re.sub(r"\s+", " ", code).strip() in known, f"{file.relative_to(DOCS)}: {code}"
