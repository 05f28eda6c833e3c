"""Programs that PyInstaller and the like have packed: they contain the modules that an import statement names."""

import shutil
import subprocess
import sys
from modulefinder import ModuleFinder
from pathlib import Path

import redlock

HOME = Path(redlock.__file__).parent
ASKED_FOR = {"__main__", "_command_line", "_pytest_plugin", "otel", "testing"}
"""Modules that a program imports by itself, or does not need."""


def test_each_module_is_found_by_a_statement(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import redlock\n")
    # Without the standard library, which has other tools.
    finder = ModuleFinder(path=[str(HOME.parent)])
    finder.run_script(str(program))
    found = {name.removeprefix("redlock.") for name in finder.modules if name.startswith("redlock.")}
    modules = {path.stem for path in HOME.glob("*.py")} - {"__init__"}
    assert found >= modules - ASKED_FOR
    assert "_native" in found


def test_it_is_told_that_the_native_half_is_missing(tmp_path: Path) -> None:
    """As in the sources, and in archives of Python's own that cannot have it."""
    (tmp_path / "redlock").mkdir()
    for module in HOME.glob("*.py"):
        shutil.copy(module, tmp_path / "redlock")
    command = [sys.executable, "-c", "import redlock"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.endswith("\nModuleNotFoundError: No module named 'redlock._native'\n")
