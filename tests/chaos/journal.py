"""The record of the Python worker's events."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class Journal:
    """The worker's journal; a line is written whole, whatever happens to the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(self, event: str, **values: object) -> None:
        """Records an event."""
        self._write({"event": event, **values})

    def record(self, client: str, name: str, kind: str, call_ns: tuple[int, int], **values: object) -> None:
        """Records a call that returned, or a reported loss."""
        record = {"client": client, "name": name, "kind": kind, "invoke_ns": call_ns[0], "return_ns": call_ns[1]}
        self._write(record | {"ok": True, "fence": None, "valid_until_ns": None} | values)

    def _write(self, line: Json) -> None:
        os.write(self._file, f"{json.dumps(line)}\n".encode())
