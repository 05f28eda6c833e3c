"""A program of a framework that runs beside the test, and answers over HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from support.clock import until
from support.servers import Server

LIMIT_S = 60
"""No framework takes as long to start, to answer or to end."""


def hold(server: Server, name: str) -> None:
    """Has another program hold a lock."""
    server.command("SET", name, "another program's token", "PX", 60_000)


class Service:
    """A process that is asked to end when the block does."""

    def __init__(self, command: Sequence[str], directory: Path, env: Mapping[str, str], port: int = 0) -> None:
        self.port = port
        self._said = directory / f"said by {Path(command[0]).name}"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                command, cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    @property
    def said(self) -> str:
        """Its output, errors included."""
        return self._said.read_text(errors="replace")

    def wait_until_it_listens(self) -> None:
        """Returns when it takes connections."""
        until(lambda: self.process.poll() is not None or self._listens(), "it listens", limit_s=LIMIT_S)
        assert self.process.poll() is None, self.said

    def wait_until_it_says(self, text: str) -> None:
        """Returns when this is a part of its output."""
        until(lambda: self.process.poll() is not None or text in self.said, f"it says {text}", limit_s=LIMIT_S)
        assert text in self.said, self.said

    def ask(self, path: str, method: str = "POST") -> tuple[int, str]:
        """The status and the text of its answer."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def ask_json(self, path: str) -> tuple[int, Any]:
        """The same for an answer in JSON."""
        status, text = self.ask(path)
        return status, json.loads(text)

    def _listens(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0
