import redlock

nightly = redlock.lock("cron:nightly")
if nightly.acquire(blocking=False):
    try:
        print("running it")
    finally:
        nightly.release()
else:
    print("another process is running it")
