"""Compares this library, its peers and a socket without a library on the same servers, in one run.

make bench                              a few minutes: shown, and written to target/bench
make bench ARGS=--long                  most of an hour: five longer runs; writes RESULTS.md
make bench ARGS='--only handover,node'  one workload, one subject
make bench ARGS=--redraw                the kept page once more, from the kept numbers
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import page
from bench.results import Results
from bench.session import FORMS, Session
from bench.subjects import ROOT, SUBJECTS, TARGET, Subject, built_in
from bench.subjects import chosen as chosen_subjects
from bench.workload import WORKLOADS
from bench.workload import chosen as chosen_workloads


def main() -> int:
    """Runs the program; returns the exit status."""
    args = parse()
    if args.redraw:
        page.PAGE.write_text(page.text(Results.read(page.NUMBERS)))
        return 0
    try:
        results = run(args, built_in(chosen_subjects(args.only), args.programs))
    except KeyboardInterrupt:
        print("\nstopped; nothing is left running", file=sys.stderr)
        return 130
    # Only a whole long run replaces the kept page.
    kept = args.form == "long" and not (args.out or args.only)
    directory = page.HERE if kept else args.out or TARGET / "bench"
    results.write(directory / page.NUMBERS.name)
    text = page.text(Results.read(directory / page.NUMBERS.name))
    (directory / page.PAGE.name).write_text(text)
    print(text)
    return 0


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="Compare speed with other lock libraries and with a bare socket.")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--long", dest="form", action="store_const", const="long", help="make the kept page: five runs")
    form.add_argument("--smoke", dest="form", action="store_const", const="smoke", help="only see that it works")
    known = [*(workload.name for workload in WORKLOADS), *(subject.name for subject in SUBJECTS)]
    only = f"only these workloads and subjects: {', '.join(known)}"
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], metavar="NAME,...", help=only)
    parser.add_argument("--programs", type=Path, default=TARGET / "dist", help="where redlock-bench is")
    parser.add_argument("--out", type=Path, help="where page and numbers go")
    parser.add_argument("--redraw", action="store_true", help="make the page once more from the kept numbers")
    args = parser.parse_args()
    args.form = args.form or "short"
    unknown = set(args.only) - set(known)
    if unknown:
        parser.error(f"nothing is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return args


def run(args: argparse.Namespace, subjects: Sequence[Subject]) -> Results:
    """Measures everything."""
    missing = {subject.name: subject.missing for subject in subjects if subject.missing}
    here = [subject for subject in subjects if not subject.missing]
    for name, why in missing.items():
        print(f"not here: {name}, because {why}", flush=True)
    machine = about_machine()
    sessions = [measured(args, here, run) for run in range(FORMS[args.form].runs)]
    first = sessions[0]
    kept = ("kind", "language", "title", "configuration", "counterpart")
    return Results(
        {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "form": asdict(first.form),
            "runs": len(sessions),
            "commit": said("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*") or "unknown",
            "machine": machine,
            "server": ", ".join(nodes.version for nodes in (first.one, first.other) if nodes),
            "languages": [
                said("rustc", "--version").split(" (")[0],
                f"Python {platform.python_version()}",
                f"Node {said('node', '--version')}",
            ],
            "subjects": {
                subject.name: {key: getattr(subject, key) for key in kept}
                | {"version": first.versions.get(subject.name)}
                for subject in here
            },
            "missing": missing,
            "notes": [],
            "failures": [failure for session in sessions for failure in session.failures],
            "turns": [turn for session in sessions for turn in session.turns],
        }
    )


def measured(args: argparse.Namespace, subjects: Sequence[Subject], run: int) -> Session:
    """Performs one run and returns its results."""
    begun_s = time.monotonic()
    with Session(FORMS[args.form], subjects, run) as session:
        for workload in chosen_workloads(args.only, args.form, run):
            print(f"run {run + 1}, {time.monotonic() - begun_s:5.0f} s  {workload.title}", flush=True)
            # Elsewhere than on Linux the scheduler places all of them.
            with session.apart() if workload.apart and hasattr(os, "sched_setaffinity") else nullcontext():
                workload.measure(session, workload.name)
    return session


def about_machine() -> dict[str, Any]:
    """The machine's data."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cores": os.cpu_count(),
        "model": models[0] if models else platform.processor(),
        "system": f"{platform.system()} {platform.release()}",
        "load": os.getloadavg()[0],
    }


def said(*command: str) -> str:
    """The output of a command, or nothing if it does not exist."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
