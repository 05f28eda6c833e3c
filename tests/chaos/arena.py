"""The processes of a run: servers, the ways to them, the store and the workers. All are ended, whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

import psutil

from chaos.planted import PLANTED
from chaos.schedule import CREW, TTL_S, VIEWS, Plan
from support.process import python, start, stop_process
from support.rights import fewest, for_any_name
from support.servers import Server, User

if TYPE_CHECKING:
    from chaos.troubles import Troubles

DRIVERS = Path(__file__).resolve().parents[1] / "conformance" / "drivers"

PASSWORD = "S3CR3T-of-chaos"
"""The password in the nodes' addresses, which must not appear in any output."""

HANDS = 6
"""How many locks a worker uses at once."""

END_S = 15.0
"""A worker that takes longer to end hangs."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Role:
    """The role of a worker, which its replacement inherits when it is killed."""

    language: str
    face: str
    driver_face: str
    """The face of the driver that plays it."""


ROLES = (
    Role("Rust", "async", "rust"),
    Role("Rust", "blocking", "rust-blocking"),
    Role("Python", "sync", "python"),
    Role("Python", "asyncio", "asyncio"),
    Role("Node", "async", "node"),
    Role("Rust", "async", "rust"),
    Role("Python", "sync", "python"),
    Role("Node", "async", "node"),
)
assert len(ROLES) == CREW


class ArenaError(Exception):
    """A run cannot begin or continue."""


@dataclass
class Journal:
    """The record of a process, read as it grows."""

    path: Path
    _read: int = 0
    _rest: bytes = b""

    def lines(self) -> Iterator[Json]:
        """The lines since the last time."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line)

    def start_over(self) -> None:
        """Forgets what was read, while no process writes: a run of hours would fill the disk."""
        if self.path.exists() and self._read == self.path.stat().st_size:
            os.truncate(self.path, 0)
            self._read = 0


class Program:
    """A child process that gets orders by lines."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("wb") as errors:
            self.process = start(command, errors, env=os.environ | (env or {}))

    def tell(self, **order: object) -> None:
        """Writes a line. A process that has ended does not read it, which others find out."""
        with contextlib.suppress(BrokenPipeError):
            self._input.write(f"{json.dumps(order)}\n".encode())
            self._input.flush()

    def hear(self) -> bytes:
        """Waits for a line of its output; returns nothing if it has ended."""
        assert self.process.stdout
        return self.process.stdout.readline()

    def end(self) -> None:
        """Ends its input, which ends the process."""
        with contextlib.suppress(BrokenPipeError):
            self._input.close()

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.wait()
        self.end()
        assert self.process.stdout
        self.process.stdout.close()

    def said(self) -> str:
        """Its messages for people."""
        return self.log.read_text(errors="replace").strip()

    @property
    def _input(self) -> IO[bytes]:
        assert self.process.stdin
        return self.process.stdin


class Worker(Program):
    """A worker process."""

    def __init__(self, role: Role, name: str, view: int, command: Sequence[str], log: Path, journal: Path, urls: str):
        super().__init__(command, log, {"REDLOCK_URLS": urls})
        self.role, self.name, self.view = role, name, view
        self.lane = lane_of(name)
        """The lane in which it and its replacements are shown."""
        self.journal = Journal(journal)
        self.stopped = False
        self.resting = False
        self.served = False
        self.asking: dict[str, Json] = {}
        """Unanswered requests of its hands."""
        self.holding: dict[str, Json] = {}
        """The last acquires of its hands, if nothing has ended the holds."""
        self.releasing_ns: dict[str, int] = {}
        """When a hand began a release whose result is unknown."""
        self.asked: dict[str, Json] = {}
        """What each hand has asked for last."""
        self.valid_until_ns: dict[str, int] = {}
        """The end of the validity of each hand's present or last hold, as far as known."""

    def stop(self) -> None:
        """Stops it in the middle of whatever it does, unless it is stopped already."""
        if not self.stopped:
            # It and its driver are a group, which a look for children would stop late on a busy machine.
            os.killpg(self.process.pid, signal.SIGSTOP)
            self.stopped = stop_process(self.process.pid)

    def go_on(self) -> None:
        """Lets it continue."""
        os.killpg(self.process.pid, signal.SIGCONT)
        self.stopped = False

    def kill(self) -> None:
        """Ends it and its driver at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        super().kill()

    def drivers(self) -> list[psutil.Process]:
        """The process that uses the library, unless it has not started yet."""
        return psutil.Process(self.process.pid).children()


def lane_of(client: str) -> str:
    """The lane of a worker or of one of its hands: `worker 3` of `python-3.1/0`."""
    number = re.search(r"-(\d+)", client)
    assert number, client
    return f"worker {number[1]}"


@dataclass
class Arena(ABC):
    """Everything that runs; a context manager that ends it all. What the workers' addresses lead to is a subclass's.

    binaries   where the driver for Rust is
    seed       the seed of the workers
    fault      the planted fault
    roles      the roles of the workers
    hands      how many locks a worker uses at once
    """

    binaries: Path
    seed: int
    fault: str | None = None
    roles: Sequence[Role] = ROLES
    hands: int = HANDS
    plan: ClassVar[Plan]
    """What can happen here."""
    excuse: ClassVar[str]
    """Where two holders at once are excused, in words."""
    servers: Sequence[Server] = field(init=False, default=())
    workers: list[Worker | None] = field(init=False, default_factory=list)
    gone: list[Worker] = field(init=False, default_factory=list)

    def __enter__(self) -> Self:
        self._generations = [0] * len(self.roles)
        with contextlib.ExitStack() as stack:
            # A server dies with the thread that started it, so this one ends after all of them.
            self.background = stack.enter_context(ThreadPoolExecutor(1))
            self.dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redlock-")))
            user = for_any_name(fewest())
            self.user = User(user.name, PASSWORD, user.rules)
            self._urls = self._open(stack)
            self.accesses = Journal(self.dir / "store.jsonl")
            store = [self.dir / "store.sock", self.dir / "store.db", self.accesses.path]
            self.store = self._program(stack, "store", *map(str, store))
            assert self.store.hear(), self.store.said()
            self.workers = [None] * len(self.roles)
            stack.callback(self._kill_all)
            for slot in range(len(self.roles)):
                self.start(slot)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    @abstractmethod
    def what(self) -> str:
        """What the workers' addresses lead to, in words."""

    @property
    def programs(self) -> str:
        """The names of the servers' programs."""
        return ", ".join(sorted({server.program.name for server in self.servers}))

    @abstractmethod
    def lanes(self, subjects: set[str]) -> list[str]:
        """The lanes of everything but workers to which these subjects of trouble belong."""

    @abstractmethod
    def troubles(self) -> Troubles:
        """What makes trouble here."""

    def families(self, names: Sequence[str]) -> list[list[str]]:
        """Those of the names of which several can be locked together."""
        return [list(names)]

    def needed(self) -> list[Program]:
        """The programs without which no worker can go on."""
        return [self.store]

    def living(self) -> list[Worker]:
        """The present workers, also stopped ones."""
        return [worker for worker in self.workers if worker]

    def all(self) -> list[Worker]:
        """All workers so far."""
        return self.living() + self.gone

    def check(self) -> None:
        """Raises unless the programs that all workers need are running."""
        for program in self.needed():
            if program.process.poll() is not None:
                raise ArenaError(f"{program.log.stem} has ended: {program.said()}")

    def start(self, slot: int) -> Worker:
        """Starts a worker in an empty place."""
        role = self.roles[slot]
        self._generations[slot] += 1
        name = f"{role.language.lower()}-{slot + 1}.{self._generations[slot]}"
        journal = self.dir / f"{name}.jsonl"
        given = ["--name", name, "--face", role.driver_face, "--hands", str(self.hands)]
        given += ["--seed", f"{self.seed}/{name}", "--ttl", str(TTL_S)]
        given += ["--journal", str(journal), "--store", str(self.dir / "store.sock")]
        planted = PLANTED.get(self.fault or "")
        if planted and (planted.language, planted.face) == (role.language, role.face):
            given += ["--fault", str(self.fault)]
        view, log = slot % VIEWS, self.dir / f"{name}.log"
        command = [*python("chaos.hand"), *given, "--", *self._driver(role)]
        worker = Worker(role, name, view, command, log, journal, self._urls[view])
        self.workers[slot] = worker
        return worker

    def remove(self, slot: int) -> Worker:
        """Kills a worker; its record can still be read."""
        worker = self.workers[slot]
        assert worker
        worker.kill()
        self.workers[slot] = None
        self.gone.append(worker)
        return worker

    def finish(self) -> list[str]:
        """Waits for all workers to end; returns what went wrong."""
        wrong = []
        for worker in self.living():
            worker.end()
        end = time.monotonic() + END_S
        for worker in self.living():
            try:
                code = worker.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                wrong.append(f"{worker.name} did not come to its end within {END_S:g} s")
                continue
            if code:
                wrong.append(f"{worker.name} ended with {code}")
        return wrong

    @abstractmethod
    def _open(self, stack: contextlib.ExitStack) -> list[str]:
        """Starts everything that the workers' addresses lead to; returns the addresses for each view."""

    def _program(self, stack: contextlib.ExitStack, name: str, *given: str) -> Program:
        log = self.dir / f"{name}-{len(list(self.dir.iterdir()))}.log"
        program = Program([*python(f"chaos.{name}"), *given], log)
        stack.callback(program.kill)
        return program

    def _driver(self, role: Role) -> Sequence[str]:
        if role.language == "Rust":
            return [str(self.binaries / "redlock-driver")]
        if role.language == "Python":
            return python("conformance.drivers.python_driver", "-W", "default")
        program = shutil.which("node")
        if program is None:
            raise ArenaError("node is not on the PATH")
        # What a worker writes to standard error is trouble, and these are also among its events.
        return [program, "--disable-warning=RedlockWarning", str(DRIVERS / "node_driver.mjs")]

    def _kill_all(self) -> None:
        for worker in self.living():
            worker.kill()
