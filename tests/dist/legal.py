"""The licences of others: what is bundled, under which terms, and the bill of materials."""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from pathlib import Path

from dist.version import ROOT
from dist.workshop import OUT, DistError, run

HERE = Path(__file__).resolve().parent

PLACES = ("file://", *(f"{folder}/" for folder in (ROOT, Path.home(), Path(tempfile.gettempdir()))))
"""How places begin that only the machine that built it should know."""

CHECKS = ("licenses", "bans", "sources")
"""What needs no network. Advisories do, and are read each night."""


def check_places(name: str, text: str) -> None:
    """Fails if a text names a place on this machine."""
    if found := [place for place in PLACES if place in text]:
        raise DistError(f"{name} names a place on this machine: {found[0]}")


def check_dependencies() -> None:
    """Fails if a dependency has a licence, a source or a version that is not allowed."""
    for package in ("core", "core/cli", "python", "node"):
        manifest = ("--manifest-path", ROOT / package / "Cargo.toml")
        run(*("cargo", "deny", "--locked", *manifest, "--config", HERE / "deny.toml"), *("check", *CHECKS))


def write_notices(manifest: Path, file: Path) -> None:
    """Writes the licences of everything that is linked into what `manifest` builds."""
    run(
        *("cargo", "about", "generate", "--frozen", "--fail", "--config", HERE / "about.toml"),
        *("--manifest-path", manifest, "--output-file", file, HERE / "about.hbs"),
    )
    check_places(file.name, file.read_text(encoding="utf-8"))


def write_bom(manifest: Path, name: str) -> Path:
    """Writes the bill of materials of what `manifest` builds."""
    made = f"{name}.cdx.json"
    options = ("--format", "json", "--spec-version", "1.5", "--no-build-deps", "--override-filename", f"{name}.cdx")
    run("cargo", "cyclonedx", "--quiet", "--manifest-path", manifest, *options)
    text = portable_bom(made, (manifest.parent / made).read_text(encoding="utf-8"))
    # It has written one for every member of the workspace.
    for member in tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["members"]:
        (ROOT / member / made).unlink(missing_ok=True)
    file = OUT / "sbom" / made
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def portable_bom(name: str, text: str) -> str:
    """The bill of materials without the places where it was made; fails if one is left, or if it is empty."""
    text = text.replace(f"path+file://{ROOT}/", "")
    text = re.sub(r"\?download_url=file://[^#\"]*", "", text)
    if not json.loads(text).get("components"):
        raise DistError(f"the bill of materials {name} is empty")
    check_places(f"the bill of materials {name}", text)
    return text
