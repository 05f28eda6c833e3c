"""The recorded events of locks, for the program `redlock-history`, which judges them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

SLACK_MS = 1000
"""How late the machine may be. This is the suite's only allowance for scheduling."""


class Kind(StrEnum):
    """The kind of event that a record of this suite is about."""

    ACQUIRE = "acquire"
    EXTEND = "extend"
    RELEASE = "release"
    LOST = "lost"


class History:
    """The records of one test case, in the form of `tests/history/src/record.rs`."""

    def __init__(self) -> None:
        self._records: list[str] = []
        self._rules: list[str] = []

    def rule(self, *options: str) -> None:
        """Lets `redlock-history` judge the records with these options."""
        self._rules.extend(options)

    def add(
        self,
        *,
        client: str,
        name: str,
        kind: Kind,
        invoke_ns: int,
        return_ns: int | None,
        ok: bool,
        fence: int | None,
        valid_until_ns: int | None = None,
        **more: int | str | Sequence[str] | None,
    ) -> None:
        """Adds a record. The order of records does not matter. Those of `more` that are `None` are left out."""
        record = {"client": client, "name": name, "kind": kind, "invoke_ns": invoke_ns, "return_ns": return_ns}
        record |= {"ok": ok, "fence": fence, "valid_until_ns": valid_until_ns}
        record |= {field: value for field, value in more.items() if value is not None}
        self._records.append(json.dumps(record))

    def judge(self, program: Path) -> None:
        """Fails if a promise was broken: fences unique and in order, one holder at a time."""
        # On other systems, the languages read clocks that differ a little.
        if self._records and sys.platform == "linux":
            records = "\n".join(self._records)
            command = [str(program), *self._rules]
            judged = subprocess.run(command, input=records, capture_output=True, text=True, check=False)
            assert judged.returncode == 0, f"the history is wrong:\n{judged.stdout}{judged.stderr}\n{records}"
