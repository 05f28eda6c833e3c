"""The ports of tests that run side by side."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
PROGRAM = """
from support.ports import *
print(*(port() for _ in range(100) for port in (free_port, free_cluster_port)))
"""


def test_no_two_processes_get_the_same_port() -> None:
    """Also if nobody listens on it yet: a server starts some time after it got its port."""
    run = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=TESTS, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ports = [port for process in run for port in process.communicate()[0].split()]
    assert len(set(ports)) == len(ports) == 800
