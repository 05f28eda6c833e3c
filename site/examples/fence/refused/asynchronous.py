import asyncio

from redlock import asyncio as redlock


class Store:
    """Remembers the largest fence, and refuses smaller ones."""

    def __init__(self) -> None:
        self.fence = 0

    async def write(self, value: str, fence: int) -> None:
        if fence < self.fence:
            print("refused:", value)
            return
        self.fence = fence
        print("written:", value)


async def main() -> None:
    store = Store()
    async with redlock.lock("account:7") as lock:
        late = lock.fence  # this holder is paused here, and loses the lock
    async with redlock.lock("account:7") as lock:
        await store.write("by the next holder", lock.fence)
    await store.write("by the late holder", late)


asyncio.run(main())
