"""Runs a program of these folders as a module, so that it finds the others: `python tests chaos.chaos --seed 1`."""

from __future__ import annotations

import runpy
import sys

del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
