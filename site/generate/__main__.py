"""Builds the site: `python -m generate`, from `site/`, in the environment of `site/requirements.txt`.

Exit code 0: the site is in `target/site`. 1: something is wrong with a source, and nothing was published.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from generate import check
from generate.drawings import Recordings
from generate.pages import Pages
from generate.reference import Rustdoc
from generate.sources import ROOT, SITE, BuildError, Links, text_of
from generate.typedoc import reference_of_node

TARGET = ROOT / "target"
DOCS = TARGET / "site-docs"
OUTPUT = TARGET / "site"
RUNS = TARGET / "site-runs"
CARGO = TARGET / "site-cargo"
NPM = TARGET / "site-npm"


def main() -> int:
    """Builds what the arguments say."""
    parser = argparse.ArgumentParser(prog="generate", description="Build the site in target/site.")
    parser.add_argument("--fast", action="store_true", help="keep the recordings and the reference of the last build")
    parser.add_argument("--ref", default="main", help="the branch or tag that links to the repository name")
    options = parser.parse_args()
    try:
        build(fast=options.fast, ref=options.ref)
    except (BuildError, subprocess.CalledProcessError) as error:
        print(f"the site is not built: {error}", file=sys.stderr)
        return 1
    return 0


def build(*, fast: bool, ref: str) -> None:
    """Writes the pages, has MkDocs make the site, and checks it."""
    if not fast or not RUNS.is_dir():
        record()
    if not fast or not (CARGO / "doc").is_dir():
        rustdoc()
    shutil.rmtree(DOCS, ignore_errors=True)
    DOCS.mkdir(parents=True)
    copy_rustdoc(DOCS / "reference" / "rust")
    links = Links(ref=ref)
    pages = Pages(links, Recordings(RUNS), Rustdoc(DOCS / "reference" / "rust"))
    made = pages.make()
    made |= reference_of_node(NPM, TARGET / "site-typedoc", keep=fast)
    if unused := pages.unused_examples():
        raise BuildError(f"no page shows these examples: {', '.join(unused)}")
    for page, text in made.items():
        file = DOCS / page
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    for picture in links.pictures:
        (DOCS / "pictures").mkdir(exist_ok=True)
        shutil.copy(ROOT / picture, DOCS / "pictures")
    shutil.copytree(SITE / "assets", DOCS / "assets")
    shutil.copytree(RUNS, DOCS / "assets" / "runs")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "true"}
    # Not `--quiet`: what is not written is not counted, and strict then means nothing.
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--clean", "--strict", "--config-file", str(SITE / "mkdocs.yml")]
    done = subprocess.run(mkdocs, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("INFO")]
        raise BuildError("\n".join(["MkDocs has found:", *lines]))
    if flaws := check.flaws(OUTPUT):
        raise BuildError("\n".join(["the site has flaws:", *flaws]))


def record() -> None:
    """Plays the simulation, and writes down what happens."""
    cargo("build", "--quiet", "--locked", "--package", "redlock-site-recorder")
    shutil.rmtree(RUNS, ignore_errors=True)
    RUNS.mkdir(parents=True)
    subprocess.run([CARGO / "debug" / "redlock-site-recorder", RUNS], check=True)


def rustdoc() -> None:
    """Writes the reference of the crate."""
    shutil.rmtree(CARGO / "doc", ignore_errors=True)
    features = tomllib.loads(text_of("core/Cargo.toml"))["package"]["metadata"]["docs"]["rs"]["features"]
    options = ("--no-deps", "--package", "redlock-core", "--features", ",".join(features))
    cargo("doc", "--quiet", "--locked", "--manifest-path", str(ROOT / "Cargo.toml"), *options)


def copy_rustdoc(place: Path) -> None:
    """Puts the reference of the crate among the pages."""
    shutil.copytree(CARGO / "doc", place, ignore=shutil.ignore_patterns(".lock"))
    for licence in place.rglob("*.md"):
        # MkDocs would make a page of it.
        licence.rename(licence.with_suffix(".txt"))
    for page in (place / "redlock").rglob("trait.*.html"):
        # What other crates implement is fetched from a script that rustdoc leaves out if there is nothing.
        for script in re.findall(r'<script src="([^"]*/trait\.impl/[^"]*)"', page.read_text(encoding="utf-8")):
            (page.parent / script).parent.mkdir(parents=True, exist_ok=True)
            (page.parent / script).touch()


def cargo(*arguments: str) -> None:
    """Runs cargo in the site's own workspace."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(CARGO), "RUSTDOCFLAGS": "-D warnings"}
    subprocess.run(["cargo", *arguments], cwd=SITE, check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
