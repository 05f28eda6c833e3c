"""Makes a wheel of the Python package around an extension that cargo has built, in `target/wheel`.

    wheel.py target/debug

`maturin` writes what describes the wheel and compiles nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHEEL = ROOT / "target" / "wheel"


def main() -> None:
    """Makes the wheel; there is one in the folder afterwards."""
    built = ROOT / sys.argv[1] / ("lib_native.dylib" if sys.platform == "darwin" else "lib_native.so")
    content = WHEEL / "content"
    shutil.rmtree(WHEEL, ignore_errors=True)
    left_out = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "python" / "redlock", content / "redlock", ignore=left_out)
    shutil.copy(built, content / "redlock" / "_native.abi3.so")
    maturin = [str(Path(sys.executable).with_name("maturin")), "pep517", "write-dist-info"]
    options = ["--interpreter", sys.executable, "--metadata-directory", str(content)]
    subprocess.run([*maturin, *options], cwd=ROOT / "python", check=True)
    subprocess.run([sys.executable, "-m", "wheel", "pack", str(content), "--dest-dir", str(WHEEL)], check=True)


if __name__ == "__main__":
    main()
