"""With `--take-turns`, each story stays on every server, and each of its faces goes through it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.conftest import under_test
from conformance.driver import FACES
from support.servers import version

HERE = Path(__file__).parent


def collected(config: pytest.Config, *options: str) -> list[str]:
    """The ids of all test cases."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", str(HERE), *options]
    for program in under_test(config):
        command += ["--server", str(program)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return re.findall(r"\btest_\w+\.py::.+$", result.stdout, re.M)


def parts(ids: list[str], words: list[str]) -> set[tuple[str, str]]:
    """Each story with those of the words that are parameters of it."""
    found = set()
    for each in ids:
        story, _, variant = each.removesuffix("]").partition("[")
        # The longer word first, because ids join parameters with the hyphen that it has.
        for word in sorted(words, key=len, reverse=True):
            if f"-{word}-" in f"-{variant}-":
                found.add((story, word))
                variant = variant.replace(word, "")
    return found


@pytest.mark.test_all("only `make test-all` takes turns: the cases of the other tier are chosen otherwise")
def test_a_story_loses_no_server_and_no_face(pytestconfig: pytest.Config) -> None:
    servers = [version(program) for program in under_test(pytestconfig)]
    everything, turns = collected(pytestconfig, "--all"), collected(pytestconfig, "--all", "--take-turns")
    assert len(servers) == 1 or len(turns) < len(everything)
    for words in (servers, list(FACES)):
        assert parts(turns, words) == parts(everything, words)
