import redlock


class Store:
    """Remembers the largest fence, and refuses smaller ones."""

    def __init__(self) -> None:
        self.fence = 0

    def write(self, value: str, fence: int) -> None:
        if fence < self.fence:
            print("refused:", value)
            return
        self.fence = fence
        print("written:", value)


store = Store()
with redlock.lock("account:7") as lock:
    late = lock.fence  # this holder is paused here, and loses the lock
with redlock.lock("account:7") as lock:
    store.write("by the next holder", lock.fence)
store.write("by the late holder", late)
