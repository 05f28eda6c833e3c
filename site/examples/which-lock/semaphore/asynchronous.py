import asyncio

from redlock import asyncio as redlock


async def main() -> None:
    async with redlock.semaphore("gpu", 4) as lock:
        await work(lock.slot)


asyncio.run(main())
