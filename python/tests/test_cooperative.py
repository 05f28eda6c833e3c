"""gevent and eventlet, with everything patched: a call lets the other greenlets run while it waits."""

import signal

import pytest
from conftest import Run, Start
from server import LIMIT, Server
from support.clock import until

PATCH = {
    "gevent": "import gevent.monkey; gevent.monkey.patch_all()",
    # At its import it says that its maintainers advise against it for new programs.
    "eventlet": """
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import eventlet
eventlet.monkey_patch()
""",
}

# The same names for both packages.
NAMES = {
    "gevent": """
import time, threading, gevent
from gevent import spawn, sleep, kill
join = gevent.Greenlet.get
Timeout = gevent.Timeout
""",
    "eventlet": """
import time, threading, eventlet
from eventlet import spawn, sleep, kill, Timeout
join = eventlet.greenthread.GreenThread.wait
""",
}


@pytest.fixture(params=PATCH)
def package(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


PROGRAMS = {
    "others run while a call waits": (
        """
ticks, over = [], []
holder, other = client.lock(name), client.lock(name)
holder.acquire()

def tick():
    while not over:
        sleep(0.01)
        ticks.append(time.monotonic())
        # The call of another greenlet waits for as many.
        if len(ticks) == 6:
            holder.release()

spawn(tick)
print(other.acquire(timeout=20), len(ticks) > 5)
lock = client.lock(name + "-short", ttl=2, auto_renew=False)
lock.acquire()
ticks.clear()
print(lock.wait_lost(timeout=20).reason, len(ticks) > 5)
over.append(1)
""",
        "True True\nexpired True\n",
    ),
    "every call": (
        """
import datetime
lock = client.lock(name, timeout=20)
assert type(lock).__mro__[1] is redlock.Lock
with lock:
    lock.check()
    lock.extend(60)
    assert 50 < lock.remaining <= 60
    assert client.lock(name).locked()
    assert client.inspect(name).state == "held"
    assert name in [view.name for view in client.list_locks()]
    assert lock.wait_lost(timeout=0.01) is None
    assert not client.lock(name).acquire(blocking=False)
    for wrong in (lambda: client.lock(name, timeout=0.5).__enter__(), lambda: lock.acquire()):
        try:
            wrong()
        except (redlock.LockTimeout, redlock.LockAlreadyHeld) as error:
            print(error.code)
assert not lock.locked()
assert client.inspect(name).state == "free"
assert client.break_lock(name) is None
assert lock.acquire(timeout=datetime.timedelta(seconds=20))
lock.release()
lock.release()
try:
    client.lock(name).release()
except redlock.LockNotHeld as error:
    print(error.code)
try:
    lock.acquire(5)
except redlock.LockInvalidArgument as error:
    print("timeout=5" in str(error))

@client.lock(name)
def work(amount):
    return amount + 1

@client.locked(lambda amount: name, skip_if_held=True)
def skips(amount):
    return amount + 1

print(work(1), skips(2))
with lock:
    print(skips(3))
# As after an exception between the entry and the body.
client.lock(name, ttl=60).__enter__()
until(lambda: client.inspect(name).state == "free", limit_s=5)
""",
        "timeout\nalready_held\nnot_held\nTrue\n2 3\nSkipped.SKIPPED\n",
    ),
    "an election among greenlets": (
        """
elections = [client.election(name) for _ in range(3)]
order = []

def lead(lock):
    assert isinstance(lock, redlock.Lock)
    order.append(lock.fence)
    sleep(0.05)
    return "led"

results = []
greenlets = [spawn(lambda election: results.append(election.run(lead)), election) for election in elections]
for greenlet in greenlets:
    join(greenlet)
print(results, order == sorted(order))

holder = client.lock(name)
holder.acquire()
waits = spawn(lambda: results.append(elections[0].run(lead)))
sleep(0.1)
elections[0].stop()
join(waits)
print(results[-1])

waits = spawn(elections[1].run, lead)
sleep(0.1)
kill(waits)
sleep(0.05)
holder.release()
sleep(0.1)
# An attempt that was on its way may have won it, and is given back.
while client.inspect(name).state != "free":
    sleep(0.01)
print(len(order))
""",
        "['led', 'led', 'led'] True\nNone\n3\n",
    ),
    "the loss of a lock": (
        """
lost = threading.Event()
told = []
lock = client.lock(name, ttl=0.2, auto_renew=False)
lock.on_lost(lambda error: (told.append(error.reason), lost.set()))
try:
    with lock:
        lost.wait(5)
        print(told, lock.held)
except redlock.LockLost as error:
    print(error.reason)
try:
    with lock:
        lost.clear()
        lost.wait(5)
        raise KeyError("its own")
except KeyError as error:
    print(error)
""",
        "['expired'] False\nexpired\n'its own'\n",
    ),
    "a wait that is ended leaves no key": (
        """
lock, waiting = client.lock(name), client.lock(name)
lock.acquire()

class Ours(Exception):
    pass

try:
    with Timeout(0.1, Ours):
        waiting.acquire()
except Ours:
    print("over")
waits = spawn(waiting.acquire)
sleep(0.1)
kill(waits)
sleep(0.05)
lock.release()
until(lambda: client.inspect(name).state == "free")
sleep(0.1)
print(client.inspect(name).state, waiting.held)
print(waiting.acquire(timeout=20))
waiting.release()
""",
        "over\nfree False\nTrue\n",
    ),
    "many greenlets": (
        """
inside, most, turns = 0, 0, 0

def work():
    global inside, most, turns
    for _ in range(2):
        with client.lock(name):
            inside += 1
            most = max(most, inside)
            sleep(0.001)
            inside -= 1
            turns += 1

for greenlet in [spawn(work) for _ in range(50)]:
    join(greenlet)
from redlock import _cooperative
print(most, turns, len(_cooperative._idle))
""",
        "1 100 32\n",
    ),
}
"""What greenlets do, and what they print."""


@pytest.mark.parametrize("package", PATCH)
def test_greenlets(run: Run, server: Server, name: str, package: str) -> None:
    """One interpreter, in which the package has patched Python before all imports, does it all."""
    program = f"""
import contextlib, io
for what, (program, _) in {PROGRAMS!r}.items():
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(program, {{**globals(), "name": f"{{name}}-{{what}}"}})
    print(repr((what, said.getvalue())))
"""
    done = run(NAMES[package] + program, first=PATCH[package])
    assert done.stdout.splitlines() == [repr((what, said)) for what, (_, said) in PROGRAMS.items()], done.stderr
    assert (done.returncode, done.stderr) == (0, "")
    until(lambda: not server.command("KEYS", f"{name}-*"))


def test_a_lock_that_was_made_before_the_patch_blocks_the_hub(run: Run, package: str) -> None:
    program = f"""
holder, former = client.lock(name), client.lock(name)
holder.acquire()
{PATCH[package]}
{NAMES[package]}
ticks = []

def tick():
    while True:
        sleep(0.01)
        ticks.append(1)

spawn(tick)
sleep(0.1)
ticks.clear()
print(former.acquire(timeout=0.2), len(ticks))
"""
    done = run(program)
    assert done.stdout == "False 0\n", done.stderr


def test_ctrl_c_ends_a_wait(start: Start, server: Server, name: str) -> None:
    program = """
import signal
# A background job of a shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
lock = client.lock(name)
lock.acquire()

def tell():
    gevent.sleep(0.1)
    print("waits", flush=True)

import gevent
gevent.spawn(tell)
try:
    client.lock(name).acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = start(program, first=PATCH["gevent"])
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert process.wait(LIMIT) == 0
    until(lambda: not server.has(name))


def test_a_forked_child_has_queues_of_its_own(run: Run) -> None:
    program = """
import os, gevent
with client.lock(name) as lock:
    lock.on_lost(print)
started = []
gevent.spawn(started.append, 1)
child = os.fork()
if child == 0:
    assert not started, "greenlets of the parent run during the fork"
    with client.lock(name):
        gevent.sleep(0.01)
    os._exit(7)
with client.lock(name):
    pass
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(program, first=PATCH["gevent"]).stdout == "7\n"


def test_a_greenlet_that_a_fork_has_copied_while_it_waits_does_not_get_the_lock(run: Run) -> None:
    program = """
import os, gevent
def wait():
    try:
        with client.lock(name):
            print("entered", flush=True)
    except redlock.LockUnavailable:
        os._exit(0)
with client.lock(name):
    waits = gevent.spawn(wait)
    gevent.sleep(0.1)
    child = os.fork()
    if child == 0:
        gevent.sleep(1)
        os._exit(0)
waits.join()
os.waitpid(child, 0)
"""
    assert run(program, first=PATCH["gevent"]).stdout == "entered\n"
