"""The program `redlock` of the wheel: what Python does to a process is not seen in a command.

`tests/cli` tests the program itself, by each of its launchers.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = [str(Path(sys.executable).with_name("redlock"))]
MODULE = [sys.executable, "-m", "redlock"]

MEMORY = ["run", "--node", "memory://command-line", "job", "--"]


def printed(program: list[str], *words: str, **variables: str) -> str:
    """The output of a program in an environment that is otherwise empty, as that of cron is."""
    done = subprocess.run([*program, *words], env=variables, capture_output=True, text=True, timeout=60, check=True)
    assert not done.stderr
    return done.stdout


def test_the_module_is_the_program() -> None:
    assert printed(MODULE, "--version") == printed(SCRIPT, "--version")
    assert printed(MODULE, "run", "--help") == printed(SCRIPT, "run", "--help")
    assert printed(MODULE, *MEMORY, "echo", "done") == "done\n"


def test_it_ends_with_the_status_of_the_command() -> None:
    done = subprocess.run([*MODULE, *MEMORY, "sh", "-c", "exit 7"], timeout=60, check=False)
    assert done.returncode == 7


# Python has a locale of its own if there is none, and puts it into the environment.
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what the environment was at the start")
@pytest.mark.parametrize(
    "variables", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}, {"LC_CTYPE": "POSIX", "LANG": "C"}, {"LC_ALL": "C"}]
)
@pytest.mark.parametrize("program", [SCRIPT, MODULE], ids=["script", "module"])
def test_the_command_has_the_locale_that_there_was(program: list[str], variables: dict[str, str]) -> None:
    shown = printed(program, *MEMORY, "/usr/bin/env", **variables).splitlines()
    found = dict(line.split("=", 1) for line in shown if line.startswith(("LC_", "LANG")))
    assert found == variables


def test_an_ignored_interrupt_stays_ignored() -> None:
    """A shell starts in this way what runs in the background of a script."""
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    words = [SCRIPT[0], *MEMORY, sys.executable, "-c", code]
    run = "import os, signal, sys; signal.signal(2, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    assert printed([sys.executable, "-c", run], *words, PATH=os.defpath) == "True\n"
