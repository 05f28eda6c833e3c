"""The proxy does what it is told, as seen by a client that reads every byte. Without it, test cases prove nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from support.clock import until
from support.proxy import HOLD, LOSE, Faults, Proxy
from support.servers import LIMIT_S, Cluster

Way = Callable[[Proxy, Faults], None]
both_ways = pytest.mark.parametrize("way", [Proxy.requests, Proxy.replies], ids=["requests", "replies"])

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


@both_ways
def test_hold(proxy: Proxy, way: Way) -> None:
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


def test_held_request_of_a_client_that_is_gone(proxy: Proxy, node: Cluster, name: str) -> None:
    connection = connect(proxy)
    proxy.requests(HOLD)
    connection.sendall(f"SET {name} 1 PX 60000\r\n".encode())
    until(lambda: proxy.links[0].requests_waiting, "the request is held")
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        connection.recv(1)
    connection.close()
    assert not node.has(name)
    proxy.let_go()
    until(lambda: node[0].command("DEL", name), "the request is executed")


@both_ways
def test_lose(proxy: Proxy, way: Way) -> None:
    with connect(proxy) as connection:
        way(proxy, LOSE)
        connection.sendall(b"PING\r\n")
        assert is_silent(connection)
        proxy.let_go()
        connection.sendall(b"PING\r\n")
        assert is_silent(connection), "what follows a gap is no answer to anything"
        with connect(proxy) as new:
            assert ping(new) == PONG


@both_ways
def test_delay(proxy: Proxy, way: Way) -> None:
    with connect(proxy) as connection:
        way(proxy, Faults(delay_s=MOMENT_S))
        began = time.monotonic()
        assert ping(connection) == PONG
        assert time.monotonic() - began >= MOMENT_S


def test_cut(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        proxy.replies(Faults(cut_after=len(PONG) + 3))
        assert ping(connection) == PONG
        assert ping(connection) == PONG[:3]


def test_slices(node: Cluster) -> None:
    """By a unix socket, which has room for some hundred slices: however late a reader is, they are not all there."""
    at = node[0].dir / "slices.sock"
    with Proxy(node[0], at=at) as proxy, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LIMIT_S)
        connection.connect(str(at))
        assert ping(connection) == PONG
        proxy.requests(Faults(slices=True))
        proxy.replies(Faults(slices=True))
        assert ping(connection) == PONG
        connection.sendall(b"ECHO %b\r\n" % (b"x" * 10_000))
        assert len(connection.recv(1 << 20)) < 10_000


def test_refuse(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        proxy.refuse(True)
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        assert ping(connection) == PONG
        proxy.refuse(False)
        connect(proxy).close()
