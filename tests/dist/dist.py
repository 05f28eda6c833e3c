"""Builds what is published into `target/dist/`, and tries it as somebody who has neither this checkout nor Rust.

Each part is built, checked and tried by itself. Exit status 0 only if all of them passed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from dist import crate, legal, npm, program, wheel
from dist.platforms import Platform, here, named
from dist.workshop import OUT, Artefact, DistError, emptied

PARTS: dict[str, Callable[[Platform], list[Artefact]]] = {
    "crate": crate.make,
    "sdist": wheel.make_sdist,
    "wheel": wheel.make_wheel,
    "npm": npm.make,
    "program": program.make,
}


def main() -> int:
    """Runs the program; returns its exit status."""
    parser = argparse.ArgumentParser(description="Build what is published, and try it.")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)} (all)")
    parser.add_argument("--target", help="the platform, as Rust names it (this machine's)")
    args = parser.parse_args()
    parts = args.only.split(",")
    if unknown := set(parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    platform = named(args.target) if args.target else here()
    emptied(OUT)
    made: list[Artefact] = []
    try:
        say("checking the dependencies")
        legal.check_dependencies()
        for part in parts:
            say(f"building and trying: {part}")
            for artefact in PARTS[part](platform):
                artefact.check_size()
                made.append(artefact)
        if len(set().union(*(artefact.manuals for artefact in made))) > 1:
            raise DistError("the programs `redlock` that were installed are not one program")
    except DistError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    finally:
        show(made)
    return 0


def say(what: str) -> None:
    """Prints a line at once."""
    print(what, flush=True)


def show(made: list[Artefact]) -> None:
    """Prints the table of what was built."""
    width = max([len(artefact.path.name) for artefact in made], default=0)
    print(f"\n{'artefact':{width}} {'kB':>7}  tried with")
    for artefact in made:
        print(f"{artefact.path.name:{width}} {artefact.path.stat().st_size / 1000:>7,.0f}  {'; '.join(artefact.tried)}")
    others = sorted(path for folder in ("debug", "sbom") for path in Path(OUT / folder).glob("*"))
    for path in others:
        print(f"{path.relative_to(OUT)}")


if __name__ == "__main__":
    sys.exit(main())
