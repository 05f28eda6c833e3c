"""Accepted arguments, and those that are refused before anything is sent."""

import math
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from server import LIMIT, Server

import redlock
from redlock import _checks
from redlock import asyncio as aio

OPTIONS = redlock.Options.__annotations__
DURATIONS = [option for option in OPTIONS if OPTIONS[option] == redlock.Duration | None]


@pytest.mark.parametrize("ttl", [60, 60.0, timedelta(minutes=1)])
def test_durations(client: redlock.Redlock, server: Server, name: str, ttl: float | timedelta) -> None:
    with client.lock(name, ttl=ttl):
        assert 50_000 < server.command("PTTL", name) <= 60_000


@pytest.mark.parametrize("option", DURATIONS)
@pytest.mark.parametrize(
    "wrong", [True, math.nan, -1, -0.001, math.inf, "1", b"1", [], 10**400, timedelta(-1), Fraction(1), 1j]
)
def test_wrong_durations(client: redlock.Redlock, option: str, wrong: object) -> None:
    if option == "timeout" and wrong in [-1, math.inf]:
        pytest.skip("these mean for ever")
    wrong_options: dict[str, Any] = {option: wrong}
    with pytest.raises(redlock.LockInvalidArgument, match=option) as refused:
        client.lock("foo", **wrong_options)
    assert refused.value.option == option
    with pytest.raises(redlock.LockInvalidArgument, match=option):
        redlock.Redlock("memory://wrong", **wrong_options)


def test_none_is_the_built_in_default() -> None:
    client = redlock.Redlock("memory://none", ttl=20, label="mine", auto_renew=False, timeout=3)
    for option in OPTIONS:
        none: dict[str, Any] = {option: None}
        client.lock("foo", **none)
    own = client.lock("own", ttl=None, label=None, auto_renew=None, timeout=None)
    with own:
        assert own.remaining <= 10
        view = client.inspect("own")
    assert view.label != "mine"
    assert repr(own) == "<redlock.blocking.Lock 'own' not held timeout=None>"


@pytest.mark.parametrize("forever", [None, -1, -1.0, math.inf, 1e300])
def test_a_timeout_for_ever(client: redlock.Redlock, name: str, forever: float | None) -> None:
    """In threading, redis-py and filelock, too, one of them is for ever."""

    def wait() -> None:
        with client.lock(name, timeout=forever):
            assert not client.lock(name, timeout=forever).acquire(timeout=0)

    with client.lock(name):
        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        waiter.join(0.2)
        assert waiter.is_alive()
    waiter.join(LIMIT)
    assert not waiter.is_alive()


@pytest.mark.parametrize("face", [redlock, aio])
def test_the_time_for_a_connection_is_an_option_of_a_client(face: Any) -> None:
    for right in (0.05, 2, timedelta(minutes=1)):
        face.Redlock("memory://connect", connect_timeout=right)
    for wrong in (0, 0.049, 60.1, math.nan, "1", True):
        with pytest.raises(redlock.LockInvalidArgument, match="connect_timeout"):
            face.Redlock("memory://connect", connect_timeout=wrong)
    face.Redlock("memory://connect", connect_timeout=None)
    with pytest.raises(redlock.LockInvalidArgument, match=r"connect_timeout.*give it to the client"):
        face.lock("foo", connect_timeout=1)
    with pytest.raises(redlock.LockInvalidArgument, match=r"connect_timeout.*give it to the client"):
        face.Redlock("memory://connect").lock("foo", connect_timeout=1)


def test_a_server_that_says_nothing_is_given_the_time_for_a_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = redlock.Redlock(f"redis://127.0.0.1:{silent.getsockname()[1]}", connect_timeout=0.05, timeout=0)
        with pytest.raises(redlock.LockUnavailable, match="no answer within 50ms"):
            client.lock("foo").acquire()


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
def test_the_class_of_locks_is_not_called(face: Any) -> None:
    with pytest.raises(TypeError, match=r"make a lock with redlock\.lock\(name\)"):
        face.Lock("a")


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


def test_a_client_shows_its_nodes_without_their_secrets() -> None:
    client = redlock.Redlock(["redis://ada:secret@localhost:1", "unix:///tmp/s?pass=secret"])
    assert repr(client) == "<redlock.blocking.Redlock redis://localhost:1, unix:///tmp/s>"
    assert repr(aio.Redlock("memory://shown")) == "<redlock.asyncio.Redlock memory://shown>"


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("blocking_timeout", "timeout"),
        ("context_manager_timeout", "use timeout"),
        ("raise_on_release_error", "remove it"),
        ("sleep", "remove it"),
        ("thread_local", "remove it"),
        ("expire", "ttl"),
    ],
)
def test_options_of_other_libraries_get_a_hint(option: str, hint: str) -> None:
    foreign: dict[str, Any] = {option: 1}
    with pytest.raises(redlock.LockInvalidArgument, match=f"{option}.*{hint}"):
        redlock.Redlock("memory://hint").lock("foo", **foreign)
    with pytest.raises(redlock.LockInvalidArgument, match=option):
        aio.Redlock("memory://hint", **foreign)


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


@pytest.mark.parametrize("given", ["foo", "schlüssel 🔒", b"foo", b"\x00\xff", "nul\0"])
def test_names(client: redlock.Redlock, server: Server, given: str | bytes) -> None:
    with client.lock(given) as lock:
        assert lock.name == given
        assert type(lock.name) is type(given)
        assert server.has(given)
        assert repr(given) in repr(lock)


@pytest.mark.parametrize("wrong", ["", b"", "\ud800", "x" * 513, "redlock:fence:x", None, 3, ["foo"], bytearray(b"x")])
def test_wrong_names(client: redlock.Redlock, wrong: Any) -> None:
    for refuses in (client.lock, client.inspect):
        with pytest.raises(redlock.LockInvalidArgument) as refused:
            refuses(wrong)
        assert refused.value.option == "name"


@pytest.mark.parametrize(
    "wrong",
    ["", "localhost", "redis://h/?timeout=5", [], ["memory://a", "memory://a"], 3, [3], b"memory://a", "\ud800"],
)
def test_wrong_nodes(wrong: Any) -> None:
    with pytest.raises(redlock.LockInvalidArgument) as refused:
        redlock.Redlock(wrong)
    assert refused.value.option == "nodes"


def test_no_output_shows_a_password() -> None:
    for nodes in ("redis://u:hunter2@127.0.0.1:1", ["redis://u:hunter2@a/?x=1"], ["redis://u:hunter2@a"] * 2):
        try:
            client = redlock.Redlock(nodes)
            assert "hunter2" not in repr(client) + repr(client.lock("foo")) + repr(client.inspect("foo"))
        except redlock.LockInvalidArgument as error:
            assert "hunter2" not in repr(error)  # noqa: PT017 - either is right
