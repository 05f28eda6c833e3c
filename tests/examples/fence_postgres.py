import os

import psycopg
import redlock

db = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
db.execute("CREATE TABLE IF NOT EXISTS invoice (id int PRIMARY KEY, state text, fence bigint NOT NULL DEFAULT 0)")
db.execute("INSERT INTO invoice VALUES (17, 'open') ON CONFLICT DO NOTHING")


class StaleFence(Exception):
    """A later holder was there already: our lock is gone."""


def read(invoice: int, fence: int) -> str:
    """Reads and remembers the fence, so that an earlier holder cannot change afterwards what was read."""
    row = db.execute(
        "UPDATE invoice SET fence = %s WHERE id = %s AND fence <= %s RETURNING state", (fence, invoice, fence)
    ).fetchone()
    if row is None:
        raise StaleFence(f"invoice {invoice}, fence {fence}")
    return str(row[0])


def write(invoice: int, state: str, fence: int) -> None:
    done = db.execute(
        "UPDATE invoice SET state = %s, fence = %s WHERE id = %s AND fence <= %s", (state, fence, invoice, fence)
    )
    if done.rowcount == 0:
        raise StaleFence(f"invoice {invoice}, fence {fence}")


with redlock.lock("invoice:17") as lock:
    print(read(17, lock.fence))
    write(17, "paid", lock.fence)
