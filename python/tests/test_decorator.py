import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from server import Server

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
