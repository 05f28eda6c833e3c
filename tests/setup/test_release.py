"""What `make release` refuses, and what it changes."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from pathlib import Path

import pytest

from setup import release

NOTES = "### Added\n\n- [A page](core/docs/page.md).\n\n"
FILES = {
    "CHANGELOG.md": f"# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n\n{NOTES}[Unreleased]: x\n",
    "Cargo.toml": '[workspace.package]\nversion = "0.0.9"\n',
    "Cargo.lock": "".join(
        f'[[package]]\nname = "{name}"\nversion = "0.0.9"\n\n' for name in ("redlock-core", "redlock-cli", "redis")
    ),
    "core/cli/Cargo.toml": '[package]\nversion = "0.0.9"\n\n[dependencies]\nredlock = { version = "=0.0.9" }\n',
    "core/docs/page.md": f"[a link]({release.REPOSITORY}/blob/main/core/README.md)\n",
    "node/package.json": '{\n  "version": "0.0.9"\n}\n',
    "node/package-lock.json": '{\n  "version": "0.0.9",\n  "packages": { "": {\n      "version": "0.0.9"\n} } }\n',
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout that can be released as 0.1.0."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    commit(tmp_path)
    return tmp_path


def git(checkout: Path, *words: str) -> None:
    """Has git do something."""
    settings = ("user.name=x", "user.email=x@example.com", "commit.gpgsign=false", "tag.gpgsign=false")
    options = [word for setting in settings for word in ("-c", setting)]
    subprocess.run(["git", "-C", checkout, *options, *words], check=True, capture_output=True)


def commit(checkout: Path) -> None:
    """Commits everything."""
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "x")


def refused(checkout: Path, version: str = "0.1.0") -> str:
    """The one reason against a release."""
    (reason,) = release.refusals(checkout, version, signs=False)
    return reason


def test_what_is_ready_is_not_refused(checkout: Path) -> None:
    assert release.refusals(checkout, "0.1.0", signs=False) == []
    assert refused(checkout, "0.1.0-rc.1") == "CHANGELOG.md has no section `## [0.1.0-rc.1]`, or it is empty"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("## [Unreleased]\n", "## [Unreleased]\n\n- More.\n", "CHANGELOG.md has changes under [Unreleased]"),
        ("page.md", "gone.md", "the notes link to core/docs/gone.md, which does not exist"),
        (NOTES, "", "CHANGELOG.md has no section `## [0.1.0]`, or it is empty"),
    ],
    ids=["unreleased", "a link", "no notes"],
)
def test_notes_that_are_not_true_are_refused(checkout: Path, old: str, new: str, reason: str) -> None:
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(changelog.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    commit(checkout)
    assert refused(checkout).startswith(reason)


def test_a_checkout_that_is_not_as_it_should_be_is_refused(checkout: Path) -> None:
    assert "is no version" in refused(checkout, "v0.1.0")
    (checkout / "more.txt").touch()
    assert refused(checkout) == "the checkout has changes that are not committed: more.txt"
    (checkout / "more.txt").unlink()
    git(checkout, "switch", "--quiet", "--create", "other")
    assert refused(checkout) == "the branch is 'other', not main"
    git(checkout, "switch", "--quiet", "main")
    for tag, is_refused in [("v0.1.0-rc.2", False), ("v0.1.0", True)]:
        git(checkout, "tag", tag)
        assert bool(release.refusals(checkout, "0.1.0", signs=False)) == is_refused, tag
    assert any("user.signingkey" in reason for reason in release.refusals(checkout, "0.1.0")) or shutil.which("gpg")


@pytest.mark.parametrize("program", [False, True], ids=["all", "the program"])
def test_each_version_is_set(checkout: Path, *, program: bool) -> None:
    edits = release.edited(checkout, "0.1.0", datetime.date(2026, 12, 1), program=program)
    changed = {str(path.relative_to(checkout)) for path in edits}
    of_program = {"CHANGELOG.md", "Cargo.lock", "core/cli/Cargo.toml", "core/docs/page.md"}
    assert changed == (of_program if program else FILES.keys())
    old = sum(edits.get(checkout / name, text).count("0.0.9") for name, text in FILES.items())
    # That of a dependency, and those of the library.
    assert old == (7 if program else 1)
    assert "## [0.1.0] - 2026-12-01\n" in edits[checkout / "CHANGELOG.md"]
    assert edits[checkout / "CHANGELOG.md"].endswith(f"[0.1.0]: {release.REPOSITORY}/releases/tag/v0.1.0\n")
    assert edits[checkout / "core/docs/page.md"] == f"[a link]({release.REPOSITORY}/blob/v0.1.0/core/README.md)\n"
