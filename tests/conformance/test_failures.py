"""What a failure prints: the drivers' lines, the servers' logs, and the command that repeats it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from conformance.conftest import ROOT, under_test
from conformance.planted import FAULTY

FAULT = "falling-fence"
FILE, STORY = "tests/conformance/test_loss.py", "forgets and python"
WHY = "the history is wrong"
"""The call fails, and so does the judgement of the history, after the test case's own servers have gone."""

PRINTED = re.compile(r"^-+ drivers -+\n(.*?)\n-+ servers -+\n(.*?)\n-+ to repeat it -+\n(.*?)\n", re.M | re.S)


def run(command: list[str]) -> str:
    """The output of a run, which must fail."""
    # Other plugins take as long to load as the test cases to run.
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_timeout,xdist.plugin"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | plugins)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr
    return result.stdout


@pytest.mark.test_all("it runs the suite twice", gate=True)
def test_failure_can_be_understood_and_repeated(pytestconfig: pytest.Config) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "2", FILE, "-k", STORY]
    command += ["--driver", f"python={FAULTY} --fault {FAULT}"]
    if directory := pytestconfig.getoption("--driver-dir"):
        command += ["--driver-dir", str(directory)]
    programs = under_test(pytestconfig)
    command += [word for program in programs for word in ("--server", str(program))]

    said = run(command)
    printed = PRINTED.findall(said)
    assert WHY in said
    # It is printed once for every failure.
    assert len(printed) == said.count("to repeat it")
    for lines, logs, _ in printed:
        assert '< {"hello": ' in lines
        assert '> {"id": 1, "op": "client"' in lines
        assert '"op": "acquire"' in lines
        for log in logs.split("\n\n"):
            assert "ready to accept connections" in log.lower()
    repeats = {repeat for _, _, repeat in printed}
    assert len(repeats) == len(programs)
    again = run(shlex.split(repeats.pop()))
    assert WHY in again
    assert len({repeat for _, _, repeat in PRINTED.findall(again)}) == 1
