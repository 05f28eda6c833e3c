"""Compares this library, its peers and sockets without a library on the same servers, in one run.

make bench                              five to seven minutes: shown, and written to target/bench
make bench ARGS=--long                  over an hour: five longer runs, once what takes long; writes RESULTS.md
make bench ARGS='--runs 3'              so many runs, of which the page gives the median
make bench ARGS='--only handover,node'  one workload, one subject
make bench ARGS=--redraw                the kept page and its pictures once more, from the kept numbers
make bench ARGS='--long --only semaphore'    the kept form of some workloads alone, written to target/bench
make bench ARGS='--merge target/bench'  puts these into the kept page, which says when they were measured
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import page, plots
from bench.results import Results
from bench.session import CORES, FORMS, Session
from bench.subjects import ROOT, SUBJECTS, TARGET, Subject, built_in
from bench.subjects import chosen as chosen_subjects
from bench.workload import WORKLOADS
from bench.workload import chosen as chosen_workloads

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Runs the program; returns the exit status."""
    args = parse()
    if args.redraw:
        return write(page.load(), page.RESULTS, page.PAGE)
    if args.merge:
        return write(page.load().merged(mergeable(args.merge)), page.RESULTS, page.PAGE)
    subjects = built_in(chosen_subjects(args.only), args.programs)
    try:
        results = run(args, subjects)
    except KeyboardInterrupt:
        print("\nstopped; nothing is left running", file=sys.stderr)
        return 130
    print(page.summary(results))
    return write(results, *place(args))


def place(args: argparse.Namespace) -> tuple[Path, Path]:
    """The directories for numbers, pictures and page. The kept ones are used only if everything was measured."""
    if args.form == "long" and not (args.out or args.only):
        return page.RESULTS, page.PAGE
    directory = args.out or TARGET / "bench"
    return directory, directory / page.PAGE.name


def mergeable(directory: Path) -> Results:
    """The numbers of a run for the kept page; ends the program if they do not belong there."""
    later = Results.read(directory / page.NUMBERS)
    form = later.data["form"]["name"]
    if form != "long":
        sys.exit(f"{directory}: {form} form, but the kept page has the long one; run with --long")
    partial = set(later.data["only"]) & {subject.name for subject in SUBJECTS}
    if partial:
        sys.exit(f"{directory}: only {', '.join(sorted(partial))} took part; name workloads alone in --only")
    return later


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description="Compare speed with other lock libraries and with a bare socket.")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--long", dest="form", action="store_const", const="long", help="make the kept page: everything, five runs"
    )
    form.add_argument("--smoke", dest="form", action="store_const", const="smoke", help="only see that it works")
    families = dict.fromkeys(workload.family for workload in WORKLOADS if workload.family)
    known = [*(workload.name for workload in WORKLOADS), *families, *(subject.name for subject in SUBJECTS)]
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,...",
        help=f"only these workloads and subjects: {', '.join(known)}",
    )
    parser.add_argument("--runs", type=int, metavar="N", help="measure everything so many times")
    parser.add_argument("--seed", type=int, default=1, help="for the order of turns")
    parser.add_argument("--programs", type=Path, default=TARGET / "dist", help="where redlock-bench is")
    cores = "each" if hasattr(os, "sched_setaffinity") else "free"
    parser.add_argument("--cores", choices=CORES, default=cores, help="where clients and servers run (Linux)")
    parser.add_argument("--out", type=Path, help="where page, pictures and numbers go")
    parser.add_argument("--redraw", action="store_true", help="make the page once more from the kept numbers")
    parser.add_argument("--merge", type=Path, metavar="DIRECTORY", help="put the workloads of a run into the kept page")
    args = parser.parse_args(words)
    args.form = args.form or "short"
    args.runs = args.runs or FORMS[args.form].runs
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
    machine = about_machine(args.cores)
    sessions = [measured(args, here, run) for run in range(args.runs)]
    first = sessions[0]
    kept = {"kind", "language", "title", "configuration", "counterpart", "semaphore", "shared"}
    return Results(
        {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "form": asdict(first.form),
            "runs": args.runs,
            "seed": args.seed,
            "only": args.only,
            "commit": commit(),
            "machine": machine,
            "server": first.one.version,
            "languages": languages(),
            "subjects": {
                subject.name: {key: value for key, value in vars(subject).items() if key in kept}
                | {"version": first.versions.get(subject.name)}
                for subject in here
            },
            "missing": missing,
            "notes": first.notes,
            "left_out": first.left_out,
            "failures": [failure for session in sessions for failure in session.failures],
            "turns": [turn for session in sessions for turn in session.turns],
        }
    )


def measured(args: argparse.Namespace, subjects: Sequence[Subject], run: int) -> Session:
    """Performs one run and returns its results."""
    begun_s = time.monotonic()
    mark = f"run {run + 1} of {args.runs}, " if args.runs > 1 else ""
    with Session(FORMS[args.form], subjects, args.seed, args.cores, run) as session:
        for workload in chosen_workloads(args.only, args.form, run):
            print(f"{mark}{time.monotonic() - begun_s:5.0f} s  {workload.title}", flush=True)
            with session.placed(workload.cores):
                workload.measure(session, workload.name)
    print(f"{mark}{time.monotonic() - begun_s:5.0f} s  done\n", flush=True)
    return session


def write(results: Results, directory: Path, file: Path) -> int:
    """Writes the numbers, the pictures and the page."""
    results.write(directory / page.NUMBERS)
    # The page says what is kept.
    results = Results.read(directory / page.NUMBERS)
    plots.draw(results, directory)
    file.write_text(page.text(results, str(directory.relative_to(file.parent))))
    print(f"written: {file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}")
    return 0


def about_machine(cores: str) -> dict[str, Any]:
    """The machine's data."""
    info = Path("/proc/cpuinfo")
    models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return {
        "cores": os.cpu_count(),
        "model": models[0] if models else platform.processor(),
        "system": f"{platform.system()} {platform.release()}",
        "load": os.getloadavg()[0],
        "cores_used": cores,
    }


def commit() -> str:
    """The version of this project."""
    return said("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*") or "unknown"


def languages() -> list[str]:
    """The versions of the workers' languages."""
    found = [said("rustc", "--version").split(" (")[0], f"Python {platform.python_version()}"]
    found += [f"Node {said('node', '--version')}", said("go", "version").removeprefix("go version ").split(" ")[0]]
    return [name for name in [*found, said("java", "--version").split("\n")[0]] if name]


def said(*command: str) -> str:
    """The output of a command, or nothing if it does not exist."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
