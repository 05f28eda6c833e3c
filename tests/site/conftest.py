"""Lets these tests import what the other tests have. This folder is no package: `site` is a module of Python's own."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
for place in (ROOT / "tests", ROOT / "site"):
    sys.path.insert(0, str(place))
