import redlock

nightly = redlock.lock("cron:nightly")
if nightly.acquire(blocking=False):
    print("running it")
    nightly.release()
else:
    print("another process is running it")
