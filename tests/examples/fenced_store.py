"""A store that rejects late holders: it remembers the largest fence that it has seen, and accepts no smaller one.

store = FencedStore("accounts.db")
with redlock.lock("account:7") as lock:
    balance = int(store.read("account:7", fence=lock.fence) or 0)
    store.write("account:7", str(balance + 1), fence=lock.fence)
"""

import sqlite3


# docs: begin
class StaleFence(Exception):
    """A later holder was there already: our lock is gone."""


class FencedStore:
    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path)
        self.db.execute("CREATE TABLE IF NOT EXISTS store (name TEXT PRIMARY KEY, fence INTEGER, value TEXT)")

    # Reads count too: what a later holder has read, an earlier one must not change afterwards.
    def read(self, name: str, fence: int) -> str | None:
        return self._access(name, fence, None)

    def write(self, name: str, value: str, fence: int) -> None:
        self._access(name, fence, value)

    # Compare, remember and write in one statement: with two, another holder could slip in between.
    def _access(self, name: str, fence: int, value: str | None) -> str | None:
        with self.db:
            rows = self.db.execute(
                """INSERT INTO store VALUES (?, ?, ?) ON CONFLICT (name) DO
                   UPDATE SET fence = excluded.fence, value = coalesce(excluded.value, value)
                   WHERE excluded.fence >= fence RETURNING value""",
                (name, fence, value),
            ).fetchall()
        if not rows:
            raise StaleFence(f"{name}: fence {fence} is smaller than the largest seen")
        return None if rows[0][0] is None else str(rows[0][0])


# docs: end
