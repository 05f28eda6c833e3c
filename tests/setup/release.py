"""Makes a release up to its signed tag: `make release VERSION=0.2.0`, with `ARGS=--dry` only what it would do.

It refuses first what cannot be released, all reasons at once. Then it sets the version wherever one stands, dates the
section of the changelog, has published pages link the tag, runs `make gate`, commits and tags; a second commit has the
pages link `main` again. It pushes nothing. `ARGS=--program` releases the program `redlock` alone.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-rc\.(\d+))?")
REPOSITORY = "https://github.com/redlock-rs/redlock"
LINKED = re.compile(rf"(?<={re.escape(REPOSITORY)}/blob/)(main|v\d[^/]*)(?=/)")
"""What a link to a page of the repository names: a branch or a tag."""
PUBLISHED = [
    *("core/README.md", "core/cli/README.md", "core/cli/src/lib.rs", "core/docs/*.md", "node/README.md"),
    *("python/README.md", "python/pyproject.toml", "observability/*"),
]
"""What leaves the repository, with links back to it."""

Edits = dict[Path, str]


def main() -> int:
    """Runs the program; returns its exit status."""
    parser = argparse.ArgumentParser(prog="make release", description="Make a release up to its signed tag.")
    parser.add_argument("version")
    parser.add_argument("--dry", action="store_true", help="only say what would be done")
    parser.add_argument("--program", action="store_true", help="the program `redlock` alone: no library changes")
    args = parser.parse_args()
    if reasons := refusals(HERE, args.version, signs=not args.dry):
        print(f"{args.version} is not released:", *(f"  - {reason}" for reason in reasons), sep="\n", file=sys.stderr)
        return 1
    edits = edited(HERE, args.version, datetime.datetime.now(tz=datetime.UTC).date(), program=args.program)
    if args.dry:
        print(f"would release {args.version}:", *(f"  {path.relative_to(HERE)}" for path in sorted(edits)), sep="\n")
        print("would run `make gate`, commit, and tag:\n", section(HERE, args.version).strip(), sep="\n")
        return 0
    _release(args.version, edits)
    print(f"now: git push origin main v{args.version}")
    return 0


def _release(version: str, edits: Edits) -> None:
    for path, text in edits.items():
        path.write_text(text, encoding="utf-8")
    subprocess.run(["make", "gate"], cwd=HERE, check=True)
    _git(HERE, "commit", "--all", "--message", f"release {version}")
    tag(HERE, version)
    for path, text in linking(HERE, "main").items():
        path.write_text(text, encoding="utf-8")
    _git(HERE, "commit", "--all", "--message", f"docs: link main again after {version}")


def tag(root: Path, version: str) -> None:
    """Signs a tag that says what the changelog says of the version."""
    message = f"redlock {version}\n\n{section(root, version).strip()}\n"
    # Headings begin with what git takes for comments. The signature has to begin a line.
    _git(root, "tag", "--sign", "--cleanup=verbatim", "--message", message, f"v{version}")


# --- What cannot be released ---


def refusals(root: Path, version: str, *, signs: bool = True) -> list[str]:
    """Every reason why this version cannot be released now."""
    return list(_refusals(root, version, signs=signs))


def _refusals(root: Path, version: str, *, signs: bool) -> Iterator[str]:
    if not VERSION.fullmatch(version):
        yield f"{version!r} is no version: 0.2.0 is one, and 0.2.0-rc.1"
        return
    tags = [tag.removeprefix("v") for tag in _git(root, "tag", "--list", "v*").split()]
    if later := [tag for tag in tags if VERSION.fullmatch(tag) and _order(tag) >= _order(version)]:
        yield f"there is a tag of the same or a later version: v{max(later, key=_order)}"
    if changed := _git(root, "status", "--porcelain"):
        yield f"the checkout has changes that are not committed: {changed.split(maxsplit=1)[1].splitlines()[0]}"
    if (branch := _git(root, "branch", "--show-current").strip()) != "main":
        yield f"the branch is {branch!r}, not main"
    if signs and not _git(root, "config", "--default", "", "--get", "user.signingkey").strip():
        yield "git has no key to sign the tag with (user.signingkey)"
    if section(root, "Unreleased").strip():
        yield "CHANGELOG.md has changes under [Unreleased]: move them below a heading of this version"
    notes = section(root, version)
    if not notes.strip():
        yield f"CHANGELOG.md has no section `## [{version}]`, or it is empty"
    for target in sorted(set(re.findall(r"\]\((?![a-z]+:)([^)#\s]+)", notes))):
        if not (root / target).exists():
            yield f"the notes link to {target}, which does not exist"


def _order(version: str) -> tuple[int, ...]:
    match = VERSION.fullmatch(version)
    assert match, version
    # A candidate comes before its release.
    return (*map(int, match.groups()[:3]), int(match[4]) if match[4] else sys.maxsize)


def section(root: Path, version: str) -> str:
    """What the changelog says of a version."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## \[{re.escape(version)}\].*\n((?:(?!## |\[[^\]]+\]: ).*\n?)*)", text, re.MULTILINE)
    return found[1] if found else ""


# --- What a release changes ---


def edited(root: Path, version: str, day: datetime.date, *, program: bool) -> Edits:
    """The files that a release changes, with what they then have."""
    edits: Edits = linking(root, f"v{version}")

    def edit(name: str, change: Callable[[str], str]) -> None:
        path = root / name
        text = edits.get(path) or path.read_text(encoding="utf-8")
        if (after := change(text)) != text:
            edits[path] = after

    def numbered(pattern: str, most: int = 1) -> Callable[[str], str]:
        return lambda text: re.sub(pattern, rf"\g<1>{version}\g<2>", text, count=most, flags=re.MULTILINE)

    edit("core/cli/Cargo.toml", numbered(r'^(version = ")[^"]+(")'))
    if not program:
        edit("Cargo.toml", numbered(r'^(version = ")[^"]+(")'))
        edit("core/cli/Cargo.toml", numbered(r'(version = "=)[^"]+(")'))
        edit("node/package.json", numbered(r'^(  "version": ")[^"]+(")'))
        # Its own version stands twice at the head.
        edit("node/package-lock.json", numbered(r'^((?:  |      )"version": ")[^"]+(")', 2))
    # Packages of the tests that have no version keep it.
    ours = "redlock-cli" if program else 'redlock-[^"]+'
    for name in _git(root, "ls-files", "*Cargo.lock").split():
        edit(name, numbered(rf'(name = "{ours}"\nversion = ")(?!0\.0\.0")[^"]+(")', most=0))
    edit("CHANGELOG.md", lambda text: _closed(text, version, day))
    return edits


def _closed(text: str, version: str, day: datetime.date) -> str:
    """The changelog with the day, and with the link of the version."""
    text = text.replace(f"## [{version}]\n", f"## [{version}] - {day}\n")
    text = re.sub(rf"^\[(?:Unreleased|{re.escape(version)})\]: .*\n", "", text, flags=re.MULTILINE)
    links = f"[Unreleased]: {REPOSITORY}/compare/v{version}...HEAD\n[{version}]: {REPOSITORY}/releases/tag/v{version}\n"
    older = re.search(r"^\[\d", text, re.MULTILINE)
    place = older.start() if older else len(text)
    return text[:place] + links + text[place:]


def linking(root: Path, ref: str) -> Edits:
    """The published pages that do not link to this branch or tag, as they are when they do."""
    texts: Iterable[tuple[Path, str]] = (
        (file, file.read_text(encoding="utf-8")) for pattern in PUBLISHED for file in sorted(root.glob(pattern))
    )
    return {file: LINKED.sub(ref, text) for file, text in texts if LINKED.sub(ref, text) != text}


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
