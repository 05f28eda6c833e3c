"""Elections as Python has them: bodies, their exceptions and cancellation, stopping, threads, signals, forks."""

import asyncio
import contextlib
import functools
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import pytest
from conftest import Output, Start
from server import LIMIT, Server
from test_asyncio import eventually
from test_stats import total

import redlock
from redlock import asyncio as aio
from redlock import blocking
from redlock.testing import MemoryServer, lose

FACES = pytest.mark.parametrize("face", [redlock, aio])


@pytest.fixture
def memory() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def election(memory: MemoryServer) -> redlock.Election:
    return redlock.Redlock(memory.url).election("leader")


@pytest.fixture
def aelection(memory: MemoryServer) -> aio.Election:
    return aio.Redlock(memory.url).election("leader")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def campaigns(memory: MemoryServer) -> bool:
    """Whether somebody waits for the lock."""
    return bool(redlock.Redlock(memory.url).inspect("leader").waiting)


def is_free(memory: MemoryServer) -> bool:
    return redlock.Redlock(memory.url).inspect("leader").state == "free"


def never(_: object) -> NoReturn:
    pytest.fail("it leads")


# --- blocking ---


def test_the_loss_of_another_lock_is_one(election: redlock.Election, memory: MemoryServer) -> None:
    other = redlock.Redlock(memory.url).lock("other")

    def lead(lock: redlock.Lock) -> NoReturn:
        other.acquire()
        lose(other, "taken")
        lose(lock, "taken")
        other.check()
        pytest.fail("it is lost")

    with pytest.raises(redlock.LockLost) as raised:
        election.run(lead)
    assert raised.value.name == "other"


def test_a_loss_that_only_the_release_finds_takes_nothing_from_what_was_returned(
    election: redlock.Election, memory: MemoryServer
) -> None:
    def lead(lock: redlock.Lock) -> bool:
        memory.wipe()
        return lock.held

    assert election.run(lead) is True


def test_a_body_can_release_its_lock(election: redlock.Election, memory: MemoryServer) -> None:
    def lead(lock: redlock.Lock) -> str:
        lock.release()
        assert is_free(memory)
        return "resigned early"

    assert election.run(lead) == "resigned early"


def test_a_campaign_fails_if_the_cause_is_in_this_process(
    election: redlock.Election, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acquire(*_: object) -> NoReturn:
        raise redlock.LockUnavailable("no thread")

    monkeypatch.setattr(blocking.Lock, "_campaign", acquire)
    with pytest.raises(redlock.LockUnavailable, match="no thread"):
        election.run(never)


# --- signals and processes ---

CAMPAIGN = """
import signal, sys, threading
# A background job of a shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
election = client.election(name, ttl=60)
"""


def test_ctrl_c_ends_a_body_and_its_term(start: Start, server: Server, name: str) -> None:
    program = f"""{CAMPAIGN}
import time
def lead(lock):
    print("leads", flush=True)
    time.sleep(60)
try:
    election.run(lead)
except KeyboardInterrupt:
    print(client.inspect(name).state, flush=True)
"""
    process = start(program)
    assert process.stdout.readline() == "leads\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "free\n"
    assert process.wait(LIMIT) == 0
    assert not server.has(name)


def test_a_signal_handler_can_stop_a_loop(start: Start, server: Server, name: str) -> None:
    program = f"""{CAMPAIGN}
import asyncio
election = redlock.asyncio.Redlock(urls).election(name)
signal.signal(signal.SIGTERM, lambda *_: election.stop())

async def lead(lock):
    print("leads", flush=True)
    await asyncio.sleep(60)

print(asyncio.run(election.run(lead)), flush=True)
"""
    process = start(program)
    assert process.stdout.readline() == "leads\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "None\n"
    assert process.wait(LIMIT) == 0
    assert not server.has(name)


def test_a_forked_child_has_an_election_of_its_own(output: Output, server: Server, name: str) -> None:
    program = """
import os, sys, threading
election = client.election(name)
waiting = client.election(name)

def lead(lock):
    # A thread of the parent campaigns, and the child has no such thread.
    thread = threading.Thread(target=waiting.run, args=(lambda lock: None,))
    thread.start()
    until(lambda: client.inspect(name).waiting)
    child = os.fork()
    if child == 0:
        election.stop()
        waiting.stop()
        assert not lock.held
        assert election.run(print) is None
        other = client.election(name + "-child")
        assert other.run(lambda lock: lock.held)
        return "child"
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lock.check()
    assert thread.is_alive()
    waiting.stop()
    thread.join()
    return f"parent {status} {election.stopped}"

print(election.run(lead), flush=True)
if election.stopped:
    os._exit(7)
"""
    assert output(program) == "child\nparent 7 False\n"
    assert not server.has(name)


# --- arguments ---


async def coroutine(_: object) -> None: ...


def generator(_: object) -> Iterator[int]:
    yield 1


def plain(_: object) -> None: ...


@functools.wraps(coroutine)
def hidden(_: object) -> object:
    return coroutine(_)


WRONG = {redlock: [coroutine, generator, hidden, 3, None], aio: [plain, generator, 3, None]}


@FACES
async def test_an_election_takes_functions_of_its_kind(face: Any) -> None:
    for wrong in WRONG[face]:
        with pytest.raises(TypeError, match=r"election of redlock[^@]*$"):
            await face.Redlock("memory://election").election("leader").run(wrong)


@FACES
def test_wrong_arguments_are_refused_at_once(face: Any) -> None:
    client = face.Redlock("memory://election")
    for option, value in (("timeout", 1), ("protocol", "plain"), ("tll", 1), ("ttl", "long")):
        wrong: dict[str, Any] = {option: value}
        with pytest.raises(redlock.LockInvalidArgument, match=option) as refused:
            client.election("leader", **wrong)
        assert refused.value.option == option
    for name in ("", 3, ["a"]):
        with pytest.raises(redlock.LockInvalidArgument, match="name"):
            client.election(name)


@FACES
def test_a_client_that_names_locks_in_its_own_way_does_not_name_elections(face: Any) -> None:
    base: Any = face.Redlock

    class Tenant(base):  # type: ignore[misc]
        def lock(self, name: str, **options: Any) -> Any:
            return super().lock(f"tenant:{name}", **options)

    assert repr(Tenant("memory://tenant").election("leader")) == f"<{face.Election.__module__}.Election 'leader'>"


# --- asyncio ---


def undisturbed() -> bool:
    """Whether nobody asks this task to end any more."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


async def test_what_a_body_returns_after_the_loss_is_dropped(aelection: aio.Election) -> None:
    terms = 0

    async def lead(lock: aio.Lock) -> int:
        nonlocal terms
        terms += 1
        if terms == 1:
            lose(lock, "taken")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(LIMIT)
        if terms == 2:
            lose(lock, "taken")
            lock.check()
        return terms

    assert await aelection.run(lead) == 3
    assert undisturbed()


async def test_what_a_body_raises_comes_out_after_the_release(aelection: aio.Election, memory: MemoryServer) -> None:
    async def fail_after_the_loss(lock: aio.Lock) -> None:
        lose(lock, "taken")
        try:
            await asyncio.sleep(LIMIT)
        except asyncio.CancelledError:
            raise KeyError("mine") from None

    async def fail_after_the_stop(_: aio.Lock) -> None:
        aelection.stop()
        raise KeyError("mine")

    for body in (fail_after_the_loss, fail_after_the_stop):
        with pytest.raises(KeyError, match="mine"):
            await aelection.run(body)
        assert undisturbed()
        await eventually(lambda: is_free(memory))


async def campaigning(election: aio.Election, memory: MemoryServer) -> asyncio.Task[str | None]:
    """A task that campaigns while another one leads."""

    async def lead(_: aio.Lock) -> str:
        pytest.fail("it leads")

    memory.hold("leader")
    task = asyncio.create_task(election.run(lead))
    await eventually(lambda: campaigns(memory))
    return task


async def test_a_stop_cancels_a_body_which_may_clean_up(aelection: aio.Election, memory: MemoryServer) -> None:
    began, order = asyncio.Event(), list[object]()

    async def lead(lock: aio.Lock) -> str:
        began.set()
        try:
            await asyncio.sleep(LIMIT)
        finally:
            await asyncio.sleep(0.05)
            order.append(lock.held)
        return "over"

    async def run() -> str | None:
        led = await aelection.run(lead)
        assert undisturbed()
        return led

    task = asyncio.create_task(run())
    await began.wait()
    aelection.stop()
    assert await task is None
    assert order == [True], "it leads until its body has ended"
    assert is_free(memory)


async def test_a_body_that_stops_its_own_election(aelection: aio.Election, memory: MemoryServer) -> None:
    async def goes_on(_: aio.Lock) -> str:
        aelection.stop()
        await asyncio.sleep(LIMIT)
        return "went on"

    async def returns(_: aio.Lock) -> str:
        again.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LIMIT)
        return "led"

    again = aio.Redlock(memory.url).election("leader")
    assert await aelection.run(goes_on) is None
    assert await again.run(returns) == "led", "it ignores the stop"
    assert undisturbed()
    await eventually(lambda: is_free(memory))


async def test_a_cancelled_campaign_leaves_nothing(aelection: aio.Election, memory: MemoryServer) -> None:
    task = await campaigning(aelection, memory)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not total("redlock_waiting"))
    memory.release("leader")
    assert is_free(memory)
    # A stop finds nobody to tell.
    aelection.stop()
    await asyncio.sleep(0)
    assert undisturbed()


async def test_a_cancelled_term_ends_body_and_term(aelection: aio.Election, memory: MemoryServer) -> None:
    began = asyncio.Event()

    async def lead(_: aio.Lock) -> None:
        began.set()
        await asyncio.sleep(LIMIT)

    task = asyncio.create_task(aelection.run(lead))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: is_free(memory))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await aelection.run(lead)
    assert undisturbed()
    await eventually(lambda: is_free(memory))
