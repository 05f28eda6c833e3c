"""A proxy applies its rules to single commands, and passes every other command on."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from conformance.history import SLACK_MS
from conformance.test_proxy import PONG, connect, is_silent, ping, receive
from support.proxy import Faults, Proxy
from support.resp import Connection, ReplyError
from support.rules import Exchange, Part, Rule, forbidden, hang_up, unknown
from support.servers import Cluster

REPLIES = [
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":-7\r\n",
    b"$4\r\n\r\n+a\r\n",
    b"$0\r\n\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",3.5\r\n",
    b"(12345678901234567890\r\n",
    b"!6\r\nERR no\r\n",
    b"=6\r\ntxt:ab\r\n",
    b"~2\r\n+a\r\n+b\r\n",
    b"%1\r\n+a\r\n*1\r\n:1\r\n",
    b"|1\r\n+ttl\r\n:9\r\n$1\r\na\r\n",
]
"""Replies of every kind, in RESP2 and RESP3."""

UNKNOWN_INFO = b"-ERR unknown command 'INFO', with args beginning with: \r\n"
PUSH = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n"

Send = Callable[[socket.socket, str], None]


def in_plain_words(connection: socket.socket, command: str) -> None:
    """Sends a command as a person types it."""
    connection.sendall(f"{command}\r\n".encode())


def in_lengths(connection: socket.socket, command: str) -> None:
    """Sends a command as programs do."""
    words = [b"$%d\r\n%b\r\n" % (len(word), word) for word in command.encode().split()]
    connection.sendall(b"*%d\r\n%b" % (len(words), b"".join(words)))


def passed(parts: list[Part]) -> bytes:
    """The bytes that pass."""
    return b"".join(data or b"" for _, data in parts)


def byte_by_byte(take: Callable[[bytes], Iterable[Part]], data: bytes) -> list[Part]:
    """What passes if each byte arrives alone."""
    return [part for i in range(len(data)) for part in take(data[i : i + 1])]


@pytest.mark.parametrize("reply", REPLIES)
def test_replies_of_every_kind_keep_their_order(reply: bytes) -> None:
    exchange = Exchange([unknown("INFO")], Counter())
    sent = byte_by_byte(exchange.requests, b"GET a\r\nINFO\r\nGET a\r\n")
    assert passed(sent) == b"GET a\r\nNOTHING\r\nGET a\r\n"
    received = byte_by_byte(exchange.replies, reply + PUSH + PONG + PUSH + reply)
    assert passed(received) == reply + PUSH + UNKNOWN_INFO + PUSH + reply


@pytest.mark.parametrize("send", [in_plain_words, in_lengths])
@pytest.mark.parametrize("command", ["CLIENT TRACKING", "client tracking", "Client Tracking"])
def test_subcommand(node: Cluster, send: Send, command: str) -> None:
    with Proxy(node[0], rules=[forbidden("CLIENT TRACKING")]) as proxy, connect(proxy) as connection:
        send(connection, f"{command} ON")
        assert receive(connection) == b"-NOPERM this user has no permissions to run the 'client|tracking' command\r\n"
        send(connection, "CLIENT ID")
        assert receive(connection).startswith(b":")
        send(connection, "ECHO CLIENT TRACKING")
        assert receive(connection).startswith(b"-ERR wrong number of arguments")


def test_command_with_every_subcommand(node: Cluster) -> None:
    with Proxy(node[0], rules=[unknown("CLIENT")]) as proxy, connect(proxy) as connection:
        for command in (b"CLIENT ID\r\n", b"CLIENT SETINFO LIB-NAME a\r\n"):
            connection.sendall(command)
            assert receive(connection).startswith(b"-ERR unknown command 'CLIENT'")
        assert ping(connection) == PONG


def test_answered_command_does_not_reach_the_server(node: Cluster, name: str) -> None:
    with Proxy(node[0], rules=[Rule("SET", answer=b"+OK\r\n")]) as proxy, connect(proxy) as connection:
        connection.sendall(f"SET {name} 1\r\n".encode())
        assert receive(connection) == b"+OK\r\n"
        assert proxy.met == {"SET": 1}
        assert not node.has(name)


def test_pushes_are_not_replies(node: Cluster, name: str) -> None:
    """The server notifies the client of a change just before the proxy answers a command."""
    with Proxy(node[0], rules=[unknown("INFO")]) as proxy, connect(proxy) as connection:
        in_plain_words(connection, "HELLO 3")
        receive(connection)
        in_plain_words(connection, f"CLIENT TRACKING ON BCAST PREFIX {name}")
        assert receive(connection) == b"+OK\r\n"
        in_plain_words(connection, f"SET {name} 1 PX 1000\r\nINFO\r\nPING")
        said = b""
        while not (PONG in said and name.encode() in said):
            said += receive(connection)
        assert said.replace(push(name), b"") == b"+OK\r\n" + UNKNOWN_INFO + PONG


def push(name: str) -> bytes:
    """The notification that this key has changed."""
    return b">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%b\r\n" % (len(name), name.encode())


def test_hang_up(node: Cluster, name: str) -> None:
    """Earlier commands are answered, and neither the command nor a later one is executed."""
    with Proxy(node[0], rules=[hang_up("SET")]) as proxy, connect(proxy) as connection:
        connection.sendall(f"PING\r\nSET {name} 1\r\nINCR {name}\r\n".encode())
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(1024):
                said += data
        assert said == PONG
        assert not node.has(name)
        with connect(proxy) as other:
            assert ping(other) == PONG


def test_delay(node: Cluster, name: str) -> None:
    delay_s = SLACK_MS / 1000
    with Proxy(node[0], rules=[Rule("SET", delay_s=delay_s)]) as proxy, connect(proxy) as connection:
        began = time.monotonic()
        connection.sendall(f"SET {name} 1 PX 60000\r\nDEL {name}\r\n".encode())
        assert is_silent(connection)
        assert not node.has(name)
        with connect(proxy) as other:
            assert ping(other) == PONG
        said = b""
        while said != b"+OK\r\n:1\r\n":
            said += receive(connection)
        assert time.monotonic() - began >= delay_s


def test_lie(node: Cluster, name: str) -> None:
    """The server executes the command, and its reply is the material of the lie."""
    with Proxy(node[0], rules=[Rule("INCR", lie=lambda reply: b"*1\r\n" + reply)]) as proxy:
        with connect(proxy) as connection:
            connection.sendall(f"INCR {name}\r\nPING\r\n".encode())
            said = receive(connection)
            while not said.endswith(PONG):
                said += receive(connection)
            assert said == b"*1\r\n:1\r\n" + PONG
        assert node[0].command("DEL", name)


def test_rules_and_faults(node: Cluster) -> None:
    """Every byte comes alone, and the rule still finds its command."""
    with Proxy(node[0], rules=[unknown("INFO")]) as proxy, connect(proxy) as connection:
        proxy.requests(Faults(slices=True))
        proxy.replies(Faults(slices=True))
        in_lengths(connection, "INFO")
        assert receive(connection).startswith(b"-ERR unknown command 'INFO'")
        assert ping(connection) == PONG


def test_server_with_rules(start_nodes: Callable[..., Cluster]) -> None:
    """Clients meet the rules and tests do not. Nothing listens while the server is down."""
    (server,) = start_nodes(1, user=None, rules=[unknown("INFO")])
    for _ in range(2):
        assert b"redis_version" in server.info("server")
        with Connection(server.socket) as connection:
            with pytest.raises(ReplyError, match="unknown command 'INFO'"):
                connection.ask("INFO")
            server.kill()
            with pytest.raises(ConnectionError):
                connection.ask("PING")
        with pytest.raises(ConnectionRefusedError):
            Connection(server.socket)
        server.restart()
