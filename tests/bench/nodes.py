"""The servers of the benchmark, and their own counts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self

from bench.process import Json
from support.resp import Connection
from support.servers import Cluster, embedded, system, version

PROGRAM = system() or embedded()
"""The program of the system, which users have, or else the one that came with the packages."""

OTHER = embedded() if system() else None
"""The one that came with the packages, where the system has one, too: it has a command that deletes what is equal."""


@dataclass
class Counters:
    """A server's counts: since its start, or of an interval."""

    cpu_us: float = 0
    """Processor time."""
    reads: int = 0
    """How many reads there were: of one request, or of several that were sent together."""
    commands: int = 0
    """How many commands ran, those inside scripts among them."""

    def __add__(self, other: Counters) -> Counters:
        return Counters(self.cpu_us + other.cpu_us, self.reads + other.reads, self.commands + other.commands)

    def since(self, before: Counters) -> Counters:
        """The counts since `before`."""
        return Counters(self.cpu_us - before.cpu_us, self.reads - before.reads, self.commands - before.commands)

    @property
    def shown(self) -> Json:
        """As fields of a turn."""
        return {"server_cpu_us": self.cpu_us, "requests": self.reads, "commands": self.commands}


def parse(info: str) -> Counters:
    """Parses `INFO everything`."""
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    # This request is not part of the answer.
    stats = [text for name, text in fields.items() if name.startswith("cmdstat_") and name != "cmdstat_info"]
    return Counters(
        cpu_us=1e6 * (float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])),
        reads=int(fields["total_reads_processed"]),
        commands=sum(int(text.removeprefix("calls=").split(",")[0]) for text in stats),
    )


class Nodes:
    """Some servers, with a connection to each for questions. A context manager that stops them."""

    def __init__(self, n: int, program: Path | None = PROGRAM) -> None:
        self._program = program
        with ExitStack() as stack:
            self.servers = stack.enter_context(Cluster(n, tcp=True, program=program))
            self.urls: Sequence[str] = self.servers.urls
            self._connections = [stack.enter_context(server.connect()) for server in self.servers]
            self._frozen: set[int] = set()
            self._questions = 0
            self._question_us = 0.0
            counts = [self.count() for _ in range(10)]
            # The cost of these requests counts for no subject.
            spent_us = min(after.since(before).cpu_us for before, after in pairwise(counts))
            self._question_us = spent_us / n
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def version(self) -> str:
        """Their program and version."""
        assert self._program
        return version(self._program)

    def freeze(self, i: int) -> None:
        """Stops a server without ending it; it is not asked while it is frozen."""
        self.servers[i].freeze()
        self._frozen.add(i)

    def thaw(self, i: int) -> None:
        """Lets it continue."""
        self.servers[i].thaw()
        self._frozen.discard(i)

    def empty(self) -> None:
        """Removes every key."""
        for connection in self._awake():
            connection.ask("FLUSHALL")

    def locks(self, prefix: str) -> int:
        """How many such locks the first server has, with any prefix of a library."""
        keys = self.servers[0].keys()
        return sum(prefix.encode() in key and not key.startswith(b"redlock:fence:") for key in keys)

    def count(self) -> Counters:
        """The counts of all servers that are not frozen."""
        counters = Counters()
        for connection in self._awake():
            info = connection.ask("INFO", "everything")
            assert isinstance(info, bytes)
            counters += parse(info.decode())
            # The request itself arrived too.
            self._questions += 1
        counters.reads -= self._questions
        counters.cpu_us -= self._questions * self._question_us
        return counters

    def _awake(self) -> list[Connection]:
        return [connection for i, connection in enumerate(self._connections) if i not in self._frozen]
