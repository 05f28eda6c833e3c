import asyncio

from redlock import asyncio as redlock


async def main() -> None:
    async with redlock.lock_all(["account:7", "account:8"]):
        await work()


asyncio.run(main())
