"""Programs that PyInstaller and the like have packed: they contain the modules that an import statement names."""

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
