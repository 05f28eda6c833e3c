"""Asking a server, with its protocol in a few lines, over its unix socket or TCP.

ask(server.socket, "SET", "a", 1)

with Connection(server.socket) as connection:
    connection.send("BLPOP", "queue", 0)
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Self

LIMIT_S = 20.0
"""Longest wait for a server to start, or for one answer."""

Reply = None | int | bytes | list["Reply"]
"""A server's answer; an error is raised as `ReplyError`."""

Word = str | bytes | int

Address = Path | tuple[str, int]
"""A unix socket, or a host and its port."""


class ReplyError(Exception):
    """The server answered with an error."""


class Connection:
    """A connection that stays open; a context manager that closes it. Raises `OSError` if nothing listens."""

    def __init__(self, address: Address, *, limit_s: float | None = LIMIT_S) -> None:
        target = str(address) if isinstance(address, Path) else address
        self._socket = socket.socket(socket.AF_UNIX if isinstance(target, str) else socket.AF_INET)
        try:
            self._socket.settimeout(limit_s)
            self._socket.connect(target)
        except BaseException:
            self._socket.close()
            raise
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, whatever is still unanswered."""
        self._reader.close()
        self._socket.close()

    def ask(self, *words: Word) -> Reply:
        """Runs one command; raises `ReplyError`, or `OSError` without an answer."""
        self.send(*words)
        return self.receive()

    def send(self, *words: Word) -> None:
        """Sends a command; `receive` reads its answer."""
        request = b"*%d\r\n" % len(words)
        for word in words:
            value = word if isinstance(word, bytes) else str(word).encode()
            request += b"$%d\r\n%b\r\n" % (len(value), value)
        self._socket.sendall(request)

    def receive(self) -> Reply:
        """Reads the answer to the oldest unanswered command; raises `ReplyError`, or `OSError` if there is none."""
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        match kind:
            case b"+":
                return rest
            case b"-":
                raise ReplyError(rest.decode(errors="replace"))
            case b":":
                return int(rest)
            case b"$":
                return None if rest == b"-1" else self._reader.read(int(rest) + 2)[:-2]
            case b"*":
                return None if rest == b"-1" else [self.receive() for _ in range(int(rest))]
        raise ValueError(f"a reply begins with {kind!r}")


def ask(address: Address, *words: Word, limit_s: float = LIMIT_S) -> Reply:
    """Runs one command over its own connection; raises `ReplyError`, or `OSError` without a server or an answer."""
    with Connection(address, limit_s=limit_s) as connection:
        return connection.ask(*words)
