"""The body of an `async with`, which ends with its lock."""

import asyncio
from typing import Any

from redlock.errors import LockLost


class Body:
    """The task that runs a body, and how often it had been asked to end before; counted as `asyncio.timeout` does."""

    __slots__ = ("_asked", "_loss", "_task")

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self._task = task
        self._asked = task.cancelling() if task is not None else 0
        self._loss: LockLost | None = None

    def cut(self, loss: LockLost) -> None:
        """Cancel the task, once."""
        if self._loss is None and self._task is not None:
            self._loss = loss
            self._task.cancel()

    def end(self, kind: type[BaseException] | None) -> LockLost | None:
        """Take the cancellation back; the loss, if nobody else has asked for it as well."""
        if self._loss is None or self._task is None:
            return None
        alone = self._task.uncancel() <= self._asked
        return self._loss if alone and kind is not None and issubclass(kind, asyncio.CancelledError) else None
