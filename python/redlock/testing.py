"""What tests of a program with locks need, without a server.

A `MemoryServer` stands for a server, and does on demand what is hard to have done by a real one. `lose` has a lock lose
what it holds. pytest has the fixtures of this package by itself: `redlock_server`, which the default clients use until
the test ends, `redlock_client` and `redlock_aclient`.

    def test_nightly(redlock_server):
        redlock_server.hold("cron:nightly")
        assert nightly() is None, "another server runs it"

        redlock_server.release("cron:nightly")
        assert nightly() == "done"

Without pytest, give the `url` of a new `MemoryServer` to `redlock.configure` or to a client.
"""

from redlock._native import MemoryServer, lose

__all__ = ["MemoryServer", "lose"]
