import redlock

# Wait for the lock, work, release it. The nodes come from REDLOCK_URLS, or it is redis://127.0.0.1:6379.
with redlock.lock("invoice:17") as lock:
    print(f"held for {lock.remaining:.1f} s more, fence {lock.fence}")


# Around a function; LockTimeout if others hold it for 5 s.
@redlock.locked("report", ttl=30, timeout=5)
def report() -> int:
    return 3


print(report(), "lines")

# Or try once. `acquire` returns False where `with` raises LockTimeout, also after a timeout: look at what it returns.
nightly = redlock.lock("cron:nightly")
if nightly.acquire(blocking=False):
    try:
        print("others get it:", redlock.lock("cron:nightly").acquire(timeout=0.05))
    finally:
        nightly.release()
