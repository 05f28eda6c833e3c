import time

import redlock

with redlock.lock("import", ttl=1) as lock:  # after a crash, others wait for 1 s at most
    time.sleep(2)  # longer than the ttl
    print("renewed" if lock.held else "lost")
