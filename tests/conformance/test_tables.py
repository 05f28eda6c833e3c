"""The rows that all languages share: what is accepted, its effect, and how everything else is refused."""

from __future__ import annotations

import contextlib
import math
import time
from functools import partial

import pytest

from conformance.conftest import ROOT, Drivers, every_face
from conformance.driver import FACES, Client, Driver, Json, Lock, LockError, table
from conformance.history import SLACK_MS
from conformance.story import fence_key
from support.clock import until
from support.servers import Cluster, Server


def difference(error: LockError | None, row: Json) -> str | None:
    """How an outcome differs from its row, if it does."""
    expected = row.get("error")
    code = error and error.code
    if expected is None:
        # What else may happen to the lock is not the subject of the table.
        return f"refused: {error}" if code == "invalid_argument" else None
    if error is None or code != expected["code"]:
        return f"{code} instead of {expected['code']}"
    missing = [text for text in expected["mentions"] if plain(text) not in plain(error.message)]
    return f"{missing} not in {error.message!r}" if missing else None


def option_difference(error: LockError | None, row: Json) -> str | None:
    """As `difference`, where a row mentions the refused option first."""
    wrong = difference(error, row)
    if wrong or error is None or "error" not in row:
        return wrong
    option = row["error"]["mentions"][0].split()[0]
    return None if plain(error.option or "") == plain(option) else f"it is about {error.option} instead of {option}"


def shape_difference(error: LockError | None, row: Json) -> str | None:
    """As `difference`, where a row names the refused option."""
    wrong = difference(error, row)
    if wrong or error is None or "error" not in row:
        return wrong
    option = row["error"]["option"]
    return None if plain(error.option or "") == plain(option) else f"it is about {error.option} instead of {option}"


def plain(text: str) -> str:
    """Removes what differs between the languages' spellings of options."""
    return text.replace("_", "").lower()


def use(lock: Lock) -> None:
    """Acquires a lock once, because that is where Rust checks it, and releases it."""
    if lock.try_acquire():
        with contextlib.suppress(LockError):
            lock.release()


def report(differences: dict[str, str | None]) -> None:
    """Fails with all rows that differ."""
    wrong = [f"{row}: {what}" for row, what in differences.items() if what]
    assert not wrong, "\n".join(wrong)


def validity(won: Json, valid_ms: float) -> str | None:
    """How long a lock was valid when it was acquired, if its row says something else."""
    took_ms = (won["return_ns"] - won["invoke_ns"]) / 1e6
    # It is valid from the start of its attempt, which is somewhere within the call.
    if valid_ms - took_ms <= won["remaining_ms"] <= valid_ms:
        return None
    return f"valid for {won['remaining_ms']} instead of {valid_ms} ms, after a call of {took_ms} ms"


OF_CLIENT = {"connect_timeout_ms", "keepalive_ms", "max_connections", "key_prefix", "password_file"}
OF_CLIENT |= {"tls_ca", "tls_cert", "tls_key", "tls_server_name"}
"""The options that only a client has."""


def options_of_a_lock() -> list[Json]:
    """The options without those that only a client has."""
    return [row for row in table("options")["cases"] if not OF_CLIENT & {*row["options"]}]


@every_face
def test_options_of_a_lock(drivers: Drivers, face: str) -> None:
    client = drivers.start(face).client(["memory://options"])
    differences = {}
    for row in options_of_a_lock():
        error = None
        try:
            use(client.lock(row["name"], **row["options"]))
        except LockError as refused:
            error = refused
        differences[row["name"]] = option_difference(error, row)
    report(differences)


def client_of(options: Json) -> tuple[list[str], Json]:
    """The node and the options of a client, which reads files of the repository."""
    node = "rediss://localhost" if any(option.startswith("tls_") for option in options) else "memory://options"
    is_file = {option: str(given).startswith("tests/") for option, given in options.items()}
    return [node], {option: str(ROOT / given) if is_file[option] else given for option, given in options.items()}


@every_face
def test_options_of_a_client(drivers: Drivers, face: str) -> None:
    driver = drivers.start(face)
    differences = {}
    for row in table("options")["cases"]:
        error = None
        try:
            nodes, options = client_of(row["options"])
            driver.client(nodes, **options)
        except LockError as refused:
            error = refused
        differences[row["name"]] = option_difference(error, row)
    report(differences)


@every_face
def test_what_options_do_on_a_node(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(node.urls)
    differences = {}
    for row in options_of_a_lock():
        if "ok" in row:
            differences[row["name"]] = effect(client, node[0], f"{name}/{row['name']}", row)
    report(differences)


def effect(client: Client, server: Server, name: str, row: Json) -> str | None:
    """What a node keeps for a lock with the options of this row, if it differs from the expected settings."""
    lock, settings = client.lock(name, **row["options"]), row["ok"]
    began = time.monotonic()
    try:
        if not lock.try_acquire():
            return "denied"
    except LockError as error:
        # A node_timeout of 1 ms may pass sooner.
        return None if error.code == "unavailable" else str(error)
    if settings.get("protocol") == "setnx":
        return setnx_effect(lock, server, name, settings["ttl_ms"])
    left = {"ttl_ms": server.left_ms(name), "fence_ttl_ms": server.left_ms(fence_key(name))}
    view = client.inspect(name)
    took_ms = (time.monotonic() - began) * 1000
    with contextlib.suppress(LockError):
        lock.release()
    # An `at_least` beyond the ttl is what the key has.
    wanted = settings | {"ttl_ms": max(settings["ttl_ms"], settings.get("at_least_ms", 0))}
    wrong = [
        f"{setting} of {kept!r} instead of {wanted[setting]}"
        for setting, kept in left.items()
        # -2 is a key that has expired.
        if not (isinstance(kept, int) and wanted[setting] - took_ms - 1 <= kept <= wanted[setting])
        and not (kept == -2 and took_ms >= wanted[setting])
    ]
    if "label" in settings and view["state"] == "held" and (view["label"] or "") != settings["label"]:
        wrong.append(f"the label {view['label']!r}")
    return ", ".join(wrong) or None


SETNX_LOOK = """return {
    tonumber(redis.call('GET', KEYS[1])), redis.call('PTTL', KEYS[1]), tonumber(redis.call('TIME')[1]),
    redis.call('EXISTS', KEYS[2])
}"""


def setnx_effect(lock: Lock, server: Server, name: str, ttl_ms: int) -> str | None:
    """The same for a lock of the older protocol, whose value is a Unix second and has everything."""
    seen = server.command("EVAL", SETNX_LOOK, 2, name, fence_key(name))
    try:
        lock.release()
    except LockError as error:
        # It may be answered late.
        if error.code != "unavailable":
            raise
    assert isinstance(seen, list)
    expiry_s, left_ms, now_s, fences = (number for number in seen if isinstance(number, int))
    late_ms = (now_s + math.ceil(ttl_ms / 1000) + 1 - expiry_s) * 1000
    # The key expires a second after its time, in which no client holds it.
    early_ms = (expiry_s + 1 - now_s) * 1000 - left_ms
    if fences or not 0 <= late_ms <= SLACK_MS or not 0 <= early_ms <= 1000:
        return f"expiry, ttl left, now, fences: {seen}"
    return None


@every_face
def test_durations(drivers: Drivers, face: str) -> None:
    client = drivers.start(face).client(["memory://durations"])
    differences: dict[str, str | None] = {}
    for i, row in enumerate(table("durations")["cases"]):
        if row["language"] != FACES[face].language:
            continue
        won, error = None, None
        try:
            lock = client.lock(f"duration {i}", **row["given"])
            won = lock.start_try_acquire().result()
            lock.release()
        except LockError as refused:
            error = refused
        wrong = option_difference(error, row)
        if won and "valid_ms" in row:
            wrong = wrong or validity(won, row["valid_ms"])
        differences[repr(row["given"])] = wrong
    report(differences)


@every_face
def test_validity(drivers: Drivers, face: str) -> None:
    """The validity of those leases that can be asked for; the options say which."""
    client = drivers.start(face).client(["memory://leases"])
    accepted, differences = 0, dict[str, str | None]()
    for lease in table("quorum")["leases"]:
        limits = {option: lease.get(option) for option in ("max_hold_ms", "margin_ms")}
        limit = {option: value for option, value in limits.items() if value is not None}
        try:
            lock = client.lock(lease["name"], ttl_ms=lease["ttl_ms"], **limit)
            # A single try fails if it is won too late for the shortest ttl.
            won = lock.acquire()
        except LockError as refused:
            differences[lease["name"]] = None if refused.code == "invalid_argument" else str(refused)
            continue
        accepted += 1
        differences[lease["name"]] = validity(won, lease["valid_until_us"] / 1000 - lease["start_ms"])
        with contextlib.suppress(LockError):
            lock.release()
    report(differences)
    assert accepted, "every lease was refused"


@every_face
def test_unknown_option(drivers: Drivers, face: str) -> None:
    driver = drivers.start(face)
    client = driver.client(["memory://options"])
    for make in (partial(driver.client, ["memory://options"]), partial(client.lock, "unknown option")):
        with pytest.raises(LockError, match="lease") as refused:
            make(lease=5)
        assert (refused.value.code, refused.value.option) == ("invalid_argument", "lease")


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
def test_names_as_text(drivers: Drivers, node: Cluster, face: str) -> None:
    client = drivers.start(face).client(node.urls)
    differences: dict[str, str | None] = {}
    for row in table("names")["texts"]:
        if FACES[face].language not in row.get("languages", [FACES[face].language]):
            continue
        error, absent = None, False
        try:
            lock = client.lock_by_text(row["text"])
            lock.acquire()
            absent = not node.has(bytes.fromhex(row["name_hex"]))
            lock.release()
        except LockError as refused:
            error = refused
        differences[repr(row["text"])] = difference(error, row) or ("its bytes are no key" if absent else None)
    report(differences)


@every_face
def test_names_of_one_lock(drivers: Drivers, face: str) -> None:
    client = drivers.start(face).client(["memory://shapes"])
    differences: dict[str, str | None] = {}
    for row in table("shapes")["names"]:
        error, shown = None, None
        try:
            lock = client.lock_all(row["names"], **row.get("options", {}))
            lock.acquire()
            shown = lock.shown_names()
            lock.release()
        except LockError as refused:
            error = refused
        expected = {"name": ", ".join(row.get("ok", [])), "names": row.get("ok", [])}
        wrong = None if shown in (None, expected) else f"{shown} instead of {expected}"
        differences[row["case"]] = shape_difference(error, row) or wrong
    report(differences)


@every_face
def test_permits(drivers: Drivers, face: str) -> None:
    """They are refused alike where a semaphore is made and where it is inspected."""
    client = drivers.start(face).client(["memory://shapes"])
    differences: dict[str, str | None] = {}
    for row in table("shapes")["permits"]:
        if FACES[face].language not in row.get("languages", [FACES[face].language]):
            continue
        name, permits, options = row.get("name", "k"), row["permits"], row.get("options", {})
        for case in (row["case"], f"{row['case']}, inspected"):
            error, wrong = None, None
            try:
                if case == row["case"]:
                    lock = client.semaphore(name, permits, **options)
                    lock.acquire()
                    wrong = None if lock.slot in range(permits) else f"the slot {lock.slot}"
                    lock.release()
                elif not options:
                    slots = [view["slot"] for view in client.inspect_semaphore(name, permits)]
                    wrong = None if slots == [*range(permits)] else f"the slots {slots}"
            except LockError as refused:
                error = refused
            is_asked = case == row["case"] or not options
            differences[case] = (shape_difference(error, row) or wrong) if is_asked else None
    report(differences)


@every_face
def test_keys_of_a_semaphore(drivers: Drivers, node: Cluster, face: str) -> None:
    """The first slot, its fence, and what wakes those who wait for any slot."""
    client = drivers.start(face).client(node.urls)
    for row in table("shapes")["keys"]:
        name = bytes.fromhex(row["name_hex"])
        key, fence, waiters, bell = (
            bytes.fromhex(row[f"{of}_hex"]) for of in ("key", "fence_key", "waiters_key", "bell_key")
        )
        holder = client.semaphore(name, 1)
        holder.acquire()
        assert node.has(key)
        assert node.has(fence)
        waiting = client.semaphore(name, 1).start_acquire()
        until(lambda: node.has(waiters), "the waiter is counted")  # noqa: B023
        holder.release()
        assert waiting.result()["slot"] == 0
        assert node.has(bell)


@every_face
def test_addresses(drivers: Drivers, face: str) -> None:
    driver = drivers.start(face)
    differences = {}
    for row in table("addresses")["cases"]:
        if "env" not in row:
            nodes = row["urls"] if "urls" in row else [row["url"]]
            differences[repr(nodes)] = address_difference(driver, nodes, row)
    report(differences)


@pytest.mark.parametrize("row", [row for row in table("addresses")["cases"] if "env" in row])
@every_face
def test_addresses_in_the_environment(drivers: Drivers, face: str, row: Json) -> None:
    driver = drivers.fresh(face, {"REDLOCK_URLS": row["env"]})
    assert address_difference(driver, None, row) is None


@every_face
def test_address_without_any(drivers: Drivers, face: str, name: str) -> None:
    """No server has to listen there: inspection reports the node that it could not ask."""
    view = drivers.start(face).client(None).inspect(name)
    assert [node["node"] for node in view["nodes"]] == ["redis://127.0.0.1:6379"]


@every_face
def test_comma_in_a_password_of_the_environment(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    node[0].command("ACL", "SETUSER", "comma", "on", ">a,b", "~*", "&*", "+@all")
    driver = drivers.fresh(face, {"REDLOCK_URLS": f"unix://{node[0].socket}?user=comma&pass=a%2Cb"})
    lock = driver.client(None).lock(name)
    assert lock.try_acquire()
    assert node.has(name)
    lock.release()


def address_difference(driver: Driver, nodes: list[str] | None, row: Json) -> str | None:
    """How a client differs from the row of its addresses, if it does."""
    try:
        client = driver.client(nodes)
    except LockError as refused:
        told = [secret for secret in row.get("never", []) if secret in refused.message]
        return difference(refused, row) or (f"tells {told}" if told else None)
    shown = row.get("ok", {}).get("shown", [])
    # No server outside is asked.
    if shown and all(node.startswith("memory:") for node in shown):
        seen = [node["node"] for node in client.inspect("addresses")["nodes"]]
        return None if seen == shown else f"{seen} instead of {shown}"
    return difference(None, row)
