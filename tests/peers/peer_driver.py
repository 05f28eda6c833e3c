"""Does with a peer's lock what a test asks for: JSON lines in, JSON lines out, as README.md describes them."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from typing import Any

from peers.peers import PEERS, Handle, Session

Json = dict[str, Any]


class Driver:
    """One peer, and the one lock that was acquired last."""

    session: Session
    handle: Handle

    async def perform(self, op: str, **of: Any) -> Json:
        """Does what `op` asks for."""
        match op:
            case "open":
                self.session = PEERS[of["peer"]].open(of["urls"])
                return {}
            case "acquire":
                wait_ms = of["wait_ms"]
                wait_s = None if wait_ms is None else wait_ms / 1000
                self.handle = self.session.lock(of["name"], of["ttl_ms"] / 1000, wait_s)
                return {"acquired": bool(await done(self.handle.acquire()))}
            case "release":
                await done(self.handle.release())
                return {}
        raise ValueError(f"no such op: {op}")

    async def serve(self) -> None:
        """Answers one request after the other."""
        # In a thread, so that what runs beside an asynchronous lock goes on.
        while line := await asyncio.to_thread(sys.stdin.readline):
            request: Json = json.loads(line)
            try:
                answer = await self.perform(**{key: value for key, value in request.items() if key != "id"})
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps({"id": request["id"], **answer}), flush=True)


async def done(result: Any) -> Any:
    """The result of a call of either kind."""
    return await result if inspect.isawaitable(result) else result


if __name__ == "__main__":
    asyncio.run(Driver().serve())
