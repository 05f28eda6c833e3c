"""Accepted arguments, and those that are refused before anything is sent."""

import math
import socket
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from server import Server

import redlock
from redlock import asyncio as aio

OPTIONS = redlock.Options.__annotations__
DURATIONS = [option for option in OPTIONS if OPTIONS[option] in {redlock.Duration, redlock.Duration | None}]


@pytest.mark.parametrize("ttl", [60, 60.0, timedelta(minutes=1)])
def test_durations(client: redlock.Redlock, server: Server, name: str, ttl: float | timedelta) -> None:
    with client.lock(name, ttl=ttl):
        assert 50_000 < server.command("PTTL", name) <= 60_000


@pytest.mark.parametrize("option", DURATIONS)
@pytest.mark.parametrize(
    "wrong", [True, math.nan, -1, -0.001, math.inf, "1", b"1", [], 10**400, timedelta(-1), Fraction(1), 1j]
)
def test_wrong_durations(client: redlock.Redlock, option: str, wrong: object) -> None:
    wrong_options: dict[str, Any] = {option: wrong}
    with pytest.raises(redlock.LockInvalidArgument, match=option) as refused:
        client.lock("foo", **wrong_options)
    assert refused.value.option == option
    with pytest.raises(redlock.LockInvalidArgument, match=option):
        redlock.Redlock("memory://wrong", **wrong_options)


def test_none_is_a_timeout_and_nothing_else(client: redlock.Redlock) -> None:
    client.lock("foo", timeout=None)
    for option in OPTIONS.keys() - {"timeout"}:
        none: dict[str, Any] = {option: None}
        with pytest.raises(redlock.LockInvalidArgument, match=option):
            client.lock("foo", **none)


@pytest.mark.parametrize("face", [redlock, aio])
def test_the_time_for_a_connection_is_an_option_of_a_client(face: Any) -> None:
    for right in (0.05, 2, timedelta(minutes=1)):
        face.Redlock("memory://connect", connect_timeout=right)
    for wrong in (0, 0.049, 60.1, math.nan, "1", None, True):
        with pytest.raises(redlock.LockInvalidArgument, match="connect_timeout"):
            face.Redlock("memory://connect", connect_timeout=wrong)
    with pytest.raises(redlock.LockInvalidArgument, match=r"connect_timeout.*give it to the client"):
        face.lock("foo", connect_timeout=1)
    with pytest.raises(redlock.LockInvalidArgument, match=r"connect_timeout.*give it to the client"):
        face.Redlock("memory://connect").lock("foo", connect_timeout=1)


def test_a_server_that_says_nothing_is_given_the_time_for_a_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = redlock.Redlock(f"redis://127.0.0.1:{silent.getsockname()[1]}", connect_timeout=0.05, timeout=0)
        with pytest.raises(redlock.LockUnavailable, match="no answer within 50ms"):
            client.lock("foo").acquire()


def test_options_of_a_client_are_defaults(server: Server, name: str) -> None:
    client = redlock.Redlock(server.url, ttl=60, timeout=0)
    with client.lock(name):
        assert server.command("PTTL", name) > 50_000
        assert not client.lock(name).acquire()
    with client.lock(name, ttl=30):
        assert server.command("PTTL", name) <= 30_000


@pytest.mark.parametrize(
    ("option", "hint"),
    [("blocking_timeout", "timeout"), ("sleep", "remove it"), ("thread_local", "remove it"), ("expire", "ttl")],
)
def test_options_of_other_libraries_get_a_hint(option: str, hint: str) -> None:
    foreign: dict[str, Any] = {option: 1}
    with pytest.raises(redlock.LockInvalidArgument, match=f"{option}.*{hint}"):
        redlock.Redlock("memory://hint").lock("foo", **foreign)
    with pytest.raises(redlock.LockInvalidArgument, match=option):
        aio.Redlock("memory://hint", **foreign)


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


def test_several_nodes() -> None:
    for nodes in (["memory://m1", "memory://m2", "memory://m3"], ("memory://m1", "memory://m2", "memory://m3")):
        client = redlock.Redlock(nodes)
        with client.lock("foo"):
            assert [view.state for view in client.inspect("foo")] == ["held"] * 3


def test_no_output_shows_a_password() -> None:
    for nodes in ("redis://u:hunter2@127.0.0.1:1", ["redis://u:hunter2@a/?x=1"], ["redis://u:hunter2@a"] * 2):
        try:
            client = redlock.Redlock(nodes)
            assert "hunter2" not in repr(client) + repr(client.lock("foo")) + repr(client.inspect("foo"))
        except redlock.LockInvalidArgument as error:
            assert "hunter2" not in repr(error)  # noqa: PT017 - either is right
