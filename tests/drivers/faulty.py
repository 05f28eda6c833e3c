"""A driver with one planted fault, which the suite must find; without one it passes the stories of a single node.

A lock of its own, in the plain protocol on one node, in the place of the face `python`; see test_suite_bites.py.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "conformance"))
from history import now_ns
from servers import ask

Json = dict[str, Any]

FAULTS = {
    "none": "nothing is wrong",
    "blind-release": "release deletes the key, whoever owns it",
    "held-for-ever": "a lock counts as held until it is released, whatever its ttl",
    "falling-fence": "a fence is smaller than the one before",
    "two-holders": "an acquire overwrites the key of a holder",
    "never-told": "nobody is told of a loss",
}

ACQUIRE = """
if redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2], ARGV[3]) then return redis.call("INCR", KEYS[2]) end
return false
"""
EXTEND = 'return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("PEXPIRE", KEYS[1], ARGV[2])'
RELEASE = 'return redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("DEL", KEYS[1])'
BLIND_RELEASE = 'return redis.call("DEL", KEYS[1])'
POLL_S = 0.002


class LockError(Exception):
    """An error with one of the codes."""

    def __init__(self, code: str, name: bytes, reason: str | None = None) -> None:
        super().__init__(f"{code}: {name!r}")
        self.json: Json = {
            "code": code,
            "name": name.decode(errors="replace"),
            "reason": reason,
            "nodes": [],
            "message": str(self),
            "retryable": False,
        }


class Lock:
    """A lock object on the node at `path`."""

    def __init__(self, fault: str, path: Path, name: bytes, options: Json) -> None:
        self.fault = fault
        self.path = path
        self.name = name
        self.ttl_s = options.get("ttl_ms", 10_000) / 1000
        self.timeout_s = seconds(options.get("timeout_ms"))
        self.token = ""
        self.fence: int | None = None
        self.end = 0.0
        self.over: LockError | None = LockError("not_held", name)

    @property
    def remaining_s(self) -> float:
        """How long it is valid."""
        if self.over:
            return 0
        return self.ttl_s if self.fault == "held-for-ever" else max(0, self.end - time.monotonic())

    def check(self) -> None:
        """Fails unless it is held."""
        if self.over:
            raise self.over
        if not self.remaining_s:
            self.over = LockError("lost", self.name, "expired")
            raise self.over

    def acquire(self, timeout_s: float | None) -> bool:
        """Waits for it; `None` is for ever."""
        if self.remaining_s:
            raise LockError("already_held", self.name)
        last = time.monotonic() + (1e9 if timeout_s is None else timeout_s)
        exclusively = "XX" if self.fault == "two-holders" and ask(self.path, "EXISTS", self.name) else "NX"
        while True:
            start, token, ttl_ms = time.monotonic(), secrets.token_hex(16), int(self.ttl_s * 1000)
            keys = (2, self.name, b"fence:" + self.name)
            if fence := ask(self.path, "EVAL", ACQUIRE, *keys, token, ttl_ms, exclusively):
                self.token, self.over, self.end = token, None, start + self.ttl_s * 0.99 - 0.002
                self.fence = (1 << 50) - int(str(fence)) if self.fault == "falling-fence" else int(str(fence))
                return True
            if time.monotonic() > last:
                return False
            time.sleep(POLL_S)

    def extend(self, ttl_s: float | None) -> None:
        """Extends it from now."""
        self.check()
        self.ttl_s, start = ttl_s or self.ttl_s, time.monotonic()
        if not ask(self.path, "EVAL", EXTEND, 1, self.name, self.token, int(self.ttl_s * 1000)):
            self.over = LockError("lost", self.name, "deleted")
            raise self.over
        self.end = start + self.ttl_s * 0.99 - 0.002

    def release(self) -> None:
        """Releases it; again is a no-op."""
        if self.over and self.token and self.over.json["code"] == "not_held":
            return
        if not self.token:
            raise LockError("not_held", self.name)
        script = BLIND_RELEASE if self.fault == "blind-release" else RELEASE
        ask(self.path, "EVAL", script, 1, self.name, self.token)
        try:
            self.check()
        finally:
            self.over = LockError("not_held", self.name)

    def wait_lost(self, limit_s: float) -> Json:
        """Waits until its validity is over."""
        time.sleep(min(limit_s, self.remaining_s))
        try:
            self.check()
        except LockError as lost:
            told = None if self.fault == "never-told" else lost.json
            return {"lost": told, "told_ns": now_ns()}
        return {"lost": None, "told_ns": 0}

    def state(self) -> Json:
        """What it says of itself."""
        read_ns, remaining = now_ns(), self.remaining_s
        return {"read_ns": read_ns, "held": remaining > 0, "remaining_ms": remaining * 1000, "fence": self.fence}


def seconds(ms: float | None) -> float | None:
    """Milliseconds in seconds; `None` is without end."""
    return None if ms is None else ms / 1000


def perform(fault: str, kept: list[Any], request: Json) -> Json:
    """Does what a request asks for."""

    def keep(value: object) -> Json:
        kept.append(value)
        return {"handle": len(kept) - 1}

    if request["op"] == "client":
        return keep((Path(request["nodes"][0].removeprefix("unix://")), request["options"]))
    if request["op"] == "lock":
        path, options = kept[request["client"]]
        return keep(Lock(fault, path, bytes.fromhex(request["name"]), options | request["options"]))
    lock: Lock = kept[request["lock"]]
    match request["op"]:
        case "acquire":
            timeout_s = seconds(request["timeout_ms"]) if "timeout_ms" in request else lock.timeout_s
            return {"acquired": lock.acquire(timeout_s), **lock.state()}
        case "try_acquire":
            return {"acquired": lock.acquire(0), **lock.state()}
        case "extend":
            lock.extend(seconds(request.get("ttl_ms")))
        case "release":
            lock.release()
        case "check":
            lock.check()
        case "wait_lost":
            return lock.wait_lost(request["limit_ms"] / 1000)
    return lock.state()


def answer(fault: str, kept: list[Any], request: Json) -> None:
    """Performs a request and writes its answer."""
    invoke_ns, result = now_ns(), {}
    try:
        result = {"ok": perform(fault, kept, request)}
    except LockError as error:
        result = {"error": error.json}
    say({"id": request["id"], **result, "invoke_ns": invoke_ns, "return_ns": now_ns()})


def say(line: Json) -> None:
    """Writes a line, whole even where threads write at once."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Says hello and serves until the end of input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--face", required=True)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    given = parser.parse_args()
    say({"hello": {"language": "python", "face": given.face, "protocol": 1, "codes": []}})
    kept: list[Any] = []
    for line in sys.stdin:
        threading.Thread(target=answer, args=[given.fault, kept, json.loads(line)]).start()


if __name__ == "__main__":
    main()
