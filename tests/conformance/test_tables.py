"""The rows that all languages share: which options and names are taken, and how the others are refused."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest

from conftest import Drivers
from driver import FACES, Json, Lock, LockError, table
from servers import Cluster

every_face = pytest.mark.parametrize("face", FACES)


def difference(error: LockError | None, row: Json) -> str | None:
    """How an outcome differs from what its row says, if it does."""
    expected = row.get("error")
    code = error and error.code
    if expected is None:
        # What else may happen to the lock is not what the table is about.
        return f"refused: {error}" if code == "invalid" else None
    if error is None or code != expected["code"]:
        return f"{code} instead of {expected['code']}"
    missing = [text for text in expected["mentions"] if plain(text) not in plain(error.message)]
    return f"{missing} not in {error.message!r}" if missing else None


def plain(text: str) -> str:
    """Without what differs between the languages' ways to write the name of an option."""
    return text.replace("_", "").lower()


def use(lock: Lock) -> None:
    """Acquires a lock once, because that is where Rust looks at it, and lets go of it."""
    if lock.try_acquire():
        with contextlib.suppress(LockError):
            lock.release()


def report(differences: dict[str, str | None]) -> None:
    """Fails with all rows that differ."""
    wrong = [f"{row}: {what}" for row, what in differences.items() if what]
    assert not wrong, "\n".join(wrong)


@every_face
def test_options_of_a_lock(drivers: Drivers, face: str) -> None:
    client = drivers.start(face).client(["memory://options"])
    differences = {}
    for row in table("options")["cases"]:
        error = None
        try:
            use(client.lock(row["name"], **row["options"]))
        except LockError as refused:
            error = refused
        differences[row["name"]] = difference(error, row)
    report(differences)


@every_face
def test_options_of_a_client(drivers: Drivers, face: str) -> None:
    driver = drivers.start(face)
    differences = {}
    for row in table("options")["cases"]:
        error = None
        try:
            driver.client(["memory://options"], **row["options"])
        except LockError as refused:
            error = refused
        differences[row["name"]] = difference(error, row)
    report(differences)


@every_face
def test_unknown_option(drivers: Drivers, face: str) -> None:
    driver = drivers.start(face)
    client = driver.client(["memory://options"])
    for make in (partial(driver.client, ["memory://options"]), partial(client.lock, "unknown option")):
        with pytest.raises(LockError, match="lease") as refused:
            make(lease=5)
        assert refused.value.code == "invalid"


@every_face
def test_names(drivers: Drivers, node: Cluster, face: str) -> None:
    client = drivers.start(face).client(node.urls)
    differences: dict[str, str | None] = {}
    for row in table("names")["cases"]:
        name, error = bytes.fromhex(row["name_hex"]), None
        try:
            lock = client.lock(name)
            lock.acquire()
            keys = (name, bytes.fromhex(row["fence_key_hex"]))
            absent = [key for key in keys if not node.has(key)]
            lock.release()
        except LockError as refused:
            error, absent = refused, []
        differences[repr(name)] = difference(error, row) or (f"no key {absent}" if absent else None)
    report(differences)


@every_face
def test_addresses(drivers: Drivers, face: str) -> None:
    driver = drivers.start(face)
    differences: dict[str, str | None] = {}
    for row in table("addresses")["cases"]:
        if "env" in row:
            continue
        nodes, error = row["urls"] if "urls" in row else [row["url"]], None
        try:
            driver.client(nodes)
        except LockError as refused:
            error = refused
        told = [secret for secret in row.get("never", []) if error and secret in error.message]
        differences[repr(nodes)] = difference(error, row) or (f"tells {told}" if told else None)
    report(differences)
