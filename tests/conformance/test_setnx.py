"""The older SETNX protocol: sharing a key with code that still uses it, and with each other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, Client, Driver, Json, Lock, LockError, table
from conformance.history import SLACK_MS, History
from conformance.story import Asked, within
from conformance.test_tables import report
from support.clock import until
from support.proxy import HOLD, Proxy
from support.servers import Cluster, Server

ROUNDS = 15
TTL_MS = 1000
LONG_TTL_MS = 10_000
LIMIT_MS = 10_000
NODE_TIMEOUT_MS = 2000

CRASH_MS = TTL_MS + 3000
"""How long a crashed holder may block others: values are whole seconds."""

MEANINGLESS: list[dict[str, object]] = [
    {"label": "me"},
    {"fence_ttl_ms": 3_600_000},
    {"at_least_ms": 100},
    {"margin_ms": 100},
]
"""Options that other locks have."""


def ours(driver: Driver, url: str, **options: object) -> Client:
    """A client of the library."""
    return driver.client([url], protocol="setnx", **options)


def holder_of(face: str, drivers: Drivers, server: Server, name: str, ttl_ms: int = TTL_MS) -> Lock:
    """A lock in its own process."""
    return ours(drivers.start(face), server.url).lock(name, ttl_ms=ttl_ms)


class Older:
    """A lock as in code older than `SET NX PX`: SETNX, GET and GETSET with whole seconds."""

    def __init__(self, server: Server, name: str, ttl_ms: int = TTL_MS) -> None:
        self._server = server
        self._name = name
        self._ttl_s = ttl_ms // 1000
        self._end = 0

    def try_acquire(self) -> bool:
        """Tries once."""
        now = int(time.time())
        end = now + self._ttl_s + 1
        if not self._server.command("SETNX", self._name, end) and not self._takes_over(now, end):
            return False
        self._end = end
        return True

    def acquire(self) -> None:
        """Waits for the lock."""
        until(self.try_acquire, "older code has the lock")

    def release(self) -> None:
        """Deletes the key, unless it may belong to another owner by now."""
        if time.time() < self._end:
            self._server.command("DEL", self._name)

    def _takes_over(self, now: int, end: int) -> bool:
        seen = self._server.command("GET", self._name)
        if not isinstance(seen, bytes) or int(seen) >= now:
            return False
        before = self._server.command("GETSET", self._name, end)
        return not isinstance(before, bytes) or int(before) < now


def send_scripts(client: Client, name: str) -> None:
    """Connects the client, and has it send the script that acquires by its text and then by its hash."""
    for sent_by in ("text", "hash"):
        client.lock(f"{name}/{sent_by}").acquire()


def ends(server: Server, name: str) -> int:
    """The second in the key."""
    value = server.get(name)
    assert value is not None, "there is no key"
    assert value.isdigit(), f"{value!r} is no second"
    return int(value)


@every_face
def test_exclude_each_other(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """The holder denies the other one, which gets the lock next if it waits."""
    lock, older = holder_of(face, drivers, node[0], name, LONG_TTL_MS), Older(node[0], name, LONG_TTL_MS)
    for _ in range(2):
        lock.acquire()
        assert not older.try_acquire()
        assert lock.state()["held"]
        lock.release()
        assert older.try_acquire()
        assert not lock.try_acquire()
        asked = Asked(node)
        waiting = lock.start_acquire()
        asked.wait()
        assert waiting.pending
        older.release()
        assert waiting.result()["acquired"]
        lock.release()


@every_face
def test_share_a_key(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """All clients compete all the time. Work under the lock takes two steps, and no other client comes in between."""
    server, count = node[0], f"{name}/count"
    locks: list[Lock | Older] = [holder_of(face, drivers, server, name, LONG_TTL_MS) for _ in range(2)]
    locks += [Older(server, name, LONG_TTL_MS) for _ in range(2)]

    def work(lock: Lock | Older) -> None:
        for _ in range(ROUNDS):
            lock.acquire()
            server.command("SET", count, int(server.get(count) or 0) + 1)
            lock.release()

    with ThreadPoolExecutor(len(locks)) as pool:
        for each in [pool.submit(work, lock) for lock in locks]:
            each.result()
    assert server.get(count) == str(ROUNDS * len(locks)).encode()


@every_face
def test_takeover_after_a_crash(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """Ours after theirs, theirs after ours and ours after ours: after the end of the time, and not much later."""
    server = node[0]
    # Older code knows only this server of a cluster, so a tag keeps all keys there.
    key, by_theirs, after_theirs = (f"{{{name}}}/{each}" for each in ("ours", "by theirs", "after theirs"))
    end = {}
    crashing = {each: holder_of(face, drivers, server, each) for each in (key, by_theirs)}
    driver = drivers.start(face)
    with within(CRASH_MS):
        for each, lock in crashing.items():
            lock.acquire()
            end[each] = ends(server, each)
            lock.driver.kill()
        assert Older(server, after_theirs).try_acquire()
        end[after_theirs] = ends(server, after_theirs)
        locks = [ours(driver, server.url).lock(each, ttl_ms=LONG_TTL_MS) for each in (key, after_theirs)]
        calls = [lock.start_acquire(timeout_ms=LIMIT_MS) for lock in locks]
        Older(server, by_theirs, LONG_TTL_MS).acquire()
        assert all(call.result()["acquired"] for call in calls)
    for each, last in end.items():
        # A value that was written after the second `end` shows it. Old clients look at their clock before they ask.
        least = last + LONG_TTL_MS // 1000 + (1 if each == by_theirs else 2)
        assert ends(server, each) >= least, f"{each} was taken over before its time was over"


@every_face
def test_late_release_leaves_the_next_holder_alone(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """One is sent too late. The other was sent in time, but only the server knows whose lock it is when it arrives."""
    server = node[0]
    late, following = holder_of(face, drivers, server, name), holder_of(face, drivers, server, name, LONG_TTL_MS)
    late.acquire()
    following.acquire(timeout_ms=LIMIT_MS)
    end = ends(server, name)
    with pytest.raises(LockError) as lost:
        late.release()
    assert lost.value.code == "lost"
    assert ends(server, name) == end
    following.release()
    with Proxy(server) as proxy:
        late = ours(drivers.start(face), proxy.url).lock(name, ttl_ms=2 * TTL_MS)
        late.acquire()
        proxy.requests(HOLD)
        with pytest.raises(LockError) as unanswered:
            late.release()
        assert unanswered.value.code == "unavailable"
        older = Older(server, name, LONG_TTL_MS)
        older.acquire()
        end, asked = ends(server, name), Asked(node)
        proxy.let_go()
        asked.wait()
        assert ends(server, name) == end


@every_face
def test_release_after_a_losers_getset(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """Older code was too late to take it over, but has written its own value and removed the server's expiry."""
    server = node[0]
    lock = holder_of(face, drivers, server, name, LONG_TTL_MS)
    lock.acquire()
    server.command("GETSET", name, ends(server, name) + 1)
    assert lock.state()["held"]
    lock.release()
    assert not node.has(name)


@every_face
def test_release_is_not_repeated(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """It was executed but not answered: a second release would delete the lock of a client that has taken it since."""
    server = node[0]
    with Proxy(server) as proxy:
        released = ours(drivers.start(face), proxy.url).lock(name, ttl_ms=LONG_TTL_MS, node_timeout_ms=500)
        released.acquire()
        proxy.replies(HOLD)
        with pytest.raises(LockError) as unanswered:
            released.release()
        assert unanswered.value.code == "unavailable"
        until(lambda: not server.has(name), "the release has arrived")
        # Older code does not delete the key by itself when its time has ended.
        assert Older(server, name).try_acquire()
        end = ends(server, name)
        proxy.reset()
        proxy.let_go()

        def is_over() -> bool:
            is_over = server.now_us() >= end * 1_000_000
            assert is_over or server.get(name) == str(end).encode(), "the next holder's lock was deleted"
            return is_over

        until(is_over, "the time of the next holder is over")


@every_face
def test_late_grant_is_given_back(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """No caller waits any more when its answer comes, and only the answer shows until when it was ours."""
    with Proxy(node[0]) as proxy:
        client = ours(drivers.start(face), proxy.url, ttl_ms=6 * LONG_TTL_MS)
        send_scripts(client, name)
        proxy.replies(HOLD)
        with pytest.raises(LockError) as unanswered:
            client.lock(name).acquire(timeout_ms=0)
        assert unanswered.value.code == "unavailable"
        until(lambda: node.has(name), "it was granted")
        proxy.let_go()
        until(lambda: not node.has(name), "it is given back")


@every_face
def test_expiry_is_told(drivers: Drivers, history: History, node: Cluster, face: str, name: str) -> None:
    """It is not renewed. The holder relies on its ttl, and never on the seconds by which the key outlives it."""
    history.rule("--told-late-ms", str(SLACK_MS))
    lock = ours(drivers.start(face), node[0].url).lock(name, ttl_ms=TTL_MS)
    assert 0 < lock.acquire()["remaining_ms"] < TTL_MS
    told = lock.start_wait_lost(limit_ms=LIMIT_MS).result()
    assert (told["lost"]["code"], told["lost"]["reason"]) == ("lost", "expired")
    with pytest.raises(LockError) as lost:
        lock.check()
    assert (lost.value.code, lost.value.reason) == ("lost", "expired")
    assert not lock.state()["held"]


@every_face
def test_one_of_two_takes_over(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """What one client has asked before the other took over must not count after it."""
    server = node[0]
    server.command("SET", name, 1_500_000_000)
    with Proxy(server) as proxy:
        client = ours(drivers.start(face), proxy.url, ttl_ms=LONG_TTL_MS, node_timeout_ms=NODE_TIMEOUT_MS)
        send_scripts(client, name)
        slow, quick = client.lock(name), holder_of(face, drivers, server, name, LONG_TTL_MS)
        quick.driver.client([server.url]).inspect(name)
        proxy.replies(HOLD)
        asked = Asked(node)
        call = slow.start_try_acquire()
        asked.wait()
        won = quick.try_acquire()
        proxy.let_go()
        assert [won, call.result()["acquired"]].count(True) == 1, "it is not one who has taken it over"


@every_face
def test_what_it_cannot_do(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """There is no fence, and nothing identifies one's own key, so these calls are refused and the lock stays usable."""
    lock = ours(drivers.start(face), node[0].url).lock(name)
    assert lock.acquire()["fence"] is None
    with pytest.raises(LockError) as refused:
        lock.extend()
    assert refused.value.code == "invalid_argument"
    # In Rust the types refuse it, and the driver can only report that it does not exist.
    assert "extend is not available" in refused.value.message or not FACES[face].lock_objects
    assert lock.state()["held"]
    lock.release()


@every_face
def test_options_without_a_meaning(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """They are refused if the lock itself gets them; those of its client are for its other locks."""
    driver = drivers.start(face)
    for options in MEANINGLESS:
        with pytest.raises(LockError) as refused:
            driver.client(node.urls, protocol="setnx").lock(name, **options).acquire(timeout_ms=0)
        assert refused.value.code == "invalid_argument"
        # In Rust the types refuse it, and the driver can only report that it does not exist.
        assert "means nothing" in refused.value.message or not FACES[face].lock_objects
        assert not node.has(name)
        lock = driver.client(node.urls, protocol="setnx", **options).lock(name)
        lock.acquire(timeout_ms=0)
        lock.release()


@every_face
def test_several_nodes(drivers: Drivers, five_nodes: Cluster, face: str, name: str) -> None:
    driver = drivers.start(face)
    with pytest.raises(LockError, match="setnx is for one node") as refused:
        driver.client(five_nodes.urls, protocol="setnx").lock(name).acquire(timeout_ms=0)
    assert refused.value.code == "invalid_argument"
    assert not five_nodes.has(name)


@every_face
def test_values(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """Only a second that has passed can be taken over; every other value is left as it is."""
    client = ours(drivers.start(face), node[0].url)
    differences = {}
    for row in table("setnx")["values"]:
        differences[row["name"]] = value_difference(client, node[0], f"{name}/{row['name']}", row)
    report(differences)


def value_difference(client: Client, server: Server, key: str, row: Json) -> str | None:
    """How an attempt differs from this row of values, if it does."""
    command, *words = row["write"]
    server.command(command, key, *words)
    before = server.command("DUMP", key)
    try:
        won = client.lock(key).try_acquire()
    except LockError as error:
        return f"refused: {error}"
    if won is row["held"]:
        return "taken" if won else "denied"
    return "changed" if row["held"] and server.command("DUMP", key) != before else None
