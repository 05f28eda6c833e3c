"""A proxy in front of a server. It delays, holds, loses, cuts and slices traffic, and resets and refuses connections.
With rules it also refuses single commands, delays them, lies about them and hangs up on them; see rules.py.

    with Proxy(server) as proxy:
        client(proxy.url)
        proxy.replies(HOLD)  # of all connections, those still to come included
        proxy.links[0].requests(Faults(cut_after=10))  # of the first one alone
        proxy.let_go()

    with Network(nodes) as network:  # a proxy in front of each
        client(network.urls)

A call has taken effect when it returns. The server can be killed, restarted or replaced behind its proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from support.ports import bind_free_port
from support.resp import LIMIT_S
from support.rules import Exchange, Part, Rule

T = TypeVar("T")

_CHUNK = 64 * 1024

_RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: a close that waits for nothing resets the connection."""


@dataclass(frozen=True)
class Faults:
    """What happens to the bytes that arrive from now on, in one direction."""

    hold: bool = False
    """The bytes are kept until they are let go, even if their sender is gone by then."""
    lose: bool = False
    """The bytes are lost, and so are waiting and all later ones, because no stream continues after a gap."""
    delay_s: float = 0
    """The bytes arrive so much later."""
    cut_after: int | None = None
    """The connection is closed after so many bytes."""
    slices: bool = False
    """The bytes are sent one by one."""


NONE, HOLD, LOSE = Faults(), Faults(hold=True), Faults(lose=True)


class Listening(Protocol):
    """A server that a proxy can stand in front of: of this process or of another."""

    @property
    def socket(self) -> Path:
        """The unix socket."""


class _CutOffError(Exception):
    """The connection has passed everything that it may."""


def _unchanged(data: bytes) -> Iterable[Part]:
    return [(0, data)]


class _Direction:
    """One direction of the proxy. It reads everything, and so sees the end, whatever happens to its output.

    edit   returns what is passed on in place of bytes
    """

    def __init__(self, faults: Faults, edit: Callable[[bytes], Iterable[Part]] = _unchanged) -> None:
        self.faults = faults
        self._edit = edit
        self.gap = False
        self.chunks: deque[tuple[float, bytes | None]] = deque()
        """The bytes and when they are due; no bytes are the end, and `None` is the end of both directions."""
        self.changed = asyncio.Event()
        self.idle = False
        """Whether everything so far was passed on."""

    def change(self, faults: Faults) -> None:
        self.faults = faults
        if faults.lose and self.chunks:
            self.chunks.clear()
            self.gap = True
        self.changed.set()

    async def take_in(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        data = b"more"
        while data:
            try:
                data = await source.read(_CHUNK)
            except OSError:
                data = b""
            self.gap |= self.faults.lose
            for delay_s, part in self._edit(data) if data else _unchanged(data):
                if part and not delay_s and self._clear(target):
                    # Nearly all bytes take this way, which saves a switch of tasks.
                    target.write(part)
                elif not self.gap:
                    self.chunks.append((asyncio.get_running_loop().time() + self.faults.delay_s + delay_s, part))
                    self.changed.set()

    async def pass_on(self, target: asyncio.StreamWriter) -> None:
        # A drain waits until all is sent, or slices would be joined again where the reader is late.
        target.transport.set_write_buffer_limits(0)
        # A peer that is gone needs nothing any more.
        with contextlib.suppress(OSError):
            while data := await self._due():
                left = self.faults.cut_after
                if left is not None:
                    data = data[:left]
                    self.faults = replace(self.faults, cut_after=left - len(data))
                size = 1 if self.faults.slices else _CHUNK
                for i in range(0, len(data), size):
                    target.write(data[i : i + size])
                    await target.drain()
                if self.faults.cut_after == 0:
                    raise _CutOffError
            if data is None:
                raise _CutOffError
            target.write_eof()

    def _clear(self, target: asyncio.StreamWriter) -> bool:
        """Whether incoming bytes can be passed on at once, unchanged."""
        free = self.faults == NONE and self.idle and not (self.gap or self.chunks)
        return free and not target.transport.get_write_buffer_size() and not target.is_closing()

    async def _due(self) -> bytes | None:
        while True:
            self.changed.clear()
            wait_s = None
            if self.chunks and not self.faults.hold:
                wait_s = self.chunks[0][0] - asyncio.get_running_loop().time()
                if wait_s <= 0:
                    return self.chunks.popleft()[1]
            self.idle = not self.chunks
            # `wait_for` of Python 3.11 loses a cancellation that comes together with the change.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self.changed.wait()
            self.idle = False


class Link:
    """One connection through a proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._ends: list[asyncio.StreamWriter] = []
        exchange = Exchange(proxy.rules, proxy.met) if proxy.rules else None
        self._requests = _Direction(proxy.faults[0], exchange.requests if exchange else _unchanged)
        self._replies = _Direction(proxy.faults[1], exchange.replies if exchange else _unchanged)

    @property
    def requests_waiting(self) -> int:
        """How many bytes of requests the proxy holds or delays now."""
        return self._proxy.do(lambda: sum(len(data or b"") for _, data in self._requests.chunks))

    def requests(self, faults: Faults) -> None:
        """Applies the faults to what the client sends."""
        self._proxy.do(lambda: self._requests.change(faults))

    def replies(self, faults: Faults) -> None:
        """Applies the faults to what the server answers."""
        self._proxy.do(lambda: self._replies.change(faults))

    def let_go(self) -> None:
        """Sends on all held bytes, in order, and ends all faults."""
        self._proxy.do(lambda: self.change(NONE, NONE))

    def reset(self) -> None:
        """Breaks the client's end. What it has sent still arrives at the server, at once or when it is let go."""
        self._proxy.do(self.abort)

    def change(self, requests: Faults, replies: Faults) -> None:
        """For the proxy, in its thread."""
        self._requests.change(requests)
        self._replies.change(replies)

    def abort(self) -> None:
        """For the proxy, in its thread."""
        # A connection that has ended cannot be broken.
        with contextlib.suppress(OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._client.shutdown(socket.SHUT_RD)
        if self._ends:
            self._ends[0].transport.abort()

    async def run(self) -> None:
        """For the proxy: moves bytes until both directions have ended."""
        try:
            requests, client = await asyncio.open_connection(sock=self._client)
            self._ends.append(client)
            replies, server = await asyncio.open_unix_connection(self._proxy.server.socket)
            self._ends.append(server)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._requests.take_in(requests, server))
                ways.create_task(self._requests.pass_on(server))
                ways.create_task(self._replies.take_in(replies, client))
                ways.create_task(self._replies.pass_on(client))
        except* (_CutOffError, OSError):
            pass
        finally:
            for each in self._ends:
                each.close()

    async def end(self) -> None:
        """For the proxy: closes both ends, even with bytes that have not passed."""
        for each in self._ends:
            each.transport.abort()
            with contextlib.suppress(OSError):
                await each.wait_closed()
        self._client.close()


class Proxy:
    """Stands in front of one server, on a TCP port of 127.0.0.1. Starts at once; a context manager that stops it.

    at       listen on this unix socket instead
    rules    refuse single commands, delay them, lie about them, or hang up on them
    forget   `links` has only connections that have not ended, for runs of hours
    """

    def __init__(
        self, server: Listening, *, at: Path | None = None, rules: Sequence[Rule] = (), forget: bool = False
    ) -> None:
        self._forgets = forget
        self._at = at
        self.rules = rules
        """The rules for new connections."""
        self.met: Counter[str] = Counter()
        """How often each command has met its rule so far."""
        self.server = server
        """The server for new connections."""
        self.links: list[Link] = []
        """All connections so far, in the order in which they were made, also ended ones."""
        self.faults = (NONE, NONE)
        """The faults that new connections begin with: of requests, of replies."""
        self.accepted = 0
        """How many connections were made so far."""
        self._tasks: list[asyncio.Task[None]] = []
        self._listening = False
        self._socket = socket.socket(socket.AF_UNIX if at else socket.AF_INET)
        if not at:
            self._port = bind_free_port(self._socket)
            # It is set only now, or the port of another process could look free. It is needed to take the port again.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy of {server}", daemon=True)
        self._thread.start()
        self.refuse(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The address for the code under test."""
        return f"unix://{self._at}" if self._at else f"redis://127.0.0.1:{self._port}"

    def requests(self, faults: Faults) -> None:
        """Applies the faults to what clients send, over every present and future connection."""
        self.do(lambda: self._change(faults, self.faults[1]))

    def replies(self, faults: Faults) -> None:
        """Applies the faults to what the server answers, over every present and future connection."""
        self.do(lambda: self._change(self.faults[0], faults))

    def let_go(self) -> None:
        """Sends on all held bytes, in order, and ends all faults."""
        self.do(lambda: self._change(NONE, NONE))

    def forget(self, faults: Faults = LOSE) -> None:
        """Swallows what comes over present connections from now on, as a firewall that has forgotten them."""

        def forget() -> None:
            for link in self.links:
                link.change(faults, faults)

        self.do(forget)

    def reset(self) -> None:
        """Breaks all present connections, at the clients' ends."""
        self.do(self._abort)

    def refuse(self, refuse: bool) -> None:
        """Sets whether new connections are refused, as by a machine where nothing listens. Present ones stay."""
        self.do(self._refuse if refuse else self._listen)

    def stop(self) -> None:
        """Breaks all connections. Held bytes are lost."""
        try:
            self._await(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LIMIT_S)
            self._loop.close()
            self._socket.close()

    def do(self, what: Callable[[], T]) -> T:
        """For links: calls `what` in the proxy's thread."""

        async def call() -> T:
            return what()

        return self._await(call())

    def _await(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(LIMIT_S)

    def _change(self, requests: Faults, replies: Faults) -> None:
        self.faults = (requests, replies)
        for link in self.links:
            link.change(requests, replies)

    def _abort(self) -> None:
        for link in self.links:
            link.abort()

    def _listen(self) -> None:
        if not self._listening:
            self._listening = True
            if self._at:
                # The file of an earlier start is still there.
                self._at.unlink(missing_ok=True)
                self._socket.bind(str(self._at))
            self._socket.listen()
            self._socket.setblocking(False)
            self._loop.add_reader(self._socket, self._accept)

    def _refuse(self) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = socket.socket(socket.AF_UNIX if self._at else socket.AF_INET)
            if not self._at:
                # This keeps the port while nothing listens on it.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._socket.bind(("127.0.0.1", self._port))

    def _accept(self) -> None:
        # A client that has gone again is not a connection.
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            client, _ = self._socket.accept()
            self.accepted += 1
            client.setblocking(False)
            link = Link(self, client)
            self.links.append(link)
            task = self._loop.create_task(link.run())
            self._tasks.append(task)
            if self._forgets:
                task.add_done_callback(lambda ended: self._forget(link, ended))

    def _forget(self, link: Link, ended: asyncio.Task[None]) -> None:
        self.links.remove(link)
        # An error is raised when the proxy is stopped.
        if ended.cancelled() or not ended.exception():
            self._tasks.remove(ended)

    async def _stop(self) -> None:
        self._refuse()
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self.links:
            await link.end()
        for failed in ends:
            if isinstance(failed, Exception):
                raise failed


class Network:
    """A proxy in front of each of some servers, which may be the same one; a context manager."""

    def __init__(self, servers: Iterable[Listening], *, forget: bool = False) -> None:
        with contextlib.ExitStack() as stack:
            self.proxies = [stack.enter_context(Proxy(server, forget=forget)) for server in servers]
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def urls(self) -> list[str]:
        """The addresses for the code under test."""
        return [proxy.url for proxy in self.proxies]

    @property
    def links(self) -> list[Link]:
        """All connections so far."""
        return [link for proxy in self.proxies for link in proxy.links]

    def forget(self, faults: Faults = LOSE) -> None:
        """Has each of them forget its present connections."""
        for proxy in self.proxies:
            proxy.forget(faults)

    def let_go(self) -> None:
        """Sends on all held bytes, in order, and ends all faults."""
        for proxy in self.proxies:
            proxy.let_go()
            proxy.refuse(False)
