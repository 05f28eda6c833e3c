"""The client option `credentials`: a function of the program returns the logins of connections."""

import asyncio
import ctypes
import gc
import inspect
import itertools
import math
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Generator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from conftest import Run
from server import SLACK, Server
from support.clock import until
from test_cooperative import NAMES, PATCH

import redlock
from redlock import asyncio as aio

SECRET = "S3CR3T"

_numbers = itertools.count()


class Service:
    """Makes a user with a password on the server for each login."""

    def __init__(self, server: Server, name: str, *more: float | timedelta) -> None:
        self._server = server
        self._name = name
        self._more = more
        self.threads: list[threading.Thread] = []
        self.times: list[float] = []
        self.loops: list[asyncio.AbstractEventLoop] = []

    @property
    def calls(self) -> int:
        return len(self.threads)

    def login(self) -> Any:
        self.threads.append(threading.current_thread())
        self.times.append(time.monotonic())
        user, password = f"{self._name}-{self.calls}", f"{SECRET}-{self.calls}"
        self._server.set_user(user, "on", f">{password}", "~*", "+@all")
        return user, password, *self._more

    async def alogin(self) -> Any:
        self.loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return self.login()

    def users(self) -> dict[bytes, str]:
        """The users of the connections that log in with it, by the number of each connection."""
        found: dict[bytes, str] = {}
        for line in bytes(self._server.command("CLIENT", "LIST")).splitlines():
            fields = dict(word.split(b"=", 1) for word in line.split() if b"=" in word)
            if fields[b"user"].startswith(self._name.encode()):
                found[fields[b"id"]] = fields[b"user"].decode()
        return found


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    """An address that only this test uses, because clients share what they know of an address for a while."""
    path = server.dir / f"{next(_numbers)}.sock"
    path.symlink_to(server.socket)
    yield f"unix://{path}"
    path.unlink()


@pytest.fixture
def threads() -> Iterator[Callable[[], list[threading.Thread]]]:
    """Lists the threads of this test that call functions. All of them are gone in the end."""

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "redlock-credentials"]

    until(lambda: not threads())
    yield threads
    until_collected(lambda: not threads(), "the threads end with their clients")


def until_collected(condition: Callable[[], object], what: str) -> None:
    """Wait for garbage. A thread that has just answered a call is about to let go of the function."""

    def collected() -> object:
        if not condition():
            gc.collect()
        return condition()

    until(collected, what)


class Waits:
    """An awaitable that is not a coroutine."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._service.alogin().__await__()


Threads = Callable[[], list[threading.Thread]]

CALLABLES: dict[str, Callable[[Service], Any]] = {
    "function": lambda service: service.login,
    "coroutine function": lambda service: service.alogin,
    "function that returns an awaitable": lambda service: lambda: Waits(service),
}


@pytest.mark.parametrize("kind", CALLABLES)
@pytest.mark.parametrize("face", [redlock, aio])
async def test_a_function_returns_the_login(
    server: Server, url: str, name: str, threads: Threads, face: Any, kind: str
) -> None:
    service = Service(server, name)
    client = face.Redlock(url, credentials=CALLABLES[kind](service))
    await _use(client, name)
    assert set(service.users().values()) == {f"{name}-1"}
    assert [(thread.name, thread.daemon) for thread in service.threads] == [("redlock-credentials", True)]
    until(lambda: threads() == service.threads, "the thread that stood by ends")
    assert not service.loops or service.loops[0] is not asyncio.get_running_loop()
    client.close()
    until(lambda: not threads())
    with pytest.raises(redlock.LockClosed):
        client.lock(name)


class OwnError(Exception):
    pass


@pytest.mark.parametrize("kind", [OwnError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("coroutine", [False, True], ids=["function", "coroutine function"])
@pytest.mark.parametrize("face", [redlock, aio])
@pytest.mark.usefixtures("threads")
async def test_its_exception_is_the_cause(
    url: str, name: str, capfd: pytest.CaptureFixture[str], face: Any, kind: type[BaseException], *, coroutine: bool
) -> None:
    # The engine may call it again meanwhile.
    raised: list[BaseException] = []

    def fail() -> Any:
        secret = SECRET
        raised.append(kind(secret))
        raise raised[-1]

    async def afail() -> Any:
        fail()

    client = face.Redlock(url, credentials=afail if coroutine else fail, timeout=0)
    with pytest.raises(redlock.LockUnavailable) as failed:
        await _use(client, name)
    error = failed.value
    assert error.__cause__ is raised[0]
    assert traceback.extract_tb(raised[0].__traceback__)[-1].name == "fail"
    assert f"the credentials provider failed: {kind.__name__}]" in str(error)
    assert SECRET not in f"{error} {error!r} {error.args} {error.nodes} {client!r} {client.lock(name)!r}"
    assert capfd.readouterr() == ("", "")


WRONG: list[tuple[Any, str]] = [
    (None, "of type NoneType"),
    (f"user {SECRET}", "of type str"),
    (["user", SECRET], "of type list"),
    ((SECRET,), "a tuple of 1"),
    ((None, SECRET), "the user is of type NoneType"),
    (("user", SECRET.encode()), "the password is of type bytes"),
    (("user", ""), "the password is empty"),
    (("user", f"{SECRET}\ud800"), "the password contains a lone surrogate"),
    (("user", SECRET, "60"), "seconds is of type str"),
    (("user", SECRET, True), "seconds is of type bool"),
    (("user", SECRET, math.nan), "seconds is not a number"),
    (("user", SECRET, timedelta(-1)), "seconds is -86400 s"),
    (("user", SECRET, 10**400), "seconds is too large"),
]


@pytest.mark.usefixtures("threads")
def test_a_wrong_result_fails_the_call(name: str) -> None:
    for number, (returned, said) in enumerate(WRONG):
        client = redlock.Redlock(f"unix:///nowhere/{name}-{number}", credentials=lambda: returned, timeout=0)  # noqa: B023
        with pytest.raises(redlock.LockUnavailable) as failed:
            client.lock(name).acquire()
        client.close()
        cause = failed.value.__cause__
        assert isinstance(cause, redlock.LockInvalidArgument)
        assert cause.option in {"credentials", "seconds"}
        assert said in str(cause)
        assert f"the credentials provider failed: LockInvalidArgument: {cause}]" in str(failed.value)
        assert SECRET not in f"{failed.value} {failed.value!r} {cause} {cause!r}"


@pytest.mark.parametrize("face", [redlock, aio])
def test_wrong_options(face: Any, threads: Threads) -> None:
    for wrong in (("user", SECRET), 0, [lambda: ("user", SECRET)]):
        for make in (face.Redlock, face.configure):
            with pytest.raises(redlock.LockInvalidArgument, match=r"credentials is of type .*a function") as refused:
                make("memory://wrong", credentials=wrong)
            assert refused.value.option == "credentials"
            assert SECRET not in str(refused.value)
    client = face.Redlock("memory://right", credentials=None)
    with pytest.raises(redlock.LockInvalidArgument, match=r"credentials.*give it to the client"):
        client.lock("foo", credentials=lambda: ("user", SECRET))
    with pytest.raises(redlock.LockInvalidArgument, match=r"credentials and password_file are both given"):
        face.Redlock("redis://h", credentials=lambda: ("user", SECRET), password_file="/p")
    assert not threads()


USES: dict[str, Callable[[Any, str], Any]] = {
    "acquire": lambda client, name: client.lock(name).acquire(),
    "locked": lambda client, name: client.lock(name).locked(),
    "inspect": lambda client, name: client.inspect(name),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("face", [redlock, aio])
@pytest.mark.usefixtures("threads")
async def test_it_cannot_use_its_own_client(server: Server, url: str, name: str, use: str, face: Any) -> None:
    service = Service(server, name)
    own: list[Any] = []

    async def provider() -> Any:
        result = USES[use](own[0], name)
        if inspect.isawaitable(result):
            await result
        return service.login()

    own.append(face.Redlock(url, credentials=provider, timeout=0))
    with pytest.raises(redlock.LockUnavailable) as failed:
        await _use(own[0], name)
    cause = failed.value.__cause__
    assert isinstance(cause, redlock.LockInvalidArgument)
    assert str(cause) == "a credentials provider cannot use a lock of its own client; use another client"
    own.clear()


async def _use(client: Any, name: str) -> None:
    lock = client.lock(name)
    for call in (lock.acquire, lock.release):
        done = call()
        if inspect.isawaitable(done):
            await done


def test_the_thread_ends_with_its_client(server: Server, url: str, name: str, threads: Threads) -> None:
    service = Service(server, name)
    client = redlock.Redlock(url, credentials=service.alogin)
    assert not threads(), "it begins with the first call"
    lock = client.lock(name)
    with lock:
        until(lambda: len(threads()) == 1)
    del client
    with lock:
        assert len(threads()) == 1, "a lock keeps it"
    del lock
    until(lambda: not threads())
    until(service.loops[0].is_closed)


@pytest.mark.filterwarnings("ignore:lock .* was garbage-collected:ResourceWarning")
@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
def test_a_client_that_its_function_leads_to_is_collected(
    server: Server, url: str, name: str, threads: Threads, *, fails: bool
) -> None:
    class Owner:
        def __init__(self) -> None:
            self.service = Service(server, name)
            self.client = redlock.Redlock(url, credentials=self.login, timeout=0)
            # It stays held without its object, but not for ever.
            self.lock = self.client.lock(name, ttl=1, max_hold=1.5)

        def login(self) -> Any:
            if fails:
                # The traceback leads to the client too.
                raise OwnError(self)
            return self.service.login()

    owner = Owner()
    if fails:
        with pytest.raises(redlock.LockUnavailable):
            owner.lock.acquire()
    else:
        assert owner.lock.acquire()
    assert threads()
    gone = weakref.ref(owner)
    del owner
    until_collected(lambda: gone() is None, "the owner is garbage")
    until(lambda: not threads())
    until(lambda: not server.has(name))


PROVIDER = """
import os, sys, threading, time
calls = []

def provider():
    calls.append((os.getpid(), threading.current_thread().name))
    return user, password

def threads():
    return [thread for thread in threading.enumerate() if thread.name == "redlock-credentials"]
"""


@pytest.fixture
def program(server: Server, url: str, name: str) -> str:
    """The beginning of a program, with `provider` and a user for it."""
    server.set_user(name, "on", f">{SECRET}", "~*", "+@all")
    return f"url, user, password = {url!r}, {name!r}, {SECRET!r}\n{PROVIDER}"


def test_a_forked_child_has_a_thread_of_its_own(run: Run, program: str) -> None:
    done = run(
        program
        + """
client = redlock.Redlock(url, credentials=provider, ttl=5)
with client.lock(name) as lock:
    # One child dies early, because the state that it inherits is in use at any moment.
    for number in range(6):
        pid = os.fork()
        if pid == 0:
            assert not threads()
            if number % 2:
                with client.lock(f"{name}-{number}"):
                    assert calls[-1] == (os.getpid(), "redlock-credentials"), calls
                    until(lambda: len(threads()) == 1)
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    lock.check()
    assert calls == [(os.getpid(), "redlock-credentials")]
    assert len(threads()) == 1
print("parent")
""",
        "-W",
        "error::ResourceWarning",
    )
    assert (done.stdout, done.stderr, done.returncode) == ("parent\n", "", 0)


def test_a_fork_while_the_function_runs(run: Run, program: str) -> None:
    done = run(
        program
        + """
running, over = threading.Event(), threading.Event()
first = os.getpid()

def slow():
    if os.getpid() == first:
        running.set()
        over.wait()
    return provider()

client = redlock.Redlock(url, credentials=slow)
waiter = threading.Thread(target=client.lock(name, timeout=30).acquire)
waiter.start()
running.wait()
pid = os.fork()
if pid == 0:
    with client.lock(name + "-child"):
        print("child", flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
over.set()
waiter.join()
print("parent", len(calls))
"""
    )
    assert (done.stdout, done.stderr, done.returncode) == ("child\nparent 1\n", "", 0)


HANGS = {
    "a coroutine hangs": """
import asyncio

async def hang():
    began.set()
    await asyncio.sleep(3600)

client = redlock.Redlock(url, credentials=hang)
threading.Thread(target=client.lock(name).acquire, daemon=True).start()
began.wait()
""",
    "calls follow each other": """
client = redlock.Redlock(url, credentials=lambda: (*provider(), 0))
with client.lock(name):
    until(lambda: len(calls) > 1)
""",
}


@pytest.mark.parametrize("end", HANGS)
def test_the_end_of_the_interpreter(run: Run, server: Server, name: str, program: str, end: str) -> None:
    first = "client, began = redlock.Redlock(url, credentials=provider), threading.Event()\n"
    last = "\nprint(time.monotonic())"
    done = run(program + first + HANGS[end] + last, "-X", "dev", "-W", "error")
    assert time.monotonic() - float(done.stdout) < 1 + 2 * SLACK, "it waits for nothing"
    assert (done.stderr, done.returncode) == ("", 0)
    until(lambda: not server.has(name))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "on_exit"), reason="only glibc has it")
def test_a_call_that_outlives_the_interpreter(run: Run, program: str) -> None:
    """The process is slow to end, and meanwhile a daemon's first try comes to nothing."""
    done = run(
        program
        + """
import ctypes
libc = ctypes.CDLL(None)
# It gets the exit status.
libc.on_exit(ctypes.cast(libc.sleep, ctypes.c_void_p), None)
began = threading.Event()

def hang():
    began.set()
    threading.Event().wait()

client = redlock.Redlock(url, credentials=hang, connect_timeout=0.5)
threading.Thread(target=client.lock(name).acquire, daemon=True).start()
began.wait()
sys.exit(2)
"""
    )
    assert (done.stderr, done.returncode) == ("", 2)


def test_greenlets_run_while_it_blocks(run: Run, program: str) -> None:
    """The function may block its thread for long, where it calls C. No greenlet runs on that thread."""
    done = run(
        NAMES["gevent"]
        + program
        + """
import ctypes
ticks = []

def tick():
    while True:
        sleep(0.01)
        ticks.append(1)

def blocks():
    before = len(ticks)
    # The engine gives up a call after 10 s.
    until(lambda: ctypes.CDLL(None).usleep(200_000) or len(ticks) > before + 5, limit_s=8)
    return provider()

spawn(tick)
with redlock.Redlock(url, credentials=blocks).lock(name):
    print("held")
""",
        first=PATCH["gevent"],
    )
    assert (done.stdout, done.stderr, done.returncode) == ("held\n", "", 0)
