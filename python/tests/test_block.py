"""The blocking face as users of `threading.Lock` know it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta

import pytest
from conftest import Run
from server import SLACK, Nodes, Server
from support.clock import until

import redlock


def test_a_block_holds_the_lock_and_releases_it(client: redlock.Redlock, server: Server, name: str) -> None:
    lock = client.lock(name)
    with lock as same:
        assert same is lock
        assert lock.held is server.has(name)
        assert 0 < lock.remaining <= 5
        assert server.has(name)
        lock.check()
    assert not lock.held
    assert lock.remaining == 0.0
    assert not server.has(name)


def test_a_block_releases_when_its_body_raises(client: redlock.Redlock, server: Server, name: str) -> None:
    with pytest.raises(KeyError), client.lock(name):
        raise KeyError
    assert not server.has(name)


def test_a_loss_is_noted_on_what_the_body_raises(client: redlock.Redlock, name: str) -> None:
    lock = client.lock(name, ttl=0.1, auto_renew=False)

    @client.locked(lambda: name, ttl=0.1, auto_renew=False, pass_lock=True)
    def work(lock: redlock.Lock) -> None:
        until(lambda: not lock.held, "it is lost")
        raise KeyError

    for raises in (work, lambda: lost_in(lock, KeyError())):
        with pytest.raises(KeyError) as raised:
            raises()
        (note,) = raised.value.__notes__
        assert f'lock "{name}": the lock expired while it was held, ' in note
        assert note.endswith(" before its release")
    # This one says it itself.
    with pytest.raises(redlock.LockLost) as lost, client.lock(name, ttl=0.1, auto_renew=False) as own:
        until(lambda: not own.held, "it is lost")
        own.check()
    assert not hasattr(lost.value, "__notes__")


def lost_in(lock: redlock.Lock, error: Exception) -> None:
    with lock:
        until(lambda: not lock.held, "it is lost")
        raise error


def test_two_objects_exclude_each_other_and_fences_rise(client: redlock.Redlock, name: str) -> None:
    first, second = client.lock(name), client.lock(name)
    with first:
        assert not second.acquire(blocking=False)
        assert not second.acquire(timeout=0.2)
        with pytest.raises(redlock.LockTimeout) as raised, client.lock(name, timeout=0):
            pass
        assert raised.value.name == name
        assert raised.value.nodes
        fence = first.fence
    assert second.acquire()
    assert second.fence > fence
    second.release()


def test_misuse_is_told(client: redlock.Redlock, name: str) -> None:
    lock = client.lock(name)
    with pytest.raises(redlock.LockNotHeld):
        lock.release()
    with pytest.raises(redlock.LockNotHeld):
        lock.extend()
    with pytest.raises(redlock.LockNotHeld):
        _ = lock.fence
    with pytest.raises(redlock.LockInvalidArgument, match="blocking"):
        lock.acquire(blocking=False, timeout=1)
    with lock:
        with pytest.raises(redlock.LockAlreadyHeld):
            lock.acquire()
        assert lock.held
    lock.release()


def test_extend_sets_the_ttl(client: redlock.Redlock, server: Server, name: str) -> None:
    with client.lock(name, ttl=1) as lock:
        lock.extend(60)
        assert lock.remaining > 50
        assert server.command("PTTL", name) > 50_000
        with pytest.raises(redlock.LockInvalidArgument, match="ttl"):
            lock.extend(0)


def test_leaving_a_block_after_a_loss_raises(client: redlock.Redlock, name: str) -> None:
    with pytest.raises(redlock.LockLost) as raised, client.lock(name, ttl=0.1, auto_renew=False) as lock:
        until(lambda: not lock.held)
        with pytest.raises(redlock.LockLost):
            lock.check()
    assert raised.value.reason == "expired"


def test_a_loss_is_silent_when_the_body_raises(client: redlock.Redlock, name: str) -> None:
    with pytest.raises(KeyError), client.lock(name, ttl=0.1, auto_renew=False) as lock:
        until(lambda: not lock.held)
        raise KeyError


def test_other_threads_run_while_one_waits(run: Run, server: Server, name: str) -> None:
    program = """
import threading
holder = client.lock(name)
holder.acquire()
waiting = threading.Event()

def wait():
    waiting.set()
    with client.lock(name):
        print("waited")

thread = threading.Thread(target=wait)
thread.start()
waiting.wait()
# Were the interpreter not let go of, this would come to no end.
holder.release()
thread.join()
"""
    assert run(program).stdout == "waited\n"
    assert not server.has(name)


def test_many_threads_share_a_client(nodes: Nodes, name: str) -> None:
    fences: list[int] = []
    inside: list[int] = []

    def work(number: int) -> None:
        for _ in range(5):
            with client.lock(f"{name}-{number}"), client.lock(name) as lock:
                inside.append(number)
                assert inside == [number]
                fences.append(lock.fence)
                inside.clear()

    with redlock.Redlock(nodes.urls, ttl=20) as client, ThreadPoolExecutor(16) as executor:
        for done in [executor.submit(work, number) for number in range(16)]:
            done.result()
    assert fences == sorted(set(fences))
    assert len(fences) == 16 * 5
    until(lambda: not nodes.having(name))


def test_a_lock_may_be_released_by_another_thread(client: redlock.Redlock, name: str) -> None:
    lock = client.lock(name)
    lock.acquire()
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    assert not lock.held


def test_inspection(client: redlock.Redlock, name: str, server: Server) -> None:
    free = client.inspect(name)
    assert free == redlock.LockView(name, name, None, "free", None, None, None, None, 0, 1, 0, None, [], free.nodes)
    assert [node.state for node in free.nodes] == ["free"]
    with client.lock(name, label="me") as lock:
        view = client.inspect(name)
        (node,) = view.nodes
        for shown in (view, node):
            assert (shown.state, shown.label, shown.fence) == ("held", "me", lock.fence)
            assert shown.ttl_left is not None
            assert 0 < shown.ttl_left <= 5
        assert view.since is not None
        assert view.since == datetime.fromtimestamp(0, UTC) + timedelta(microseconds=lock.fence)
        assert abs(datetime.now(UTC) - view.since) < timedelta(minutes=1)
        with pytest.raises(FrozenInstanceError):
            view.state = "free"  # type: ignore[misc]
    server.command("SET", name, "theirs", "PX", "200")
    assert client.inspect(name).state == "foreign"
    unknown = redlock.Redlock("unix:///nowhere").inspect(name)
    assert (unknown.state, unknown.holders, unknown.waiting) == ("unknown", 0, None)
    (failed,) = unknown.nodes
    assert failed.state == "unavailable"
    assert failed.error


@pytest.mark.parametrize("leave", [False, True], ids=["closed", "left"])
def test_calls_that_wait_end_when_their_client_is_closed(server: Server, name: str, leave: bool) -> None:
    """Those of other clients of the same nodes wait on."""
    errors: list[BaseException] = []
    waiting = redlock.Redlock(server.url)
    held = waiting.lock(f"{name}:held")
    held.acquire()
    server.command("SET", name, "theirs")

    def wait(timeout: float | None) -> None:
        try:
            waiting.lock(name, timeout=timeout).acquire()
        except redlock.RedlockError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait, args=(timeout,)) for timeout in (None, 60.0)]
    with redlock.Redlock(server.url) as other:
        lock = other.lock(name)
        survivor = threading.Thread(target=lock.acquire)
        for thread in (*threads, survivor):
            thread.start()
        # This call queues behind them, so they wait by now.
        assert not other.lock(name).acquire(timeout=0.3)
        if leave:
            with waiting:
                pass
        else:
            waiting.close()
        for thread in threads:
            thread.join(SLACK)
        assert [type(error) for error in errors] == [redlock.LockClosed] * 2
        assert all("the client is closed" in str(error) for error in errors)
        assert survivor.is_alive()
        server.command("DEL", name)
        survivor.join(SLACK + 2)
        assert not survivor.is_alive()
        lock.release()
    assert not held.held


def test_an_unreachable_node_is_unavailable() -> None:
    lock = redlock.Redlock("unix:///nowhere/at/all").lock("foo", timeout=0)
    with pytest.raises(ConnectionError) as raised:
        lock.acquire()
    assert isinstance(raised.value, redlock.LockUnavailable)
    assert raised.value.nodes


def test_the_default_client_comes_from_the_environment(run: Run, server: Server, name: str) -> None:
    program = f"with redlock.lock({name!r}) as lock: print(redlock.inspect(name).state, lock.held)"
    assert run(program).stdout == "held True\n"
    assert not server.has(name)


def test_busy_python_code_cannot_stop_the_renewal(client: redlock.Redlock, name: str) -> None:
    with client.lock(name, ttl=1) as lock:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            pass
        lock.check()
