"""The resource that the locks protect: a store that rejects smaller fences, as a separate process.

It is the example of the documentation (tests/examples/shared_store.py), on SQLite. Clients send a line, `read NAME
FENCE CLIENT` or `write NAME FENCE CLIENT VALUE`, and the answer is `ok VALUE` or `stale`. For the slot of a semaphore,
the name is `NAME#SLOT`. Every access is recorded in the order in which it happened. Each holder reads a number and
writes it back increased, so that two holders at once would lose an update. Readers only read it.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from collections import Counter
from pathlib import Path

from examples.shared_store import SharedStore, StaleFence
from support.clock import now_ns

LINE_LIMIT = 4096


class Accesses:
    """Performs accesses and records them."""

    def __init__(self, database: Path, journal: Path) -> None:
        self._store = SharedStore(str(database))
        # The data must survive the workers, but not the machine.
        self._store.db.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY")
        self._accepted: Counter[str] = Counter()
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def perform(self, line: str) -> str:
        """Returns the answer to one line."""
        what, name, fence, client, *value = line.split()
        invoke_ns = now_ns()
        before = self._value(name)
        try:
            if what == "write":
                self._store.write(name, value[0], int(fence))
            else:
                self._store.read(name, int(fence))
            ok = True
        except StaleFence:
            ok = False
        lock, _, slot = name.partition("#")
        record = {"access": what, "client": client, "name": lock, "fence": int(fence), "ok": ok}
        record |= {"slot": int(slot)} if slot else {}
        record |= {"invoke_ns": invoke_ns, "return_ns": now_ns()}
        if ok:
            self._accepted[name] += 1
            record["count"] = self._accepted[name]
        if what == "write" and ok:
            record["lost_update"] = int(value[0]) != before + 1
        os.write(self._journal, f"{json.dumps(record)}\n".encode())
        return f"ok {before}" if ok else "stale"

    def _value(self, name: str) -> int:
        row = self._store.db.execute("SELECT value FROM shared WHERE name = ?", (name,)).fetchone()
        return int(row[0] or 0) if row else 0


def serve(listener: socket.socket, accesses: Accesses) -> None:
    """Answers until the end of standard input."""
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            assert isinstance(key.fileobj, socket.socket)
            if not _answer(key.fileobj, accesses):
                selector.unregister(key.fileobj)
                key.fileobj.close()


def _answer(client: socket.socket, accesses: Accesses) -> bool:
    """Whether the client is still there. It sends a line and waits for the answer, so lines arrive whole."""
    try:
        line = client.recv(LINE_LIMIT).decode()
        if line:
            client.sendall(f"{accesses.perform(line)}\n".encode())
    except ConnectionError:
        return False
    return bool(line)


def main() -> None:
    """Arguments: the unix socket to listen on, the database, and the file for the record of accesses."""
    path, database, journal = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1000)
        print(flush=True)
        serve(listener, Accesses(Path(database), Path(journal)))


if __name__ == "__main__":
    main()
