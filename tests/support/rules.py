"""Rules for single commands, which a proxy applies: it refuses them, delays them, lies about them and hangs up on them.

    Proxy(server, rules=[unknown("INFO"), Rule("EVALSHA", delay_s=1)])

The server receives another command in place of one that the proxy answers, so every command has one reply at its
position.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Part = tuple[float, bytes | None]
"""The delay of some bytes, and the bytes; `None` ends the connection."""

OPTIONAL = ["HELLO", "CLIENT SETINFO", "INFO", "CLIENT TRACKING", "EVALSHA", "DELIFEQ", "DELEX"]
"""The commands that the library sends and does not need. `DELIFEQ` and `DELEX` go to servers that have them."""

_IN_PLACE = b"NOTHING\r\n"
"""A command that no server knows. Its reply is an error, for every user and at any time."""


@dataclass(frozen=True)
class Rule:
    """The treatment of a command."""

    command: str
    """Its first words: "HELLO", or "CLIENT TRACKING"; "CLIENT" is every subcommand."""
    answer: bytes | None = None
    """The reply, as it is sent; the server does not get the command."""
    hang_up: bool = False
    """The connection ends when its reply is due. The server gets neither the command nor a later one."""
    delay_s: float = 0
    """The command and all later ones arrive so much later."""
    lie: Callable[[bytes], bytes] | None = None
    """Returns another reply for the server's, both as they are sent. The server executes the command."""

    def matches(self, request: bytes) -> bool:
        """Whether the request is this command."""
        words = self.command.encode().split()
        return _words(request, len(words)) == words


def forbidden(command: str) -> Rule:
    """Refuses a command as a server does if the user has no right to it."""
    name = command.lower().replace(" ", "|")
    return Rule(command, answer=f"-NOPERM this user has no permissions to run the '{name}' command\r\n".encode())


def unknown(command: str) -> Rule:
    """Refuses a command as a server does if it does not know the command."""
    name, _, subcommand = command.partition(" ")
    if subcommand:
        return Rule(command, answer=f"-ERR unknown subcommand '{subcommand}'. Try {name} HELP.\r\n".encode())
    return Rule(command, answer=f"-ERR unknown command '{name}', with args beginning with: \r\n".encode())


def hang_up(command: str) -> Rule:
    """Ends each connection on which a command is sent."""
    return Rule(command, hang_up=True)


class Exchange:
    """The commands and replies of one connection, as rules change them. Takes bytes as they arrive.

    met   counts the commands that have met their rule
    """

    def __init__(self, rules: Sequence[Rule], met: Counter[str]) -> None:
        self._rules = rules
        self._met = met
        self._requests = _Messages()
        self._replies = _Messages()
        self._unanswered: deque[Rule | None] = deque()
        """The rules for the commands that the server has not answered yet."""
        self._over = False
        """Whether the server gets no later command."""

    def requests(self, data: bytes) -> Iterator[Part]:
        """Returns what the server gets."""
        for request in self._requests.take(data):
            if self._over:
                return
            rule = next((rule for rule in self._rules if rule.matches(request)), None)
            self._unanswered.append(rule)
            if rule is None:
                yield 0, request
            else:
                self._met[rule.command] += 1
                self._over = rule.hang_up
                yield rule.delay_s, _IN_PLACE if rule.hang_up or rule.answer is not None else request

    def replies(self, data: bytes) -> Iterator[Part]:
        """Returns what the client gets."""
        for reply in self._replies.take(data):
            # A push is not a reply. A server may also send an error before the first command.
            rule = None if reply.startswith(b">") or not self._unanswered else self._unanswered.popleft()
            if rule is None:
                yield 0, reply
            elif rule.hang_up:
                yield 0, None
                return
            else:
                told = reply if rule.answer is None else rule.answer
                yield 0, rule.lie(told) if rule.lie else told


class _Messages:
    """Splits a stream of bytes into requests or replies."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> Iterator[bytes]:
        """Returns the messages that are complete with these bytes."""
        self._rest += data
        while (end := _end(self._rest)) is not None:
            message, self._rest = self._rest[:end], self._rest[end:]
            yield message


def _end(data: bytes) -> int | None:
    """Returns the length of the first message, in RESP2 or RESP3, or `None` if it is incomplete."""
    end, values = 0, 1
    while values:
        line_end = data.find(b"\r\n", end)
        if line_end < 0:
            return None
        kind, number = data[end : end + 1], data[end + 1 : line_end]
        end, values = line_end + 2, values - 1
        match kind:
            case b"$" | b"=" | b"!" if number != b"-1":
                end += int(number) + 2
            case b"*" | b"~" | b">" if number != b"-1":
                values += int(number)
            case b"%":
                values += 2 * int(number)
            case b"|":
                # Attributes precede the value that they are about.
                values += 2 * int(number) + 1
            # Every other kind, and a request in plain words, is one line.
    return end if end <= len(data) else None


def _words(request: bytes, count: int) -> list[bytes]:
    """Returns the first words of a request, in capitals."""
    if request.startswith(b"*"):
        # Every word is behind a line with its length.
        return [word.upper() for word in request.split(b"\r\n", 2 * count + 1)[2 : 2 * count + 1 : 2]]
    return request.upper().split()[:count]
