import asyncio

from redlock import asyncio as redlock


async def main() -> None:
    try:
        async with redlock.lock("import", ttl=1, max_hold=1):
            await asyncio.sleep(60)  # work that hangs is cancelled
    except redlock.LockLost as error:
        print("lost:", error.reason)


asyncio.run(main())
