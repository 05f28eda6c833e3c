import time

import redlock

try:
    with redlock.lock("import", ttl=1, max_hold=1) as lock:
        while lock.held:  # work that hangs
            time.sleep(0.1)
except redlock.LockLost as error:
    print("lost:", error.reason)
