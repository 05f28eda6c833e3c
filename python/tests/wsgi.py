"""The application for gunicorn: loaded once, by the parent of all workers, which uses locks whenever it forks one."""

import os
from collections.abc import Callable, Iterable

import children

import redlock

name = os.environ["NAME"]
client = redlock.Redlock(ttl=20)
inherited = children.Busy(os.environ["REDLOCK_URLS"].split(","), name).held
own: list[redlock.Lock] = []


def application(_: object, start: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    """Return which process answers, and whether it holds a lock of its parent and its own, which it keeps."""
    # If this process is killed soon, the key on nodes that had not answered the release is gone after the ttl.
    with client.lock(f"{name}-request", ttl=2):
        if not own:
            own.append(client.lock(f"{name}-{os.getpid()}"))
            own[0].acquire()
    start("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {any(lock.held for lock in inherited)} {own[0].held}".encode()]
