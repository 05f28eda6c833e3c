"""A cluster whose servers take TLS only, and ask for logins and certificates, alike in every language."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import Client, LockError
from conformance.test_credentials import users
from support.clock import until
from support.servers import Server, User
from support.shards import Shards
from support.tls import CA, CLIENT, CLIENT_KEY, options, program_with_tls

USER, SECRET, LATER = "app", "S3CR3T-first", "S3CR3T-later"
OURS = {"tls_cert": str(CLIENT), "tls_key": str(CLIENT_KEY)}
RIGHTS = ("~*", "&*", "+@all")
TTL_MS = 3000
"""A ttl of locks that stay held on a slow machine."""


@pytest.fixture(scope="module")
def shards() -> Iterator[Shards]:
    """Three primaries with TLS and a user, which ask for a certificate."""
    if not (program := program_with_tls()):
        pytest.skip("no server on this machine has TLS")
    user = User(USER, SECRET, RIGHTS)
    with Shards(3, program=program, user=user, tls=options(certificates=True)) as shards:
        yield shards.without_deaths()


def first(url: str) -> str:
    """An address with its first server alone, so that only the map tells the others."""
    return url.partition(",")[0]


def name_at(shards: Shards, server: Server, name: str) -> str:
    """A name that is on this server, made from another one."""
    names = (f"{name}/{number}" for number in itertools.count())
    return next(each for each in names if shards.owner(each) is server)


def use_all(client: Client, shards: Shards, name: str, user: str) -> None:
    """Holds a lock on each server, one of which moves to another server, and releases them."""
    names = {server: name_at(shards, server, name) for server in shards}
    locks = {server: client.lock(each) for server, each in names.items()}
    for server, lock in locks.items():
        lock.acquire()
        assert server.has(lock.name)
        assert user in users(server).values()
    source, target, *_ = shards
    shards.migrate(names[source], source, target)
    for lock in locks.values():
        lock.extend()
        lock.release()
    assert not target.has(names[source])
    shards.migrate(names[source], target, source)


def refusal(client: Client, name: str) -> LockError:
    """The error with which an acquire fails."""
    with pytest.raises(LockError) as refused:
        client.lock(name).acquire(timeout_ms=0)
    return refused.value


@every_face
def test_an_authority_a_certificate_and_a_login(drivers: Drivers, shards: Shards, face: str, name: str) -> None:
    driver, url = drivers.start(face), first(shards.url)
    assert "tls_ca" in refusal(driver.client([url], **OURS), name).message
    assert "tls_cert" in refusal(driver.client([url], tls_ca=str(CA)), name).message
    wrong = refusal(driver.client([url.replace(SECRET, LATER)], tls_ca=str(CA), **OURS), name)
    assert wrong.code == "forbidden"
    use_all(driver.client([url], tls_ca=str(CA), **OURS), shards, name, USER)
    assert not {word for word in (SECRET, LATER) if word in driver.said()}


@every_face
def test_a_password_that_changes_while_locks_are_held(
    drivers: Drivers, shards: Shards, face: str, name: str, tmp_path: Path
) -> None:
    """All connections end after the change, and the new ones log in with the new password before any lock is lost."""
    user, path = f"worker-{face}", tmp_path / "password"
    for server in shards:
        server.set_user(user, "on", f">{SECRET}", *RIGHTS)
    path.write_text(f"{SECRET}\n", encoding="utf-8")
    url = first(shards.url_as(user))
    client = drivers.start(face).client([url], tls_ca=str(CA), password_file=str(path), ttl_ms=TTL_MS, **OURS)
    locks = [client.lock(name_at(shards, server, name)) for server in shards]
    for lock in locks:
        lock.acquire()
    path.write_text(f"{LATER}\n", encoding="utf-8")
    for server in shards:
        server.set_user(user, "resetpass", f">{LATER}")
        server.command("CLIENT", "KILL", "USER", user)
    lost = [lock.start_wait_lost(limit_ms=TTL_MS + 1000) for lock in locks]
    assert [each.result()["lost"] for each in lost] == [None] * len(locks)
    for server, lock in zip(shards, locks, strict=True):
        assert user in users(server).values()
        lock.extend()
        lock.release()
    until(lambda: not any(server.has(lock.name) for server, lock in zip(shards, locks, strict=True)), "all are free")
