"""The program `redlock` of the wheel: what Python does to a process is not seen in a command.

`tests/cli` tests the program itself, by each of its launchers.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from server import Server

SCRIPT = [str(Path(sys.executable).with_name("redlock"))]
MODULE = [sys.executable, "-m", "redlock"]


# Python has a locale of its own if there is none, and puts it into the environment.
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what the environment was at the start")
@pytest.mark.parametrize(
    "variables", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}, {"LC_CTYPE": "POSIX", "LANG": "C"}, {"LC_ALL": "C"}]
)
@pytest.mark.parametrize("program", [SCRIPT, MODULE], ids=["script", "module"])
def test_the_command_has_the_locale_that_there_was(
    program: list[str], variables: dict[str, str], server: Server, name: str
) -> None:
    words = [*program, "run", "--node", server.url, name, "--", "/usr/bin/env"]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=60, check=True)
    assert not done.stderr
    shown = [line.split("=", 1) for line in done.stdout.splitlines() if line.startswith(("LC_", "LANG"))]
    assert dict(shown) == variables
