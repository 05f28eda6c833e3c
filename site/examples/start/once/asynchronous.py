import asyncio

from redlock import asyncio as redlock


async def main() -> None:
    nightly = redlock.lock("cron:nightly")
    if await nightly.acquire(blocking=False):
        try:
            print("running it")
        finally:
            await nightly.release()
    else:
        print("another process is running it")


asyncio.run(main())
