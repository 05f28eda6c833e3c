"""A resource for readers and writers. It is safe even if one of them does not know yet that it lost its lock."""

from __future__ import annotations

# docs: begin
import sqlite3


class StaleFence(Exception):
    """Somebody was here since our lock was lost, whom our access would have disturbed."""


class SharedStore:
    def __init__(self, path: str) -> None:
        self.db = sqlite3.connect(path)
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS shared (name TEXT PRIMARY KEY, written INTEGER, seen INTEGER, value TEXT)"
        )

    # Readers do not disturb each other, so a smaller fence than that of another reader is no harm.
    def read(self, name: str, fence: int) -> str | None:
        return self._access(
            """INSERT INTO shared VALUES (:name, 0, :fence, NULL) ON CONFLICT (name) DO
               UPDATE SET seen = max(seen, :fence) WHERE :fence >= written RETURNING value""",
            {"name": name, "fence": fence},
        )

    # Nobody may change any more what a later reader has already seen.
    def write(self, name: str, value: str, fence: int) -> None:
        self._access(
            """INSERT INTO shared VALUES (:name, :fence, :fence, :value) ON CONFLICT (name) DO
               UPDATE SET written = :fence, seen = :fence, value = :value WHERE :fence >= seen RETURNING value""",
            {"name": name, "fence": fence, "value": value},
        )

    # Comparing, remembering and changing are one statement: somebody else would fit between two.
    def _access(self, statement: str, values: dict[str, str | int]) -> str | None:
        with self.db:
            rows = self.db.execute(statement, values).fetchall()
        if not rows:
            raise StaleFence(f"{values['name']}: fence {values['fence']} came too late")
        return None if rows[0][0] is None else str(rows[0][0])


# docs: end
