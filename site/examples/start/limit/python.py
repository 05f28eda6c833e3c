import redlock

with redlock.lock("report"):  # somebody has it
    try:
        with redlock.lock("report", timeout=0.5):  # seconds
            print("it is mine")
    except redlock.LockTimeout:
        print("others held it until the time limit")
