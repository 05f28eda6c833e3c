"""The proxy does what it is told, as seen by a client that reads every byte. Without it, test cases prove nothing."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from support.proxy import HOLD, LOSE, Faults, Proxy
from support.rules import forbidden, hang_up, unknown
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


def test_what_a_rule_takes_away(node: Cluster, name: str) -> None:
    """Earlier commands are answered, and neither the command nor a later one is executed after a hang-up."""
    rules = [forbidden("CLIENT TRACKING"), unknown("INFO"), hang_up("SET")]
    with Proxy(node[0], rules=rules) as proxy, connect(proxy) as connection:
        for command, answer in ((b"client tracking ON", b"-NOPERM"), (b"INFO", b"-ERR unknown"), (b"PING", PONG)):
            connection.sendall(command + b"\r\n")
            assert receive(connection).startswith(answer)
        connection.sendall(f"PING\r\nSET {name} 1\r\nINCR {name}\r\n".encode())
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(1024):
                said += data
        assert said == PONG
        assert not node.has(name)
        assert proxy.met["SET"] == 1
