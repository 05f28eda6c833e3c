"""The servers of the benchmark, and their own counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

from support.resp import Connection
from support.servers import Cluster, Server, embedded, system, version
from support.shards import Shards

PROGRAM = system() or embedded()
"""The program of the system, which users have, or else the one that came with the packages."""


@dataclass
class Counters:
    """A server's counts: since its start, or of an interval."""

    cpu_us: float = 0
    """Processor time."""
    reads: int = 0
    """How many reads there were: of one request, or of several that were sent together."""
    calls: dict[str, int] = field(default_factory=dict)
    """Of each command, those inside scripts among them."""
    usec: dict[str, float] = field(default_factory=dict)
    """How long all calls of a command took."""

    def __add__(self, other: Counters) -> Counters:
        return Counters(
            self.cpu_us + other.cpu_us,
            self.reads + other.reads,
            {name: self.calls.get(name, 0) + other.calls.get(name, 0) for name in self.calls | other.calls},
            {name: self.usec.get(name, 0) + other.usec.get(name, 0) for name in self.usec | other.usec},
        )

    def since(self, before: Counters) -> Counters:
        """The counts since `before`."""
        return Counters(
            self.cpu_us - before.cpu_us,
            self.reads - before.reads,
            {name: n - before.calls.get(name, 0) for name, n in self.calls.items() if n > before.calls.get(name, 0)},
            {name: us - before.usec.get(name, 0) for name, us in self.usec.items()},
        )

    @property
    def commands(self) -> int:
        """How many commands ran."""
        return sum(self.calls.values())

    @property
    def script_us(self) -> float | None:
        """How long one script took; `None` if there was none."""
        names = [name for name in self.calls if name in ("eval", "evalsha", "fcall")]
        calls = sum(self.calls[name] for name in names)
        return sum(self.usec[name] for name in names) / calls if calls else None


def parse(info: str) -> Counters:
    """Parses `INFO everything`."""
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    counters = Counters(
        cpu_us=1e6 * (float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])),
        reads=int(fields["total_reads_processed"]),
    )
    for name, stats in fields.items():
        found = re.match(r"calls=(\d+),usec=(\d+)", stats)
        # This request is not part of the answer.
        if found and name.startswith("cmdstat_") and name != "cmdstat_info":
            command = name.removeprefix("cmdstat_").split("|")[0]
            counters += Counters(calls={command: int(found[1])}, usec={command: float(found[2])})
    return counters


class Nodes:
    """Some servers, with a connection to each for questions. A context manager that stops them."""

    def __init__(self, servers: Cluster | Shards, urls: Sequence[str]) -> None:
        self.urls = urls
        """The addresses of the nodes, over TCP."""
        with ExitStack() as stack:
            stack.enter_context(servers)
            self.servers = list(servers)
            self._connections = [stack.enter_context(server.connect()) for server in self.servers]
            self._frozen: set[int] = set()
            self._questions = 0
            self._question_us = 0.0
            counts = [self.count() for _ in range(10)]
            # The cost of these requests counts for no subject.
            spent_us = min(after.since(before).cpu_us for before, after in pairwise(counts))
            self._question_us = spent_us / len(self.servers)
            self._stack = stack.pop_all()

    @classmethod
    def plain(cls, n: int) -> Self:
        """Independent servers."""
        servers = Cluster(n, tcp=True, program=PROGRAM)
        return cls(servers, servers.urls)

    @classmethod
    def cluster(cls, shards: int) -> Self:
        """A Redis Cluster without replicas, which is one node."""
        servers = Shards(shards, program=PROGRAM)
        return cls(servers, [servers.url])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[Server]:
        return iter(self.servers)

    @property
    def unix_urls(self) -> list[str]:
        """Their unix sockets."""
        return [f"unix://{server.socket}" for server in self.servers]

    @property
    def version(self) -> str:
        """Their program and version."""
        return version(self.servers[0].program)

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
