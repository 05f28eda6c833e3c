import asyncio

from redlock import asyncio as redlock


async def lead(lock: redlock.Lock) -> None:
    await work()  # cancelled after a loss


asyncio.run(redlock.election("scheduler").run(lead))
