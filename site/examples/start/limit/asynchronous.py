import asyncio

from redlock import asyncio as redlock


async def main() -> None:
    async with redlock.lock("report"):  # somebody has it
        try:
            async with redlock.lock("report", timeout=0.5):  # seconds
                print("it is mine")
        except redlock.LockTimeout:
            print("others held it until the time limit")


asyncio.run(main())
