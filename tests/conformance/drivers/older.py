"""A lock as in code older than `SET NX PX`: SETNX, GET and GETSET with whole seconds, over one connection.

It stands beside the drivers, as another process, and speaks their protocol as far as such code goes: one call after the
other, no extension and no fence.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.clock import now_ns
from support.resp import Connection

Json = dict[str, Any]

POLL_S = 0.01


class Lock:
    """A lock whose key has the second after which any client may take it."""

    def __init__(self, client: Connection, name: bytes, ttl_s: int) -> None:
        self.client = client
        self.name = name
        self.ttl_s = ttl_s
        self.ends = 0

    def attempt(self) -> bool:
        """Tries once; false if others hold it."""
        now = int(time.time())
        ends = now + self.ttl_s + 1
        if not self.client.ask("SETNX", self.name, ends) and not self.takes_over(now, ends):
            return False
        self.ends = ends
        return True

    def takes_over(self, now: int, ends: int) -> bool:
        """Whether the lock had expired, and no other client was quicker."""
        seen = self.client.ask("GET", self.name)
        if not isinstance(seen, bytes) or int(seen) >= now:
            return False
        before = self.client.ask("GETSET", self.name, ends)
        return not isinstance(before, bytes) or int(before) < now

    def acquire(self, timeout_s: float | None) -> bool:
        """Waits for the lock; `None` is for ever."""
        last = time.monotonic() + (1e9 if timeout_s is None else timeout_s)
        while not self.attempt():
            if time.monotonic() > last:
                return False
            time.sleep(POLL_S)
        return True

    def release(self) -> None:
        """Deletes the key, unless it may belong to another owner by now."""
        if time.time() < self.ends:
            self.client.ask("DEL", self.name)
        self.ends = 0

    @property
    def remaining_s(self) -> float:
        """How long the key is still its own."""
        return max(0.0, self.ends - time.time())


def perform(kept: list[Any], request: Json) -> Json:
    """Performs a request."""
    match request["op"]:
        case "client":
            (url,) = map(urlsplit, request["nodes"])
            kept.append(Connection((url.hostname, url.port) if url.hostname and url.port else Path(url.path)))
            return {"handle": len(kept) - 1}
        case "lock":
            ttl_s = -(-request["options"].get("ttl_ms", 10_000) // 1000)
            kept.append(Lock(kept[request["client"]], bytes.fromhex(request["name"]), ttl_s))
            return {"handle": len(kept) - 1}
    lock: Lock = kept[request["lock"]]
    acquired = {}
    match request["op"]:
        case "acquire":
            ms = request.get("timeout_ms")
            acquired = {"acquired": lock.acquire(None if ms is None else ms / 1000)}
        case "try_acquire":
            acquired = {"acquired": lock.attempt()}
        case "release":
            lock.release()
        case "state":
            pass
        case op:
            raise ValueError(f"no such op: {op}")
    read_ns, remaining = now_ns(), lock.remaining_s
    return acquired | {"read_ns": read_ns, "held": remaining > 0, "remaining_ms": remaining * 1000, "fence": None}


def answer(kept: list[Any], request: Json) -> Json:
    """Performs a request; any error is the answer."""
    invoke_ns = now_ns()
    try:
        result = {"ok": perform(kept, request)}
    except Exception as error:
        result = {"error": {"code": "driver", "message": repr(error)}}
    return {"id": request["id"], **result, "invoke_ns": invoke_ns, "return_ns": now_ns()}


def main() -> None:
    """Says hello and serves until the end of input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--face", choices=["older"], required=True)
    face = parser.parse_args().face
    print(json.dumps({"hello": {"language": "python", "face": face, "protocol": 1, "codes": []}}), flush=True)
    kept: list[Any] = []
    for line in sys.stdin:
        print(json.dumps(answer(kept, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
