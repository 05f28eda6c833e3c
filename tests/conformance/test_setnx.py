"""The older SETNX protocol: sharing a key with code that still uses it, and with each other."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from conformance.conftest import Drivers
from conformance.driver import FACES, OLDER, Client, Driver, Json, Lock, LockError, table
from conformance.history import SLACK_MS, History
from conformance.story import Asked, within
from conformance.test_tables import report
from support.clock import until
from support.proxy import HOLD, Faults, Proxy
from support.servers import Cluster, Server

every_face = pytest.mark.parametrize("face", FACES)

ROUNDS = 15
CANCELLED = 20
TTL_MS = 1000
LONG_TTL_MS = 10_000
LIMIT_MS = 10_000
NODE_TIMEOUT_MS = 2000

CRASH_MS = TTL_MS + 3000
"""How long a crashed holder may block others: values are whole seconds."""

CUTS = [*range(0, 200, 10), *range(200, 3000, 50)]
"""The numbers of bytes after which a connection ends: in the handshake, in the scripts, and behind them."""

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


def holder_of(kind: str, drivers: Drivers, server: Server, name: str, ttl_ms: int = TTL_MS) -> Lock:
    """A lock in its own process: of older code, or of the library on a face."""
    driver = drivers.start(kind)
    if kind == OLDER.name:
        # Its commands are not among the fewest rights, nor among the fewest commands.
        return driver.client([server.direct.address]).lock(name, ttl_ms=ttl_ms)
    return ours(driver, server.url).lock(name, ttl_ms=ttl_ms)


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


def assert_ends(server: Server, name: str) -> None:
    """If the key of a lock of `LONG_TTL_MS` exists, its value ends, and then the server deletes it."""
    # Both are read at once, so that no time passes between the answers.
    answer = server.command("EVAL", "return {redis.call('TIME')[1], redis.call('PTTL', KEYS[1])}", 1, name)
    assert isinstance(answer, list)
    now, left_ms = (int(part) for part in answer if isinstance(part, bytes | int))
    if left_ms == -2:
        return
    assert left_ms != -1, "the server keeps it for ever"
    assert now <= ends(server, name) <= now + LONG_TTL_MS // 1000 + 1
    deleted = now + left_ms / 1000
    assert ends(server, name) <= deleted <= ends(server, name) + 1, "the server does not delete it at its end"


@every_face
def test_exclude_each_other(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """The holder denies the other one, which gets the lock next if it waits."""
    has, wants = (holder_of(kind, drivers, node[0], name, LONG_TTL_MS) for kind in (face, OLDER.name))
    has.acquire()
    for _ in range(4):
        assert not wants.try_acquire()
        asked = Asked(node)
        waiting = wants.start_acquire()
        asked.wait()
        assert waiting.pending
        assert has.state()["held"]
        has.release()
        assert waiting.result()["acquired"]
        has, wants = wants, has


@every_face
def test_share_a_key(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """All clients compete all the time. Work under the lock takes two steps, and no other client comes in between."""
    server, count = node[0], f"{name}/count"
    locks = [holder_of(kind, drivers, server, name, LONG_TTL_MS) for kind in (face, OLDER.name, face, OLDER.name)]

    def work(lock: Lock) -> None:
        for _ in range(ROUNDS):
            lock.acquire(timeout_ms=LIMIT_MS)
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
    named = {f"{{{name}}}/{'/'.join(pair)}": pair for pair in ((OLDER.name, face), (face, OLDER.name), (face, face))}
    pairs = {key: (holder_of(holder, drivers, server, key), waiter) for key, (holder, waiter) in named.items()}
    waiters = {key: holder_of(waiter, drivers, server, key, LONG_TTL_MS) for key, (_, waiter) in pairs.items()}
    with within(CRASH_MS):
        end = {}
        for key, (holder, _) in pairs.items():
            holder.acquire()
            end[key] = ends(server, key)
            holder.driver.kill()
        calls = {key: waiter.start_acquire(timeout_ms=LIMIT_MS) for key, waiter in waiters.items()}
        for key, call in calls.items():
            assert call.result()["acquired"], key
    for key, (_, waiter) in pairs.items():
        # A value that was written after the second `end` shows it. Old clients look at their clock before they ask.
        least = end[key] + LONG_TTL_MS // 1000 + (1 if waiter == OLDER.name else 2)
        assert ends(server, key) >= least, f"{key} was taken over before its time was over"


@pytest.mark.parametrize("after", [OLDER.name, "ours"])
@every_face
def test_late_release_leaves_the_next_holder_alone(
    drivers: Drivers, node: Cluster, face: str, after: str, name: str
) -> None:
    late = holder_of(face, drivers, node[0], name)
    late.acquire()
    following = holder_of(face if after == "ours" else after, drivers, node[0], name, LONG_TTL_MS)
    following.acquire(timeout_ms=LIMIT_MS)
    end = ends(node[0], name)
    with pytest.raises(LockError) as lost:
        late.release()
    assert lost.value.code == "lost"
    assert ends(node[0], name) == end
    assert following.state()["held"]


@pytest.mark.parametrize("after", [OLDER.name, "ours"])
@every_face
def test_release_that_arrives_late_leaves_the_next_holder_alone(
    drivers: Drivers, node: Cluster, face: str, after: str, name: str
) -> None:
    """The release was sent in time, but only the server knows whose lock it is when the release arrives."""
    server = node[0]
    with Proxy(server) as proxy:
        late = ours(drivers.start(face), proxy.url).lock(name, ttl_ms=2 * TTL_MS)
        late.acquire()
        proxy.requests(HOLD)
        with pytest.raises(LockError) as unanswered:
            late.release()
        assert unanswered.value.code == "unavailable"
        following = holder_of(face if after == "ours" else after, drivers, server, name, LONG_TTL_MS)
        following.acquire(timeout_ms=LIMIT_MS)
        end, asked = ends(server, name), Asked(node)
        proxy.let_go()
        asked.wait()
        assert ends(server, name) == end
        assert following.state()["held"]


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


def test_loser_with_a_shorter_ttl_ends_a_lock_early(
    drivers: Drivers, history: History, node: Cluster, name: str
) -> None:
    """The limit of sharing a key: older code overwrites a lock that it does not get, and all believe its value."""
    history.rule("--no-exclusion")
    server = node[0]
    holder = holder_of("python", drivers, server, name, LONG_TTL_MS)
    holder.acquire()
    server.command("GETSET", name, server.now_us() // 1_000_000 + 1)
    holder_of(OLDER.name, drivers, server, name, LONG_TTL_MS).acquire(timeout_ms=LIMIT_MS)
    assert holder.state()["held"]


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
        # Older code does not delete the key by itself when its time has ended.
        holder_of(OLDER.name, drivers, server, name).acquire(timeout_ms=0)
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


@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.cancels])
def test_cancelled_at_any_moment_leaves_nothing(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    driver = drivers.start(face)
    client = ours(driver, node[0].url, ttl_ms=6 * LONG_TTL_MS)
    for i in range(CANCELLED):
        lock = client.lock(f"{name}/{i}")
        acquiring = lock.start_acquire()
        lock.cancel(acquiring)
        if not acquiring.result().get("cancelled"):
            lock.release()
    until(lambda: not any(node.has(f"{name}/{i}") for i in range(CANCELLED)), "no cancelled acquire has left its key")


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


@pytest.mark.parametrize("moment", ["before it arrives", "before its answer"])
@every_face
def test_crash_in_an_acquire_leaves_no_lock_for_ever(
    drivers: Drivers, node: Cluster, face: str, moment: str, name: str
) -> None:
    with Proxy(node[0]) as proxy:
        driver = drivers.start(face)
        client = ours(driver, proxy.url, ttl_ms=LONG_TTL_MS)
        send_scripts(client, name)
        if moment == "before it arrives":
            proxy.requests(HOLD)
            client.lock(name).start_acquire()
            until(lambda: any(link.requests_waiting for link in proxy.links), "it is on its way")
        else:
            proxy.replies(HOLD)
            client.lock(name).start_acquire()
            until(lambda: node.has(name), "it is executed")
        driver.kill()
        proxy.let_go()
        until(lambda: node.has(name), "it is granted")
    assert_ends(node[0], name)


@every_face
def test_crash_anywhere_leaves_no_lock_for_ever(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """A client writes some bytes, on any connection, and nothing after that."""
    driver, server = drivers.start(face), node[0]
    granted = 0
    for cut in CUTS:
        key = f"{name}/{cut}"
        with Proxy(server) as proxy:
            proxy.requests(Faults(cut_after=cut))
            lock = ours(driver, proxy.url, ttl_ms=LONG_TTL_MS).lock(key)
            with contextlib.suppress(LockError):
                lock.start_acquire(timeout_ms=0).result()
        assert_ends(server, key)
        granted += node.has(key)
    assert 0 < granted < len(CUTS), "none of them has cut it off before the grant, or none behind it"
    driver.kill()


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


@pytest.mark.parametrize("options", MEANINGLESS, ids=str)
@every_face
def test_options_without_a_meaning(
    drivers: Drivers, node: Cluster, face: str, name: str, options: dict[str, object]
) -> None:
    """They are refused if the lock itself gets them; those of its client are for its other locks."""
    driver = drivers.start(face)
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
