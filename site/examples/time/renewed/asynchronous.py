import asyncio

from redlock import asyncio as redlock


async def main() -> None:
    async with redlock.lock("import", ttl=1) as lock:  # after a crash, others wait for 1 s at most
        await asyncio.sleep(2)  # longer than the ttl
        print("renewed" if lock.held else "lost")


asyncio.run(main())
