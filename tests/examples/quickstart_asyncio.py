import asyncio

from redlock import asyncio as redlock


async def main() -> None:
    # The body is cancelled as soon as the lock is lost, and `async with` raises LockLost.
    async with redlock.lock("invoice:17", timeout=5) as lock:
        print(f"held for {lock.remaining:.1f} s more, fence {lock.fence}")


asyncio.run(main())
