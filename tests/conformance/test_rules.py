"""A proxy applies its rules to single commands, and passes every other command on."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable

from conformance.history import SLACK_MS
from conformance.test_proxy import PONG, connect, is_silent, ping, receive
from support.proxy import Proxy
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
    b"=6\r\ntxt:ab\r\n",
    b"%1\r\n+a\r\n*1\r\n:1\r\n",
    b"|1\r\n+ttl\r\n:9\r\n$1\r\na\r\n",
]
"""Replies of every kind, in RESP2 and RESP3."""

UNKNOWN_INFO = b"-ERR unknown command 'INFO', with args beginning with: \r\n"
PUSH = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n"


def byte_by_byte(take: Callable[[bytes], Iterable[Part]], data: bytes) -> bytes:
    """What passes if each byte arrives alone."""
    return b"".join(passed or b"" for i in range(len(data)) for _, passed in take(data[i : i + 1]))


def test_replies_of_every_kind_keep_their_order() -> None:
    """Pushes are not replies."""
    for reply in REPLIES:
        exchange = Exchange([unknown("INFO")], Counter())
        sent = byte_by_byte(exchange.requests, b"GET a\r\nINFO\r\nGET a\r\n")
        assert sent == b"GET a\r\nNOTHING\r\nGET a\r\n"
        received = byte_by_byte(exchange.replies, reply + PUSH + PONG + PUSH + reply)
        assert received == reply + PUSH + UNKNOWN_INFO + PUSH + reply


def test_what_a_rule_takes_away(node: Cluster, name: str) -> None:
    """Earlier commands are answered, and neither the command nor a later one is executed after a hang-up."""
    rules = [forbidden("CLIENT TRACKING"), unknown("INFO"), hang_up("SET")]
    with Proxy(node[0], rules=rules) as proxy, connect(proxy) as connection:
        connection.sendall(b"client tracking ON\r\n")
        assert receive(connection) == b"-NOPERM this user has no permissions to run the 'client|tracking' command\r\n"
        connection.sendall(b"*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n")
        assert receive(connection).startswith(b":")
        connection.sendall(b"*1\r\n$4\r\nINFO\r\n")
        assert receive(connection) == UNKNOWN_INFO
        connection.sendall(f"PING\r\nSET {name} 1\r\nINCR {name}\r\n".encode())
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(1024):
                said += data
        assert said == PONG
        assert not node.has(name)
        assert proxy.met["SET"] == 1
        with connect(proxy) as other:
            assert ping(other) == PONG


def test_what_a_rule_delays_and_lies_about(node: Cluster, name: str) -> None:
    """The server executes the commands. Its reply is the material of the lie."""
    delay_s = SLACK_MS / 1000
    rules = [Rule("SET", delay_s=delay_s), Rule("INCR", lie=lambda reply: b"*1\r\n" + reply)]
    with Proxy(node[0], rules=rules) as proxy, connect(proxy) as connection:
        began = time.monotonic()
        connection.sendall(f"SET {name} 1 PX 60000\r\nINCR {name}\r\n".encode())
        assert is_silent(connection)
        assert not node.has(name)
        with connect(proxy) as other:
            assert ping(other) == PONG
        said = b""
        while len(said) < len(b"+OK\r\n*1\r\n:2\r\n"):
            said += receive(connection)
        assert said == b"+OK\r\n*1\r\n:2\r\n"
        assert time.monotonic() - began >= delay_s
    assert node[0].command("DEL", name)
