"""The application for gunicorn: loaded once, by the parent of all workers, which uses locks whenever it forks one."""

import os
from collections.abc import Callable, Iterable

import children

import redlock

name = os.environ["NAME"]
client = redlock.Redlock(ttl=1)
inherited = children.Busy(os.environ["REDLOCK_URLS"].split(","), name).held
own: list[redlock.Lock] = []


def application(_: object, start: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    """Return which process answers, and whether it holds a lock of its parent and its own, which it keeps."""
    with client.lock(f"{name}-request"):
        if not own:
            own.append(client.lock(f"{name}-{os.getpid()}"))
            own[0].acquire()
    start("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {any(lock.held for lock in inherited)} {own[0].held}".encode()]
