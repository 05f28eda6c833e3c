import redlock

from fenced_store import FencedStore

store = FencedStore("accounts.db")
with redlock.lock("account:7") as lock:
    balance = int(store.read("account:7", fence=lock.fence) or 0)
    store.write("account:7", str(balance + 1), fence=lock.fence)  # StaleFence if somebody took over meanwhile
