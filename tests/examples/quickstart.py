import redlock

# Wait for the lock, work, release it.
with redlock.lock("invoice:17") as lock:
    print(f"held for {lock.remaining:.1f} s more, fence {lock.fence}")


# Around a function; LockTimeout if others hold it for 5 s.
@redlock.locked("report", ttl=30, timeout=5)
def report() -> int:
    return 3


print(report(), "lines")

# Or try once. `acquire` returns False where `with` raises LockTimeout: look at what it returns.
nightly = redlock.lock("cron:nightly")
if nightly.acquire(blocking=False):
    try:
        print("others get it:", redlock.lock("cron:nightly").acquire(timeout=0.05))
    finally:
        nightly.release()
