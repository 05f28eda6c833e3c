"""Runs the suite of the Python package on every interpreter of this machine, each in an environment of its own.

Interpreters are those from 3.11 on that are on the PATH, or beside the one that runs this, as pyenv keeps them.
Arguments are passed on to pytest.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / "target" / "pythons"
OLDEST = (3, 11)
ASKED = range(OLDEST[1], OLDEST[1] + 20)


def asked(program: Path) -> tuple[int, int] | None:
    """The version of an interpreter, or none if it does not start."""
    code = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    major, minor = done.stdout.split()
    return int(major), int(minor)


def candidates() -> list[Path]:
    """What may be an interpreter."""
    named = [shutil.which(f"python3.{minor}") for minor in ASKED]
    kept = Path(sys.base_prefix).parent
    beside = [path for path in sorted(kept.glob("3.*/bin/python3.*")) if re.fullmatch(r"python3\.\d+", path.name)]
    return [Path(sys.executable), *beside, *(Path(name) for name in named if name)]


def interpreters() -> dict[str, Path]:
    """The first working interpreter of each version."""
    found: dict[str, Path] = {}
    for program in candidates():
        version = asked(program)
        if version is not None and version >= OLDEST:
            found.setdefault(".".join(map(str, version)), program)
    return found


def prepared(version: str, program: Path) -> Path:
    """The interpreter of an environment with the package, as built from this checkout, and what its tests use."""
    directory = ENVIRONMENTS / version
    python = directory / "bin" / "python"
    if not python.exists():
        subprocess.run([program, "-m", "venv", directory], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    requirements = [f"--requirement={HERE / name}" for name in ("requirements.txt", "tools.txt")]
    subprocess.run([*pip, *requirements], check=True)
    # It is for every Python, and `make` has built it.
    (wheel,) = (ROOT / "target" / "wheel").glob("*.whl")
    subprocess.run([*pip, "--force-reinstall", wheel], check=True)
    return python


def main() -> int:
    """Runs the suite on all of them; returns how many failed."""
    results: dict[str, bool] = {}
    for version, program in interpreters().items():
        print(f"\nPython {version} ({program})", flush=True)
        python = prepared(version, program)
        done = subprocess.run([python, "-m", "pytest", "-q", *sys.argv[1:], "python/tests"], cwd=ROOT, check=False)
        results[version] = done.returncode == 0
    print()
    for version, passed in results.items():
        print(f"Python {version}: {'passed' if passed else 'FAILED'}")
    return sum(not passed for passed in results.values())


if __name__ == "__main__":
    sys.exit(main())
