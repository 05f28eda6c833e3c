import redlock

with redlock.lock_all(["account:7", "account:8"]) as lock:  # all names or none, with one fence
    print("move between", *lock.names)
with redlock.semaphore("gpu", 4) as lock:  # at most 4 holders, each with a slot from 0 to 3
    print("compute on", lock.slot)
redlock.election("scheduler").run(lambda lock: print("lead in term", lock.fence))  # one leader, until it returns
