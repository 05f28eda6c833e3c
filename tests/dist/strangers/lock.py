import asyncio
import sys

import redlock
from redlock import LockTimeout
from redlock import asyncio as redlock_asyncio

url = sys.argv[1]
client = redlock.Redlock([url])
with client.lock("stranger", ttl=5) as lock:
    try:
        with client.lock("stranger", timeout=0.05):
            sys.exit("held twice")
    except LockTimeout:
        pass
    fence = lock.fence


async def main() -> int:
    async with redlock_asyncio.Redlock([url]).lock("stranger") as lock:
        return lock.fence


later = asyncio.run(main())
assert later > fence, (later, fence)
print(later)
