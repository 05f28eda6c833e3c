"""The proxy does what it is told, as seen by a client that reads every byte. Without it, test cases prove nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from support.proxy import HOLD, LOSE, Faults, Proxy
from support.servers import LIMIT_S, Cluster

Way = Callable[[Proxy, Faults], None]

PONG = b"+PONG\r\n"
MOMENT_S = 0.05


@pytest.fixture
def proxy(node: Cluster) -> Iterator[Proxy]:
    """A proxy in front of one node."""
    with Proxy(node[0]) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    """A connection that has passed the proxy."""
    connection = socket.create_connection(("127.0.0.1", int(proxy.url.rpartition(":")[2])), LIMIT_S)
    assert ping(connection) == PONG
    return connection


def ping(connection: socket.socket) -> bytes:
    """Sends a ping, and waits for its answer or for the end."""
    connection.sendall(b"PING\r\n")
    return receive(connection)


def receive(connection: socket.socket) -> bytes:
    """Waits for an answer, or for what came before the end."""
    answer = b""
    while not answer.endswith(b"\n") and (data := connection.recv(1024)):
        answer += data
    return answer


def is_silent(connection: socket.socket) -> bool:
    """Whether no byte comes for a moment."""
    connection.settimeout(MOMENT_S)
    try:
        return connection.recv(1024) is None
    except TimeoutError:
        return True
    finally:
        connection.settimeout(LIMIT_S)


@pytest.mark.parametrize("way", [Proxy.requests, Proxy.replies], ids=["requests", "replies"])
def test_what_is_held_delayed_and_lost(proxy: Proxy, way: Way) -> None:
    with connect(proxy) as one, connect(proxy) as other:
        way(proxy, HOLD)
        for connection in (one, other):
            connection.sendall(b"PING\r\n")
            assert is_silent(connection)
        proxy.links[0].let_go()
        assert receive(one) == PONG
        assert is_silent(other)
        proxy.let_go()
        assert receive(other) == PONG
        way(proxy, Faults(delay_s=MOMENT_S))
        began = time.monotonic()
        assert ping(one) == PONG
        assert time.monotonic() - began >= MOMENT_S
        way(proxy, LOSE)
        one.sendall(b"PING\r\n")
        assert is_silent(one)
        proxy.let_go()
        one.sendall(b"PING\r\n")
        assert is_silent(one), "what follows a gap is not an answer"


def test_what_is_cut_and_refused(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        proxy.refuse(True)
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        proxy.refuse(False)
        proxy.replies(Faults(cut_after=len(PONG) + 3))
        assert ping(connection) == PONG
        assert ping(connection) == PONG[:3]
    connect(proxy).close()
