"""Accepted arguments, and those that are refused before anything is sent."""

import contextlib
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

import redlock
from redlock import _checks
from redlock import asyncio as aio

OPTIONS = redlock.Options.__annotations__


def test_none_is_the_built_in_default() -> None:
    client = redlock.Redlock("memory://none", ttl=20, label="mine", auto_renew=False, timeout=3)
    for option in OPTIONS:
        none: dict[str, Any] = {option: None}
        client.lock("foo", **none)
    own = client.lock("own", ttl=None, label=None, auto_renew=None, timeout=None)
    with own:
        assert own.remaining <= 10
        # As the signatures of `threading` and `multiprocessing` have it.
        assert not any(client.lock("own").acquire(False, forever) for forever in (None, -1))
        view = client.inspect("own")
    assert view.label != "mine"
    assert repr(own) == "<redlock.blocking.Lock 'own' not held timeout=None>"


FOREIGN: list[tuple[Callable[[], object], str]] = [
    (lambda: redlock.Redlock(host="localhost", port=6379), r"redis://"),  # type: ignore[call-arg]
    (lambda: redlock.Redlock({"host": "localhost"}), r"redis://"),  # type: ignore[arg-type]
    (lambda: redlock.Redlock([{"host": "localhost"}]), r"redis://"),  # type: ignore[list-item]
    (lambda: redlock.Redlock("memory://a").lock("a").acquire(5), r"acquire\(timeout=5\)"),  # type: ignore[arg-type]
    (
        lambda: redlock.Redlock("memory://a").lock("a").acquire(blocking_timeout=5),  # type: ignore[call-arg]
        r"blocking_timeout.*timeout",
    ),
    (lambda: redlock.Redlock("memory://a").lock("a").acquire(False, 5), "blocking=False"),
    (lambda: redlock.Redlock("memory://a").lock("a").acquire(timeout="5"), "timeout"),  # type: ignore[arg-type]
    (lambda: redlock.Redlock("memory://a").lock("a").acquire(timeout=-2), "timeout"),
]


@pytest.mark.parametrize(("call", "hint"), FOREIGN)
def test_what_other_libraries_accept_gets_a_hint(call: Callable[[], object], hint: str) -> None:
    with pytest.raises(redlock.LockInvalidArgument, match=hint):
        call()


@pytest.mark.parametrize("face", [redlock, aio])
def test_an_error_names_the_argument_as_its_caller_does(face: Any) -> None:
    with pytest.raises(redlock.LockInvalidArgument) as refused:
        face.Redlock("memory://names").lock(17)
    assert refused.value.__notes__ == ["while processing 'name'"]


@pytest.mark.parametrize("face", [redlock, aio])
def test_the_class_of_locks_is_not_called(face: Any) -> None:
    for given in ((), ("a",)):
        with pytest.raises(TypeError, match=r"make a lock with redlock\.lock\(name\)"):
            face.Lock(*given)


@pytest.mark.parametrize("wrong", [{"timeout": "5"}, {"blocking_timeout": 5}, {"blocking": 5}])
async def test_an_acquire_in_asyncio_gets_a_hint(aclient: aio.Redlock, wrong: dict[str, Any]) -> None:
    with pytest.raises(redlock.LockInvalidArgument, match="timeout"):
        await aclient.lock("a").acquire(**wrong)


async def test_the_other_kind_of_block(client: redlock.Redlock, aclient: aio.Redlock) -> None:
    for blocking in (client, client.lock("a")):
        wrong: Any = blocking
        with pytest.raises(TypeError, match=r"write `with`, not `async with`.*redlock\.asyncio"):
            async with wrong:
                pass
    for awaited in (aclient, aclient.lock("a")):
        wrong = awaited
        with pytest.raises(TypeError, match=r"write `async with`, not `with`.*redlock\.asyncio"), wrong:
            pass


def test_containers_that_enter_blocks_find_the_kind(client: redlock.Redlock, aclient: aio.Redlock) -> None:
    """Those of dependency injection ask for the class, and enter what they were given."""
    both = contextlib.AbstractContextManager, contextlib.AbstractAsyncContextManager
    for blocking in (client, client.lock("a")):
        assert [isinstance(blocking, each) for each in both] == [True, False]
    for awaited in (aclient, aclient.lock("a")):
        assert [isinstance(awaited, each) for each in both] == [False, True]


def test_a_client_shows_its_nodes_without_their_secrets() -> None:
    client = redlock.Redlock(["redis://ada:secret@localhost:1", "unix:///tmp/s?pass=secret"])
    assert repr(client) == "<redlock.blocking.Redlock redis://localhost:1, unix:///tmp/s>"
    assert repr(aio.Redlock("memory://shown")) == "<redlock.asyncio.Redlock memory://shown>"


@pytest.mark.parametrize("face", [redlock, aio])
def test_a_number_that_may_be_milliseconds_warns_once(face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    makers: list[Callable[[Any], object]] = [
        lambda ttl: face.Redlock("memory://warns", ttl=ttl),
        lambda ttl: face.Redlock("memory://warns").lock("foo", ttl=ttl),
        lambda ttl: face.Redlock("memory://warns").locked("foo", ttl=ttl),
        lambda ttl: face.lock_all(["foo"], ttl=ttl),
    ]
    for make in makers:
        monkeypatch.setattr(_checks, "_doubted", False)
        make(timedelta(hours=2))
        make(3600)
        with pytest.warns(UserWarning, match=r"ttl=30000 is 30000 s \(over 8 h\): .* not milliseconds") as told:
            make(30_000)
        assert [warning.filename for warning in told] == [__file__]
        make(30_000)
        with pytest.raises(redlock.LockInvalidArgument):
            make(86_401)


NAMES: list[tuple[Iterable[str | bytes], tuple[str | bytes, ...], str | bytes]] = [
    (["b", "a", "b"], ("a", "b"), "a, b"),
    ({b"b", b"a"}, (b"a", b"b"), b"a, b"),
    (["schlüssel", b"\xff"], ("schlüssel", b"\xff"), "schlüssel".encode() + b", \xff"),
    (["a", b"a"], ("a",), "a"),
]


@pytest.mark.parametrize("face", [redlock, aio])
def test_several_names_are_sorted_and_each_once(face: Any) -> None:
    client = face.Redlock("memory://names")
    for given, names, name in NAMES:
        lock = client.lock_all(given)
        assert (lock.names, lock.name) == (names, name)
        assert repr(names if len(names) > 1 else name) in repr(lock)
    with pytest.raises(redlock.LockInvalidArgument, match=r"of type list.*lock_all"):
        client.lock(["a", "b"])
    with pytest.raises(redlock.LockInvalidArgument, match=r"of type str.*for one name, use lock"):
        client.lock_all("a")
