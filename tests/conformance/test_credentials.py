"""Logins from files and providers, alike in every language."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, LockError
from conformance.history import SLACK_MS
from support.clock import until
from support.servers import Cluster, Server

SECRET = "S3CR3T"
CALLERS = 50
HANG_MS = 3_000
"""Longer than it takes to connect for some dozens of times."""
CONNECT_TIMEOUT_MS = 100
CUT_MS = 300
"""Before a connect is given up."""
THREADS_MOST = 8
"""The background, the log's and the one that reads, and those that the driver's language starts late."""


class Login:
    """The file from which a driver's provider takes its logins."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "login.json"
        self._new = directory / "new.json"

    def set(self, **login: str | int) -> None:
        """Exchanges the login at once."""
        self._new.write_text(json.dumps(login), encoding="utf-8")
        self._new.replace(self.path)


@pytest.fixture
def login(tmp_path: Path) -> Login:
    """The login of a provider."""
    return Login(tmp_path)


def add_user(server: Server, user: str) -> None:
    """Makes a user with all rights."""
    server.command("ACL", "SETUSER", user, "on", f">{SECRET}", "~*", "&*", "+@all")


def users(server: Server) -> dict[str, str]:
    """As whom clients are logged in, by the number of each connection."""
    text = server.command("CLIENT", "LIST", "TYPE", "normal")
    assert isinstance(text, bytes)
    lines = text.decode().splitlines()
    clients = [dict(word.split("=", 1) for word in line.split(" ") if "=" in word) for line in lines]
    return {client["id"]: client["user"] for client in clients}


@every_face
def test_a_password_file(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str, tmp_path: Path
) -> None:
    (server,) = start_nodes(1)
    add_user(server, "app")
    path = tmp_path / "password"
    client = drivers.start(face).client([server.url_as("app")], password_file=str(path), timeout_ms=0)
    with pytest.raises(LockError) as refused:
        client.lock(name).acquire()
    assert refused.value.code == "unavailable"
    assert "password_file" in refused.value.message
    assert str(path) in refused.value.message
    path.write_text(f"{SECRET}\n", encoding="utf-8")
    lock = client.lock(name, timeout_ms=30_000)
    lock.acquire()
    assert "app" in users(server).values()
    lock.release()


@every_face
def test_a_password_file_that_hangs(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str, tmp_path: Path
) -> None:
    """As one on a dead mount: nobody writes into the pipe. Every call keeps its limit, and they take few threads.

    A file that is put in its place is read soon, although the first reading never ends.
    """
    (server,) = start_nodes(1)
    add_user(server, "app")
    path, pipe = tmp_path / "password", tmp_path / "pipe"
    os.mkfifo(path)
    driver = drivers.fresh(face)
    with pytest.raises(LockError, match="no login within") as cut:
        driver.client([server.url_as("app")], password_file=str(path), timeout_ms=CUT_MS).lock(name).acquire()
    assert cut.value.code == "unavailable"
    client = driver.client(
        [server.url_as("app")], password_file=str(path), timeout_ms=HANG_MS, connect_timeout_ms=CONNECT_TIMEOUT_MS
    )
    locks = [client.lock(f"{name}, {number}") for number in range(CALLERS)]
    before = driver.threads()
    calls = [lock.start_acquire() for lock in locks]
    threads: list[int] = []

    def have_ended() -> bool:
        threads.append(driver.threads())
        return not any(call.pending for call in calls)

    until(have_ended, "every call has ended")
    for call in calls:
        with pytest.raises(LockError) as refused:
            call.result()
        assert refused.value.code == "unavailable"
        # Not before the driver has begun it: it first starts a thread for each.
        assert call.took_ms <= HANG_MS + SLACK_MS
    # A call that blocks has a thread of the program.
    assert max(threads) <= before + THREADS_MOST + (0 if FACES[face].cancels else CALLERS)
    path.rename(pipe)
    path.write_text(SECRET, encoding="utf-8")
    lock = client.lock(name, timeout_ms=30_000)
    lock.acquire()
    lock.release()


@every_face
def test_a_login_that_ends(
    drivers: Drivers, start_nodes: Callable[..., Cluster], login: Login, face: str, name: str
) -> None:
    """A new one goes into the connections that exist. The lock is held all the time."""
    (server,) = start_nodes(1)
    for user in ("first", "second"):
        add_user(server, user)
    login.set(username="first", password=SECRET, ms=1_000)
    # Another connection is made for one on which a node is silent for so long.
    options = {"credentials": str(login.path), "node_timeout_ms": 5 * SLACK_MS}
    lock = drivers.start(face).client([server.url], **options).lock(name)
    lock.acquire()
    before = [number for number, user in users(server).items() if user == "first"]
    assert before
    login.set(username="second", password=SECRET, ms=60_000)

    def is_second() -> bool:
        # A connection that a caller drives sends the login before its next request.
        lock.extend()
        now = users(server)
        return {now.get(number) for number in before} == {"second"}

    until(is_second, "each connection that there was has the new login")
    server.command("ACL", "DELUSER", "first")
    lock.check()
    lock.release()


@every_face
def test_a_provider_that_fails(
    drivers: Drivers, start_nodes: Callable[..., Cluster], login: Login, face: str, name: str
) -> None:
    """The type of its error is shown, and not its text."""
    (server,) = start_nodes(1)
    login.set(error=f"the service says {SECRET}")
    client = drivers.start(face).client([server.url], credentials=str(login.path), timeout_ms=0)
    with pytest.raises(LockError) as refused:
        client.lock(name).acquire()
    assert refused.value.code == "unavailable"
    assert "the credentials provider failed: " in refused.value.message
    assert SECRET not in refused.value.message
    add_user(server, "app")
    login.set(username="app", password=SECRET, ms=60_000)
    # It is called again after a second.
    lock = client.lock(name, timeout_ms=30_000)
    lock.acquire()
    lock.release()
