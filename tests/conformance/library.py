"""The library in another process, asked by programs that go on meanwhile: a driver as in `driver.py`, for asyncio."""

from __future__ import annotations

import asyncio
import itertools
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from typing import IO, Any

from support.process import dying

LINE_LIMIT = 1 << 24
"""The longest line from a driver, and to one."""

Json = dict[str, Any]


class Refused(Exception):
    """An error of the library."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.code: str = error["code"]
        self.reason: str | None = error["reason"]


class Library:
    """The library in another process: a driver, which is asked over a pair of streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._ids = itertools.count(1)
        self._open: dict[int, asyncio.Future[Json]] = {}
        self.hello: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen(reader))

    def start(self, op: str, **of: object) -> tuple[int, asyncio.Future[Json]]:
        """Sends a request; returns its id and what will be its answer."""
        number = next(self._ids)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        self._writer.write(f"{json.dumps({'id': number, 'op': op, **of})}\n".encode())
        return number, answer

    async def call(self, op: str, **of: object) -> Json:
        """Sends a request and waits for the answer; raises `Refused` if it is an error of the library."""
        return await self.start(op, **of)[1]

    async def forget(self, handle: int) -> None:
        """Lets the driver forget what it has made."""
        await self.call("forget", handle=handle)

    def end(self) -> None:
        """Ends the requests, which ends the driver."""
        self._writer.close()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        async for line in reader:
            told = json.loads(line)
            if "hello" in told:
                self.hello.set_result(told["hello"])
                continue
            answer = self._open.pop(told["id"])
            if "ok" in told:
                answer.set_result(told["ok"])
            elif told["error"]["code"] == "driver":
                answer.set_exception(RuntimeError(told["error"]["message"]))
            else:
                answer.set_exception(Refused(told["error"]))
        for answer in self._open.values():
            answer.set_exception(EOFError("the driver has ended"))


async def started(
    command: Sequence[str], errors: IO[str] | None = None, env: Mapping[str, str] | None = None
) -> tuple[Process, Library]:
    """Starts a driver, which dies with this process; its complaints go to `errors`, or where this one's do."""
    pipes: Any = {"stdin": PIPE, "stdout": PIPE, "stderr": errors, "limit": LINE_LIMIT}
    driver = await asyncio.create_subprocess_exec(*dying(command), **pipes, env=env)
    assert driver.stdin
    assert driver.stdout
    return driver, Library(driver.stdout, driver.stdin)
