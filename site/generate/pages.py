"""Makes the pages of the site from the templates in `site/pages`, which name the sources of what they show."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import jinja2
from pymdownx.slugs import slugify

from generate import reference, shape
from generate.drawings import TROUBLES, Recordings
from generate.reference import Rustdoc
from generate.shape import TABS, Tab
from generate.sources import SITE, BuildError, Links, masked, part, relative, sections, text_of, unmasked

PAGES = SITE / "pages"
EXAMPLES = SITE / "examples"

_FILES = {"Python": "python.py", "asyncio": "asynchronous.py", "Node": "node.mjs", "Rust": "rust.rs"}
_CODE = {"Python": "python", "asyncio": "python", "Node": "js", "Rust": "rust"}

SOURCES = {
    "core/docs/architecture.md": "concepts/architecture.md",
    "core/docs/choose-a-ttl.md": "guides/choose-a-ttl.md",
    "core/docs/command-line.md": "guides/command-line.md",
    "core/docs/comparison.md": "guides/compare.md",
    "core/docs/compatibility.md": "guides/compatibility.md",
    "core/docs/errors.md": "reference/errors.md",
    "core/docs/failover.md": "concepts/failover.md",
    "core/docs/faq.md": "faq.md",
    "core/docs/fence.md": "guides/fence.md",
    "core/docs/frameworks.md": "guides/frameworks.md",
    "core/docs/glossary.md": "concepts/glossary.md",
    "core/docs/how-we-know.md": "how-we-know.md",
    "core/docs/is-redlock-safe.md": "concepts/is-redlock-safe.md",
    "core/docs/lock-or-transaction.md": "guides/lock-or-transaction.md",
    "core/docs/moving.md": "guides/moving.md",
    "core/docs/observing.md": "guides/observing.md",
    "core/docs/options.md": "reference/options.md",
    "core/docs/processes.md": "concepts/processes.md",
    "core/docs/promise.md": "concepts/promise.md",
    "core/docs/protocol.md": "concepts/protocol.md",
    "core/docs/quick-start.md": "start.md",
    "core/docs/services.md": "guides/services.md",
    "core/docs/setnx.md": "guides/setnx.md",
    "core/docs/sizing.md": "guides/sizing.md",
    "core/docs/stuck-or-lost.md": "guides/stuck-or-lost.md",
    "core/docs/upgrading.md": "guides/upgrading.md",
    "core/docs/waiting.md": "concepts/waiting.md",
    "core/docs/which-lock.md": "guides/which-lock.md",
    ".github/SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "tests/bench/RESULTS.md": "benchmarks.md",
}
"""The page of the site that a file of the repository is on."""

MOVED = {
    ("README.md", "install"): "start.md#install",
    ("README.md", "what-it-promises"): "concepts/promise.md",
    ("core/docs/frameworks.md", "jest-and-vitest"): "guides/testing.md#jest-and-vitest",
    ("core/docs/frameworks.md", "pytest"): "guides/testing.md#pytest",
    ("core/docs/frameworks.md", "testing-a-program"): "guides/testing.md",
}
"""Where a section is that is not on the page of its file."""


class Pages:
    """All pages, made one after the other."""

    def __init__(self, links: Links, recordings: Recordings, rust: Rustdoc | None) -> None:
        links.pages |= SOURCES
        links.moved |= MOVED
        self.links = links
        self.made: dict[str, str] = {}
        self._page = ""
        self._shown: set[str] = set()
        self._groups: set[tuple[str, str]] = set()
        self._rustdoc = rust
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(PAGES),
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        given: Mapping[str, Callable[..., str]] = {
            "page": self._whole,
            "section": self._section,
            "paragraphs": self._paragraphs,
            "example": self._example,
            "program": self._program,
            "output": self._output,
            "errors": lambda: self._shaped(reference.errors(), "core/docs/errors.md"),
            "options": lambda: self._shaped(reference.options(), "core/docs/options.md"),
            "surface": lambda: reference.surface(self._page),
            "reasons": reference.reasons,
            "drawing": recordings.drawing,
            "stories": recordings.stories,
            "intro": self._intro,
            "named": self._named,
            "picture": self._picture,
            "promise": self._promise,
            "follows": reference.follows,
            "refused": reference.refused,
            "python": self._python,
            "rust": self._rust,
        }
        self._environment.globals.update(given)
        self._environment.globals["runs"] = " ".join(TROUBLES)

    def make(self) -> dict[str, str]:
        """The text of each page, by its path on the site."""
        for file in sorted(PAGES.rglob("*.md")):
            self._page = file.relative_to(PAGES).as_posix()
            text = self._environment.get_template(self._page).render()
            self.made[self._page] = shape.for_mkdocs(text)
        for source, page in SOURCES.items():
            if page not in self.made:
                raise BuildError(f"{source} has no page: site/pages/{page} does not exist")
        if missing := (reference.python_groups() | reference.rust_groups()) - self._groups:
            raise BuildError(f"no page of the reference has these groups of surface.json: {missing}")
        _link_titles(self.made)
        return self.made

    def _python(self, face: str, *groups: str) -> str:
        self._groups |= {(face, group) for group in groups}
        return reference.python(face, groups)

    def _rust(self, *groups: str) -> str:
        self._groups |= {("rust", group) for group in groups}
        return reference.rust(self._rustdoc, groups)

    def unused_examples(self) -> list[str]:
        """Examples that no page shows."""
        return sorted(
            {folder.parent.relative_to(EXAMPLES).as_posix() for folder in EXAMPLES.rglob("*.py")} - self._shown
        )

    def _shaped(self, text: str, path: str, also: Mapping[str, str] | None = None) -> str:
        text = shape.with_tabs(self.links.rewritten(text, path, self._page), also)
        return shape.relexed(text)

    def _whole(
        self, path: str, *, headings: int = 0, also: Mapping[str, str] | None = None, without: tuple[str, ...] = ()
    ) -> str:
        """A file of the repository. `also` names examples with more tabs for the programs in its sections."""
        text = text_of(path)
        for title in without:
            body = sections(text, 2).get(title)
            if body is None:
                raise BuildError(f"{path} has no section {title!r}")
            text = re.sub(rf"^## {re.escape(title)}\n+{re.escape(body)}\n*", "", text, flags=re.M)
        parts = [text]
        if also:
            parts = re.split(r"(?=^## )", text, flags=re.M)
            titles = {part.partition("\n")[0].removeprefix("## ") for part in parts}
            if missing := also.keys() - titles:
                raise BuildError(f"{path} has no section {missing}")
        made = []
        for piece in parts:
            name = (also or {}).get(piece.partition("\n")[0].removeprefix("## "))
            made.append(self._shaped(piece, path, self._tabs_of(name) if name else None))
        text = "\n\n".join(made)
        return shape.with_headings(text, headings) if headings else text

    def _section(self, path: str, title: str) -> str:
        """What a file of the repository has below a heading."""
        return self._shaped(part(path, title), path)

    def _paragraphs(self, path: str, title: str, first: int = 0, last: int | None = None) -> str:
        """Some of the paragraphs of a section."""
        bare, kept = masked(part(path, title))
        return self._shaped(unmasked("\n\n".join(bare.split("\n\n")[first:last]), kept), path)

    def _before(self, path: str) -> list[str]:
        """The paragraphs of a file before its first section."""
        bare, kept = masked(text_of(path))
        head = re.split(r"^## ", bare.partition("\n")[2], maxsplit=1, flags=re.M)[0]
        return [unmasked(part, kept) for part in head.strip().split("\n\n")]

    def _intro(self, path: str, first: int, last: int) -> str:
        return self._shaped("\n\n".join(self._before(path)[first:last]), path)

    def _named(self, path: str, name: str) -> str:
        """The paragraph, or the point of a list, that begins with this name in bold."""
        bare, kept = masked(text_of(path))
        item = rf"(?:^\d+\. (?=\*\*{re.escape(name)}\*\*)|^(?=\*\*{re.escape(name)}\.?\*\*))"
        found = re.search(rf"{item}(.*?)(?=\n\n|^\d+\. |\Z)", bare, re.M | re.S)
        if not found:
            raise BuildError(f"{path} has nothing that is called {name!r}")
        text = re.sub(r"^ +", "", unmasked(found[1], kept), flags=re.M)
        return self._shaped(text.replace(f"**{name}.** ", ""), path)

    def _picture(self, path: str, about: str, narrow: str = "") -> str:
        """A picture of the repository, with another one for a `narrow` screen."""
        target, slim = (file and self.links.followed(file, "README.md", self._page) for file in (path, narrow))
        image = f"![{about}]({target})"
        return f'<picture><source media="(max-width: 44em)" srcset="{slim}">{image}</picture>' if narrow else image

    def _promise(self) -> str:
        """The page about the promise. What README says of it has to be there, word for word."""
        path = "core/docs/promise.md"
        text = text_of(path)
        said = part("README.md", "What it promises")
        points = [part for part in said.split("\n\n") if part.startswith("- ")]
        if points != [part(path, "In short")]:
            raise BuildError(f"README and {path} promise different things")
        return self._shaped(text, path)

    def _tabs_of(self, name: str) -> dict[str, str]:
        folder = EXAMPLES / name
        found = {title: folder / file for title, file in _FILES.items() if (folder / file).is_file()}
        if not found:
            raise BuildError(f"there is no example {name}")
        self._shown.add(name)
        return {
            title: shape.code_block(_CODE[title], file.read_text(encoding="utf-8")) for title, file in found.items()
        }

    def _example(self, name: str) -> str:
        """The same program in all languages, in tabs."""
        found = self._tabs_of(name)
        if list(found) != TABS:
            raise BuildError(f"example {name} is not in every language, but in {list(found)}")
        return shape.tabs(Tab(title, code) for title, code in found.items())

    def _program(self, path: str) -> str:
        """A program of the repository, without the comments that are for its own readers."""
        text = text_of(path)
        language = {".py": "python", ".mjs": "js", ".rs": "rust", ".sh": "sh"}[Path(path).suffix]
        if "# docs: begin\n" in text:
            text = text.split("# docs: begin\n")[1].split("# docs: end\n")[0]
        return shape.code_block(language, text)

    def _output(self, name: str) -> str:
        """What an example prints, in every language."""
        return "It prints:\n\n" + shape.code_block("text", (EXAMPLES / name / "output.txt").read_text(encoding="utf-8"))


def _link_titles(made: dict[str, str]) -> None:
    """Makes links of the titles of pages and sections that stand in italics."""
    pages: dict[str, str] = {}
    for page, text in made.items():
        if title := re.search(r"^# (.+)$", masked(text)[0], re.M):
            pages[title[1]] = page
    for page, text in made.items():
        bare, kept = masked(text)
        own = {head[1]: head[1] for head in re.finditer(r"^##+ ([^`\x02]+)$", bare, re.M)}

        def linked(match: re.Match[str], page: str = page, own: dict[str, str] = own) -> str:
            title = re.sub(r"\s+", " ", match[1])
            if pages.get(title, page) != page:
                return f"[*{match[1]}*]({relative(pages[title], page)})"
            return f"[*{match[1]}*](#{slug(title)})" if title in own else match[0]

        bare = re.sub(r"(?<![\w*\[])\*([A-Z][^*\x02]{4,80}?)\*(?![\w*])", linked, bare)
        made[page] = unmasked(bare, kept)


def slug(title: str) -> str:
    """The anchor of a heading, as MkDocs makes it."""
    return str(slugify(case="lower")(title, "-"))
