import asyncio

from redlock import asyncio as redlock


async def main() -> None:
    async with redlock.lock("invoice:17"):
        await work()


asyncio.run(main())
