# A lambda cannot say what it takes.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import pytest
from server import LIMIT, Server

import redlock
from redlock import asyncio as aio


def test_each_call_has_a_lock_of_its_own(client: redlock.Redlock, server: Server, name: str) -> None:
    @client.lock(name)
    def work(amount: int, *, more: int = 0) -> int:
        """Work."""
        assert server.has(name)
        return amount + more

    assert work(1, more=2) == 3
    assert (work.__name__, work.__doc__) == ("work", "Work.")
    assert not server.has(name)


def test_calls_in_several_threads_exclude_each_other(client: redlock.Redlock, name: str) -> None:
    inside: list[int] = []

    @client.lock(name)
    def work() -> None:
        inside.append(1)
        assert len(inside) == 1
        inside.clear()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not inside


def test_what_the_call_raises_comes_out(client: redlock.Redlock, server: Server, name: str) -> None:
    @client.lock(name)
    def work() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        work()
    assert not server.has(name)


class Caller:
    async def __call__(self) -> None: ...


async def coroutine() -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def plain() -> None: ...


@pytest.mark.parametrize("function", [coroutine, generator, async_generator, Caller(), 3])
def test_a_blocking_lock_refuses(client: redlock.Redlock, function: object) -> None:
    with pytest.raises(TypeError, match="redlock"):
        client.lock("foo")(function)  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [plain, generator, async_generator, 3])
def test_an_asyncio_lock_refuses(aclient: aio.Redlock, function: object) -> None:
    with pytest.raises(TypeError, match="asyncio"):
        aclient.lock("foo")(function)  # type: ignore[arg-type]


async def test_coroutine_functions(aclient: aio.Redlock, server: Server, name: str) -> None:
    @aclient.lock(name)
    async def work(amount: int) -> int:
        assert server.has(name)
        return amount

    assert await work(1) == 1
    assert not server.has(name)


# --- decorators that take more than a name ---


def test_the_name_is_made_from_the_arguments(client: redlock.Redlock, server: Server, name: str) -> None:
    @client.lock(lambda user, *, amount=1: f"{name}:{user}:{amount}", ttl=8)
    def pay(user: str, *, amount: int = 1) -> int:
        assert server.has(f"{name}:{user}:{amount}")
        assert server.command("PTTL", f"{name}:{user}:{amount}") > 6_000
        return amount

    assert pay("ada") == 1
    assert pay(user="ada", amount=3) == 3
    assert pay.__name__ == "pay"


def test_the_names_of_methods(client: redlock.Redlock, server: Server, name: str) -> None:
    class Account:
        def __init__(self, number: int) -> None:
            self.number = number

        @client.lock(lambda self: f"{name}:{self.number}")
        def close(self) -> bool:
            return server.has(f"{name}:{self.number}")

        @staticmethod
        @client.lock(name)
        def find(number: int) -> int:
            assert server.has(name)
            return number

    assert Account(7).close()
    assert Account.find(3) == 3


@pytest.mark.parametrize("made", [1, None, "", "n" * 513, "redlock:fence:x"])
def test_a_wrong_name_is_refused_at_the_call(client: redlock.Redlock, made: Any) -> None:
    @client.lock(lambda: made)
    def work() -> NoReturn:
        pytest.fail("it ran")

    with pytest.raises(redlock.LockInvalidArgument, match="name"):
        work()


def test_what_the_name_raises_comes_out(client: redlock.Redlock) -> None:
    @client.lock(lambda missing: missing["key"])
    def work(missing: dict[str, str]) -> NoReturn:
        pytest.fail(f"it ran, {missing}")

    with pytest.raises(KeyError, match="key"):
        work({})


@pytest.mark.parametrize("face", [redlock, aio])
def test_wrong_options_are_refused_at_the_decorator(face: Any) -> None:
    client = face.Redlock("memory://decorator")
    with pytest.raises(redlock.LockInvalidArgument, match="ttl"):
        client.lock(lambda: "name", ttl="long")
    with pytest.raises(redlock.LockInvalidArgument, match="tll"):
        client.lock("name", skip_if_held=True, tll=3)
    with pytest.raises(redlock.LockInvalidArgument, match="name"):
        client.lock("", pass_lock=True)


def test_a_call_is_skipped_if_others_hold_the_lock(client: redlock.Redlock, name: str) -> None:
    @client.lock(name, skip_if_held=True)
    def nightly(amount: int) -> int:
        return amount

    assert nightly(1) == 1
    with client.lock(name):
        assert nightly(2) is None
    assert nightly(3) == 3


def test_a_skipped_call_waits_for_as_long_as_its_timeout(client: redlock.Redlock, name: str) -> None:
    @client.lock(name, skip_if_held=True, timeout=LIMIT)
    def patient() -> str:
        return "ran"

    with client.lock(name):
        waiter = ThreadPoolExecutor(1).submit(patient)
    assert waiter.result(LIMIT) == "ran"


def test_a_timeout_of_the_body_is_not_a_skip(client: redlock.Redlock, name: str) -> None:
    @client.lock(name, skip_if_held=True)
    def outer() -> None:
        with client.lock(f"{name}-inner", timeout=0):
            pytest.fail("it is held")

    with client.lock(f"{name}-inner"), pytest.raises(redlock.LockTimeout):
        outer()


def test_an_unreachable_server_is_not_a_skip() -> None:
    @redlock.Redlock("unix:///nowhere/at/all").lock("job", skip_if_held=True)
    def work() -> NoReturn:
        pytest.fail("it ran")

    with pytest.raises(redlock.LockUnavailable):
        work()


def test_the_lock_is_passed(client: redlock.Redlock, name: str) -> None:
    @client.lock(name, pass_lock=True)
    def first(lock: redlock.Lock, amount: int) -> tuple[int, int]:
        assert lock.held
        return lock.fence, amount

    @client.lock(lambda amount: f"{name}:{amount}", skip_if_held=True, pass_lock=True)
    def both(lock: redlock.Lock, amount: int) -> tuple[object, int]:
        return lock.name, amount

    (fence, amount), (later, _) = first(1), first(amount=2)
    assert (fence < later, amount) == (True, 1)
    assert both(3) == (f"{name}:3", 3)
    assert list(inspect.signature(first).parameters) == ["amount"]
    # What a framework reads as annotations stays that of the rest.
    assert inspect.signature(both).parameters["amount"].annotation is int


def test_a_parameter_asks_for_the_lock(client: redlock.Redlock, name: str) -> None:
    @client.lock(name)
    def by_class(amount: int, lock: redlock.Lock) -> tuple[int, bool]:
        return amount, lock.held

    @client.lock(name)
    def by_text(amount: int, *, lock: "redlock.Lock | None" = None, more: int = 0) -> tuple[int, bool, int]:
        assert lock is not None
        return amount, lock.held, more

    @client.lock(name)
    def other(lock: aio.Lock | None = None) -> object:
        return lock

    @client.lock(name)
    def unknown(lock: "NotImported" = 1) -> object:  # type: ignore[name-defined]  # noqa: F821
        return lock

    class Account:
        @client.lock(name)
        def close(self, lock: redlock.Lock, force: bool) -> tuple[bool, bool]:
            return lock.held, force

    ask: Any = by_class
    assert (ask(1), ask(amount=1)) == ((1, True), (1, True))
    assert by_text(1, more=2) == (1, True, 2)
    assert other() is None
    assert unknown() == 1
    close: Any = Account().close
    assert close(True) == (True, True)
    assert close(force=False) == (True, False)
    assert list(inspect.signature(by_class).parameters) == ["amount"]
    assert list(inspect.signature(Account.close).parameters) == ["self", "force"]


def test_a_lock_that_the_caller_passes_stays(client: redlock.Redlock, name: str) -> None:
    mine = client.lock(f"{name}-mine")

    @client.lock(name)
    def work(*, lock: redlock.Lock) -> redlock.Lock:
        return lock

    assert work(lock=mine) is mine


def test_pass_lock_is_not_for_methods(client: redlock.Redlock, name: str) -> None:
    def method(self: object, lock: redlock.Lock) -> None: ...

    decorate: Any = client.lock(name, pass_lock=True)
    with pytest.raises(TypeError, match="annotate"):
        decorate(method)


@pytest.mark.parametrize("function", [coroutine, generator, async_generator, 3])
def test_a_decorator_refuses_what_a_lock_refuses(client: redlock.Redlock, function: object) -> None:
    with pytest.raises(TypeError, match="redlock"):
        client.lock("foo", skip_if_held=True)(function)  # type: ignore[arg-type]


def test_a_decorator_is_not_a_lock(client: redlock.Redlock, aclient: aio.Redlock) -> None:
    decorators: list[Any] = [client.lock("foo", skip_if_held=True), aclient.lock(lambda: "foo")]
    for decorator in decorators:
        with pytest.raises(TypeError, match="a decorator and not a lock"), decorator:
            pass
        with pytest.raises(AttributeError, match=r"a decorator and not a lock.*acquire"):
            decorator.acquire()


async def test_decorators_of_coroutine_functions(aclient: aio.Redlock, server: Server, name: str) -> None:
    @aclient.lock(lambda user: f"{name}:{user}", skip_if_held=True, pass_lock=True)
    async def pay(lock: aio.Lock, user: str) -> str:
        assert lock.held
        await asyncio.sleep(0.05)
        return user

    @aclient.lock(name)
    async def asks(amount: int, *, lock: aio.Lock | None = None) -> tuple[int, bool]:
        assert lock is not None
        return amount, lock.held

    assert sorted(await asyncio.gather(pay("ada"), pay("ada"), pay("bob")), key=str) == [None, "ada", "bob"]
    assert await asks(1) == (1, True)
    assert inspect.iscoroutinefunction(pay)
    assert not server.has(name)
