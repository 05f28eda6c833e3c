"""What happens in the engine reaches `logging`: once, in time, whatever handlers do, and also at the end."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Output, Run
from server import LIMIT
from support.clock import until
from test_cooperative import PATCH
from test_stats import total

import redlock
from redlock import _events
from redlock.testing import MemoryServer, lose

LOSE = """
import logging, sys
from redlock.testing import MemoryServer, lose
memory = redlock.Redlock(MemoryServer().url)

def lose_one(name):
    lock = memory.lock(name)
    lock.acquire()
    lose(lock, "taken")
"""
"""For programs: a loss is the event that is easiest to cause."""


def to(stream: str) -> str:
    """Have a program log to its standard output or error, each line with the process."""
    return f"logging.basicConfig(stream=sys.{stream}, format='%(process)d %(name)s %(levelname)s %(message)s')\n"


def line(name: str) -> str:
    """How a program logs the loss of a lock, after the process."""
    return f" redlock.lock WARNING a held lock is lost (name={name}, reason=taken)"


def lose_one(client: redlock.Redlock, name: str) -> None:
    lock = client.lock(name)
    lock.acquire()
    lose(lock, "taken")


def about(records: list[logging.LogRecord], name: str) -> list[logging.LogRecord]:
    """The records about a lock."""
    return [record for record in records if vars(record).get("fields", {}).get("name") == name]


@pytest.fixture
def memory() -> Iterator[redlock.Redlock]:
    with redlock.Redlock(MemoryServer().url) as client:
        yield client


class Handler(logging.Handler):
    """Collects records, and does something to each before."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def act(self, record: logging.LogRecord) -> None:
        """What a test has it do."""

    def emit(self, record: logging.LogRecord) -> None:
        self.act(record)
        self.records.append(record)


@pytest.fixture
def handler() -> Iterator[Handler]:
    handler = Handler()
    logging.getLogger("redlock").addHandler(handler)
    yield handler
    logging.getLogger("redlock").removeHandler(handler)


# --- records ---


def test_a_record_says_what_happened_and_when(caplog: pytest.LogCaptureFixture, memory: redlock.Redlock) -> None:
    began, name = time.time(), "50%(name)s %d"
    lose_one(memory, name)
    until(lambda: about(caplog.records, name))
    (record,) = about(caplog.records, name)
    assert (record.name, record.levelno) == ("redlock.lock", logging.WARNING)
    assert record.getMessage() == f"a held lock is lost (name={name}, reason=taken)"
    assert vars(record)["code"] == record.funcName == "lock_lost"
    assert vars(record)["fields"] == {"name": name, "reason": "taken"}
    assert record.threadName == "redlock-log"
    # The engine counts whole microseconds.
    assert began - 1e-6 <= record.created <= time.time()
    assert record.msecs == int(record.created % 1 * 1000)
    now = logging.makeLogRecord({})
    # A float of seconds since 1970 is exact to less than a microsecond.
    between = pytest.approx(1000 * (now.created - record.created), abs=0.001)
    assert now.relativeCreated - record.relativeCreated == between


def test_nothing_is_made_of_an_event_that_nobody_wants(
    caplog: pytest.LogCaptureFixture, memory: redlock.Redlock, name: str
) -> None:
    made: list[str] = []
    factory = logging.getLogRecordFactory()

    def count(*args: object, **kwargs: object) -> logging.LogRecord:
        record = factory(*args, **kwargs)
        made.append(record.name)
        return record

    logging.setLogRecordFactory(count)
    try:
        for level, expected in ((logging.CRITICAL, 0), (logging.WARNING, 1)):
            caplog.set_level(level, logger="redlock.lock")
            lose_one(memory, name)
            _events.flush()
            assert made.count("redlock.lock") == expected
    finally:
        logging.setLogRecordFactory(factory)


# --- handlers ---


def test_what_a_handler_raises_stops_nothing(
    handler: Handler, memory: redlock.Redlock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked: list[object] = []
    error = KeyError("on purpose")

    def fail(record: logging.LogRecord) -> None:
        # A node may be silent for a moment, which is logged too.
        if record.name == "redlock.lock":
            raise error

    def hook(args: threading.ExceptHookArgs) -> None:
        hooked.append(args.exc_value)
        raise SystemExit

    monkeypatch.setattr(threading, "excepthook", hook)
    monkeypatch.setattr(handler, "act", fail)
    lose_one(memory, f"{name}-1")
    lose_one(memory, f"{name}-2")
    until(lambda: len(hooked) == 2)
    monkeypatch.undo()
    lose_one(memory, f"{name}-3")
    until(lambda: about(handler.records, f"{name}-3"))
    assert hooked == [error] * 2


def test_a_handler_may_use_locks(
    handler: Handler, client: redlock.Redlock, memory: redlock.Redlock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fences: list[int] = []

    def use(record: logging.LogRecord) -> None:
        if not about([record], name):
            return
        for each in (client, memory):
            with each.lock(f"{name}-inside", timeout=LIMIT) as lock:
                fences.append(lock.fence)

    monkeypatch.setattr(handler, "act", use)
    lose_one(memory, name)
    lose_one(client, name)
    until(lambda: len(about(handler.records, name)) == 2)
    assert len(fences) == 4


def test_a_handler_that_blocks_blocks_no_lock_and_a_burst_loses_the_oldest(
    handler: Handler, client: redlock.Redlock, memory: redlock.Redlock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, free = threading.Event(), threading.Event()

    def block(_: logging.LogRecord) -> None:
        entered.set()
        assert free.wait(2 * LIMIT)

    before = total("redlock_events_dropped_total")
    monkeypatch.setattr(handler, "act", block)
    lose_one(memory, name)
    assert entered.wait(LIMIT)
    burst = 1_500
    try:
        with client.lock(name) as lock:
            for _ in range(burst):
                lose_one(memory, name)
            lock.extend()
    finally:
        free.set()
    _events.flush()
    dropped = total("redlock_events_dropped_total") - before
    # Events of other tests' nodes may be among those that were dropped.
    assert 0 < burst + 1 - len(about(handler.records, name)) <= dropped
    (warning,) = [record for record in handler.records if vars(record)["code"] == "events_dropped"]
    assert (warning.name, warning.levelno) == ("redlock.process", logging.WARNING)
    assert int(vars(warning)["fields"]["count"]) == dropped
    # Those that were lost are the oldest of the ring.
    assert handler.records.index(warning) == 1


# --- the program's configuration ---


def test_the_import_does_not_import_logging() -> None:
    program = """
import sys, redlock
print("logging" in sys.modules)
redlock.Redlock("memory://first")
print("logging" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout == "False\nTrue\n"


def test_a_program_that_does_not_configure_logging_prints_nothing(output: Output) -> None:
    assert output(LOSE + "lose_one(name)") == ""


# --- the end of the process ---


def test_nothing_is_lost_at_the_end(output: Output, name: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = f"""
import time
logging.basicConfig(filename={str(path)!r}, filemode="w")
logging.getLogger().handlers[0].addFilter(lambda record: time.sleep(0.01) or True)
for number in range(50):
    lose_one(f"{{name}}-{{number}}")
"""
    # The import of `redlock` is earlier than that of `logging`, which closes its files later then.
    assert output(LOSE + program) == ""
    said = [each.rpartition("WARNING:redlock.lock:")[2] for each in path.read_text().splitlines()]
    assert said == [line(f"{name}-{number}").rpartition("WARNING ")[2] for number in range(50)]


def test_what_happens_while_the_interpreter_ends(run: Run, name: str) -> None:
    # It runs after the last hook that was registered with the first client, and before the shutdown.
    first = """
import atexit, redlock
atexit.register(lambda: lose_one(name))
"""
    done = run(LOSE + to("stderr"), first=first)
    (said,) = done.stderr.splitlines()
    assert said.endswith(line(name))
    assert done.returncode == 0


BLOCKS = """
import os, threading
entered = threading.Event()

class Blocks(logging.Handler):
    def emit(self, record):
        entered.set()
        threading.Event().wait()

logging.getLogger("redlock").addHandler(Blocks())
lose_one(name)
"""
"""For programs: a handler that never comes back."""


@pytest.mark.parametrize("when", ["entered.wait()", ""], ids=["before the end", "at the end"])
def test_a_handler_that_blocks_for_ever_does_not_hang_the_end(output: Output, when: str) -> None:
    program = f"{when}\nwith client.lock(name): print('held')"
    assert output(LOSE + BLOCKS + program) == "held\n"


# --- forks ---


@pytest.mark.parametrize(("way", "first"), [("sys.exit(0)", ""), ("os._exit(0)", ""), ("os._exit(0)", PATCH["gevent"])])
def test_a_child_logs_its_own_events_once(run: Run, name: str, way: str, first: str) -> None:
    program = f"""
import os, time
seen = []

class Seen(logging.Handler):
    def emit(self, record):
        seen.append(record.code)

# Behind the one that writes.
logging.getLogger().addHandler(Seen())

def lose_and_wait(name):
    count = len(seen)
    lose_one(name)
    while len(seen) == count:
        time.sleep(0.01)

lose_and_wait(name + "-before")
pid = os.fork()
if pid == 0:
    lose_and_wait(name + "-child")
    {way}
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
lose_one(name + "-after")
print(os.getpid(), pid)
"""
    done = run(LOSE + to("stderr") + program, first=first)
    parent, child = done.stdout.split()
    assert done.stderr.splitlines() == [
        parent + line(f"{name}-before"),
        child + line(f"{name}-child"),
        parent + line(f"{name}-after"),
    ]
    assert done.returncode == 0


def test_a_child_of_a_program_that_forks_by_itself_logs_too(output: Output, name: str) -> None:
    """uWSGI with `py-call-osafterfork` calls only the hooks of the child."""
    program = f"from redlock import _events\n_events._after_fork_in_child()\n{to('stdout')}lose_one(name)"
    assert line(name) in output(LOSE + program)


@pytest.mark.parametrize("way", ["newer", "spawn", "billiard"])
def test_workers_log_what_they_have_lost_when_they_end(run: Run, name: str, way: str) -> None:
    program = f"""
import children
context = children.context({way!r})
processes = [context.Process(target=children.lose, args=(f"{{name}}-{{number}}",)) for number in range(2)]
for process in processes:
    process.start()
for process in processes:
    process.join()
print(*(process.exitcode for process in processes))
"""
    done = run(LOSE + program)
    assert done.stdout == "0 0\n"
    said = [f"a held lock is lost (name={name}-{number}, reason=taken)" for number in range(2)]
    assert sorted(done.stderr.splitlines()) == said


def test_a_fork_waits_for_the_handler_that_runs(output: Output) -> None:
    program = """
import os, threading, time
from redlock import _events
# On a slow machine the handler may have no turn for so long.
_events._PATIENCE_AT_FORK = 5
of_handler = threading.Lock()

class Locks(logging.Handler):
    # Its own lock, which `logging` would make anew in the child, is not used.
    def handle(self, record):
        with of_handler:
            time.sleep(0.01)

logging.getLogger("redlock").addHandler(Locks())
for _ in range(20):
    for number in range(3):
        lose_one(f"{name}-{number}")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if of_handler.acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "a child finds it locked"
"""
    assert output(LOSE + program) == ""


def test_a_fork_does_not_wait_for_a_handler_that_blocks_for_ever(output: Output) -> None:
    program = """
entered.wait()
pid = os.fork()
if pid == 0:
    with client.lock(name):
        pass
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""
    assert output(LOSE + BLOCKS + program) == ""


# --- gevent and eventlet ---


def test_a_loop_of_gevent_ends_when_nothing_else_is_to_be_done(output: Output) -> None:
    program = """
import gevent

def use():
    with client.lock(name) as lock:
        lock.on_lost(print)
        gevent.sleep(0.01)

gevent.spawn(use)
print(gevent.wait(timeout=20))
"""
    assert output(program, first=PATCH["gevent"]) == "True\n"
