import redlock

with redlock.lock("invoice:17"):
    print("working on invoice 17")
