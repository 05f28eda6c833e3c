"""A worker process: asked in JSON lines, given a limit for each answer, ended by its id."""

from __future__ import annotations

import json
import os
import selectors
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from support.process import start

Json = dict[str, Any]

HERE = Path(__file__).resolve().parent


class Failed(Exception):
    """A subject did not do what it was asked for; the text is what was seen."""


class Process:
    """A child process that writes JSON lines; a context manager that kills it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self._process = start(command, self._errors, cwd=HERE)
        self._lines = bytearray()
        self._asked_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def memory(self) -> int:
        """Resident, in bytes."""
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def ask(self, request: Json, limit_s: float) -> Json:
        """Sends a request and returns its answer; raises `Failed`."""
        self.send(request)
        return self.answer(limit_s)

    def send(self, request: Json) -> None:
        """Sends a request; `answer` reads the answer. Raises `Failed`."""
        assert self._process.stdin
        self._asked_s = time.monotonic()
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._epitaph()) from None

    def answer(self, limit_s: float) -> Json:
        """Returns the next line of its output; raises `Failed` if that is an error, late, or never comes."""
        answer: Json = json.loads(self._line(limit_s))
        if "error" in answer:
            raise Failed(str(answer["error"]))
        return answer

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream
            try:
                stream.close()
            except BrokenPipeError:
                # This drops unwritten input.
                continue

    def _line(self, limit_s: float) -> bytes:
        assert self._process.stdout
        end = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._lines:
                if not selector.select(end - time.monotonic()):
                    raise Failed(f"no answer for {time.monotonic() - self._asked_s:.0f} s")
                more = os.read(self._process.stdout.fileno(), 1 << 16)
                if not more:
                    raise Failed(self._epitaph())
                self._lines += more
        line, _, rest = bytes(self._lines).partition(b"\n")
        self._lines = bytearray(rest)
        return line

    def _epitaph(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        return f"ended with {status}: {last[0][:300]}"
