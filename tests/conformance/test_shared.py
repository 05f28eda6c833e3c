"""Readers share a lock, and whoever wants it alone is alone: in every pair of languages, and on every face."""

from __future__ import annotations

import contextlib
from functools import partial

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, Lock, LockError
from conformance.history import SLACK_MS, History
from conformance.story import Asked, connect_to_all, fence_key, waiters_key, within
from conformance.test_loss import ended, validity_ms
from conformance.test_pairs import every_pair
from support.clock import now_ns, until
from support.proxy import HOLD, Network
from support.servers import LIMIT_S, Cluster, Server

LONG_TTL_MS = 60_000
"""A ttl longer than any test case, so that a key that is gone was released."""
SHORT_TTL_MS = 500
TTL_MS = 1000
RENEWED_TTL_MS = 3000
"""A ttl of readers that stay held on a slow machine."""
PATIENT_MS = 5 * SLACK_MS
"""A node_timeout that nodes keep however slow the machine is."""
HOUR_MS = 3_600_000
HOUR_US = 1000 * HOUR_MS
BACKSTOP_MS = 2000
"""When a waiter looks again though it was not notified."""
CANCELLED = 20
ANOTHERS = b"another library's token"


def readers_on(server: Server, name: str) -> int:
    """How many share the lock on a node. One member more stands for all of them."""
    members = server.command("ZCARD", name)
    assert isinstance(members, int)
    return max(0, members - 1)


def all_have(nodes: Cluster, name: str, readers: int) -> bool:
    """Whether so many share the lock on every node."""
    return all(readers_on(server, name) == readers for server in nodes)


def join(nodes: Cluster, name: str, *readers: Lock) -> None:
    """Has these readers, and no others, share the lock on every node."""
    for number, reader in enumerate(readers, 1):
        until(partial(_joins, nodes, name, reader, number), f"every node has {number} of them", 3 * LIMIT_S)


def _joins(nodes: Cluster, name: str, reader: Lock, number: int) -> bool:
    """A node that was slow is not asked any more when the others have decided."""
    reader.acquire()
    with contextlib.suppress(AssertionError):
        until(lambda: all_have(nodes, name, number), "every node has it", SLACK_MS / 1000)
        return True
    reader.release()
    return False


def is_counted(nodes: Cluster, name: str) -> bool:
    """Whether a quorum of the nodes knows that somebody waits."""
    return sum(server.has(waiters_key(name)) for server in nodes) > len(nodes) // 2


@every_face
def test_inspection_shows_readers(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    connect_to_all(client, nodes, name)
    readers = [client.lock(name, shared=True, label=f"web-{number}") for number in range(3)]
    for reader in readers:
        reader.acquire()
    view = client.inspect(name)
    assert (view["state"], view["label"]) == ("shared", None)
    assert client.lock(name).is_locked()
    assert not client.lock(name, shared=True).is_locked()
    for reader in readers:
        reader.release()
    assert client.inspect(name)["state"] == "free"


@every_face
def test_what_does_not_go_with_it_is_refused(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(nodes.urls)
    with pytest.raises(LockError) as refused:
        client.lock(name, shared=True, at_least_ms=100).acquire()
    assert refused.value.code == "invalid_argument"
    assert refused.value.option in {"at_least", "atLeast"}


@every_face
def test_readers_overlap_and_a_writer_is_alone(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Readers and a writer of two processes of the language, and a writer of another one."""
    client, second, others = (
        drivers.start(each).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
        for each in (face, face, "rust")
    )
    readers = [each.lock(name, shared=True) for each in (client, second, client)]
    writers = [each.lock(name) for each in (others, client)]
    for reader in readers:
        assert reader.try_acquire(), "readers exclude each other"
    for reader in readers:
        reader.check()
        assert reader.extend(ttl_ms=2 * LONG_TTL_MS)["remaining_ms"] > LONG_TTL_MS
    for writer in writers:
        assert not writer.try_acquire(), "a writer beside readers"
    for reader in readers:
        reader.release()
    for writer in writers:
        until(writer.try_acquire, "a writer gets it behind the last reader")
        for reader in readers:
            assert not reader.try_acquire(), "a reader beside a writer"
        writer.check()
        writer.release()
    until(readers[0].try_acquire, "a reader gets it behind the writer")
    readers[0].release()
    until(lambda: not nodes.has(name), "nothing is left")


@every_face
def test_plain_peers_exclude_readers_and_are_excluded(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Programs that know nothing of readers: SET NX PX, and DEL."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    connect_to_all(client, nodes, name)
    reader = client.lock(name, shared=True)
    join(nodes, name, reader)
    for server in nodes:
        assert server.command("SET", name, ANOTHERS, "NX", "PX", LONG_TTL_MS) is None
    reader.release()
    until(lambda: not nodes.has(name), "nothing is left")
    for server in nodes:
        server.command("SET", name, ANOTHERS, "NX", "PX", LONG_TTL_MS)
    assert not reader.try_acquire()
    asked = Asked(nodes)
    waiting = reader.start_acquire()
    asked.wait()
    assert waiting.pending
    assert all(server.get(name) == ANOTHERS for server in nodes)
    for server in nodes:
        server.command("DEL", name)
    assert waiting.result()["acquired"]
    reader.release()


@every_face
def test_somebodys_sorted_set_is_in_the_way(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(nodes.urls)
    for server in nodes:
        server.command("ZADD", name, 1, "one", 2, "two")
    for lock in (client.lock(name, shared=True), client.lock(name)):
        assert not lock.try_acquire()
        assert lock.is_locked()
    assert client.inspect(name)["state"] == "foreign"
    for server in nodes:
        assert server.command("ZRANGE", name, 0, -1, "WITHSCORES") == [b"one", b"1", b"two", b"2"]
        assert server.left_ms(name) == -1


@every_face
def test_a_short_reader_does_not_end_a_long_one(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(nodes.urls, auto_renew=False)
    connect_to_all(client, nodes, name)
    lasting = client.lock(name, shared=True, ttl_ms=LONG_TTL_MS)
    short = client.lock(name, shared=True, ttl_ms=SHORT_TTL_MS, node_timeout_ms=SHORT_TTL_MS // 2)
    join(nodes, name, lasting)
    short.acquire()
    for server in nodes:
        assert server.left_ms(name) > LONG_TTL_MS // 2, "the key expires with the short one"
    until(lambda: not short.state()["held"], "the short one has expired")
    assert ended(short) == "expired"
    lasting.extend()
    lasting.check()
    assert not client.lock(name).try_acquire(), "a writer beside a reader"
    lasting.release()
    until(lambda: not nodes.has(name), "nothing is left")


@every_face
def test_a_dead_reader_ends_though_others_are_renewed(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    living, dead = (
        drivers.start(face).client(nodes.urls).lock(name, shared=True, ttl_ms=ttl_ms, node_timeout_ms=TTL_MS // 2)
        for ttl_ms in (RENEWED_TTL_MS, 2 * TTL_MS)
    )
    # The other one is renewed before the ttl of the dead one is over.
    for reader in (living, dead):
        reader.acquire()
    killed_ns = dead.driver.kill()
    until(lambda: now_ns() > killed_ns + 2.5 * TTL_MS * 1e6, "the ttl of the dead one is over")
    living.check()
    living.release()
    writer = drivers.start("rust").client(nodes.urls, node_timeout_ms=PATIENT_MS).lock(name)
    with within(0):
        assert writer.try_acquire(), "the dead one is in the way"


@every_face
@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS], ids=["behind", "ahead"])
def test_readers_keep_their_time_on_a_server_with_another_clock(
    drivers: Drivers, nodes: Cluster, face: str, by_ms: int, name: str
) -> None:
    """A key that moves there keeps the ends of its readers as they are, and the time that it has left."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, auto_renew=False)
    connect_to_all(client, nodes, name)
    first, second = (client.lock(name, shared=True) for _ in range(2))
    join(nodes, name, first, second)
    for server in nodes:
        members = server.command("ZRANGE", name, 0, -2)
        assert isinstance(members, list)
        for member in members:
            assert isinstance(member, bytes)
            server.command("ZINCRBY", name, by_ms, member)
    second.extend()
    third = client.lock(name, shared=True)
    third.acquire()
    first.release()
    for reader in (second, third):
        reader.check()
        reader.extend()
    assert all(LONG_TTL_MS // 2 < server.left_ms(name) <= LONG_TTL_MS for server in nodes)
    second.release()
    third.release()
    until(lambda: not nodes.has(name), "nothing is left")


@every_face
def test_fences_of_readers_and_writers_rise(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """The nodes are ahead of their clocks, so that fences come from those before them."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    connect_to_all(client, nodes, name)
    writer, readers = client.lock(name), [client.lock(name, shared=True) for _ in range(3)]
    fences = [writer.acquire()["fence"] + HOUR_US]
    writer.release()
    until(lambda: not nodes.has(name), "nothing is left")
    for server in nodes:
        server.command("SET", fence_key(name), fences[0])
    for _ in range(2):
        fences += [reader.acquire()["fence"] for reader in readers]
        for reader in readers:
            reader.release()
        until(lambda: not nodes.has(name), "nothing is left")
        fences.append(writer.acquire()["fence"])
        writer.release()
        until(lambda: not nodes.has(name), "nothing is left")
    assert fences == sorted(set(fences)), "a fence is not larger than the one before"


@every_pair
def test_a_waiting_writer_is_not_passed_by_readers(
    drivers: Drivers, nodes: Cluster, holder: str, waiter: str, name: str
) -> None:
    """Readers that come again and again would otherwise keep it waiting for ever."""
    reading, writing = (
        drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
        for face in (holder, waiter)
    )
    reader, late, writer = reading.lock(name, shared=True), reading.lock(name, shared=True), writing.lock(name)
    reader.acquire()
    waiting = writer.start_acquire()
    until(lambda: is_counted(nodes, name), "the nodes know that it waits")
    assert not late.try_acquire(), "a reader passes by"
    reader.check()
    assert waiting.pending
    with within(0):
        reader.release()
        won = waiting.result()
    assert won["fence"] > (reader.fence or 0)
    writer.release()
    until(late.try_acquire, "a reader gets it behind the writer")
    late.release()


@every_face
def test_a_writer_that_gives_up_lets_readers_in(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    reading = drivers.start("rust").client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    reader, late = (reading.lock(name, shared=True) for _ in range(2))
    reader.acquire()
    writer = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS).lock(name)
    # It is counted before it gives up, even on a slow machine.
    timeout_ms = TTL_MS + SLACK_MS
    giving_up = writer.start_acquire(timeout_ms=timeout_ms)
    until(lambda: is_counted(nodes, name), "the nodes know that it waits")
    joining = late.start_acquire(timeout_ms=timeout_ms + BACKSTOP_MS + SLACK_MS)
    assert writer.denied(giving_up)
    assert joining.result()["acquired"]
    for each in (reader, late):
        each.release()
    until(lambda: not nodes.has(name), "nothing is left")


@every_face
def test_the_expiry_of_a_reader_is_told(
    drivers: Drivers, history: History, node: Cluster, face: str, name: str
) -> None:
    history.rule("--told-late-ms", str(SLACK_MS))
    client = drivers.start(face).client(node.urls, auto_renew=False)
    lasting = client.lock(name, shared=True, ttl_ms=LONG_TTL_MS)
    reader = client.lock(name, shared=True, ttl_ms=TTL_MS)
    lasting.acquire()
    won = reader.acquire()
    told = reader.start_wait_lost(limit_ms=10_000).result()
    assert (told["lost"]["code"], told["lost"]["reason"]) == ("lost", "expired")
    assert told["told_ns"] > won["invoke_ns"] + validity_ms(TTL_MS) * 1e6
    assert ended(reader) == "expired"
    lasting.check()
    assert reader.acquire()["fence"] > won["fence"]


@every_face
def test_a_reader_whose_key_is_deleted_is_lost(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, auto_renew=False)
    connect_to_all(client, nodes, name)
    reader = client.lock(name, shared=True)
    join(nodes, name, reader)
    for server in nodes:
        server.command("DEL", name)
    with pytest.raises(LockError) as lost:
        reader.extend()
    assert (lost.value.code, lost.value.reason, lost.value.name) == ("lost", "deleted", name)
    assert ended(reader) == "deleted"
    assert not nodes.has(name), "the extension has created the key"


@every_face
def test_a_reader_whose_key_another_has_is_lost(
    drivers: Drivers, history: History, nodes: Cluster, face: str, name: str
) -> None:
    """The key of the other owner stays."""
    history.rule("--no-exclusion")
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, auto_renew=False)
    connect_to_all(client, nodes, name)
    reader = client.lock(name, shared=True)
    join(nodes, name, reader)
    for server in nodes:
        server.command("SET", name, ANOTHERS, "PX", LONG_TTL_MS)
    with pytest.raises(LockError) as lost:
        reader.extend()
    assert (lost.value.code, lost.value.reason) == ("lost", "taken")
    assert ended(reader) == "taken"
    assert all(server.get(name) == ANOTHERS for server in nodes)


@every_face
def test_an_extension_does_not_count_a_later_sharing(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """An acquire that arrives late begins to share anew, and there may have been a writer before it."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS, auto_renew=False)
    connect_to_all(client, nodes, name)
    reader = client.lock(name, shared=True)
    join(nodes, name, reader)
    fence = reader.fence or 0
    for server in nodes:
        server.command("ZREMRANGEBYRANK", name, -1, -1)
        server.command("ZADD", name, "inf", f"redlock:shared:{fence + 2}")
        assert readers_on(server, name) == 1
    with pytest.raises(LockError) as lost:
        reader.extend()
    assert lost.value.code == "lost", "it has extended what was granted after a writer"


@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.cancels])
def test_readers_that_are_cancelled_at_any_moment_leave_nothing(
    drivers: Drivers, nodes: Cluster, face: str, name: str
) -> None:
    """Others share the lock meanwhile, so that its key stays."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    connect_to_all(client, nodes, name)
    keeper = client.lock(name, shared=True)
    join(nodes, name, keeper)
    for _ in range(CANCELLED):
        reader = client.lock(name, shared=True)
        acquiring = reader.start_acquire()
        reader.cancel(acquiring)
        if not acquiring.result().get("cancelled"):
            reader.release()
    until(lambda: all_have(nodes, name, 1), "a cancelled acquire leaves nothing")
    keeper.release()
    until(lambda: not nodes.has(name), "nothing is left")


@pytest.mark.parametrize("face", [face.name for face in FACES.values() if face.cancels])
def test_a_writer_that_is_cancelled_before_it_knows_that_it_is_counted_lets_readers_in(
    drivers: Drivers, nodes: Cluster, face: str, name: str
) -> None:
    """The nodes have counted it, and their answers are on the way."""
    reading = drivers.start("rust").client(nodes.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
    another = f"{name} 2"
    reader, late, other = reading.lock(name, shared=True), reading.lock(name, shared=True), reading.lock(another)
    for each in (reader, other):
        each.acquire()
    with Network(nodes) as network:
        writing = drivers.start(face).client(network.urls, ttl_ms=LONG_TTL_MS, node_timeout_ms=PATIENT_MS)
        # A first waiter has the connections made over which nodes count.
        before = len(network.links)
        first = writing.lock(another)
        waiting = first.start_acquire()
        until(lambda: all(server.has(waiters_key(another)) for server in nodes), "the nodes know that it waits")
        for link in network.links[before:]:
            link.replies(HOLD)
        writer = writing.lock(name)
        leaving = writer.start_acquire()
        until(lambda: is_counted(nodes, name), "the nodes know that the writer waits")
        joining = late.start_acquire()
        writer.cancel(leaving)
        assert leaving.result()["cancelled"]
        network.let_go()
        with within(BACKSTOP_MS):
            assert joining.result()["acquired"]
        first.cancel(waiting)
        for each in (reader, late, other):
            each.release()
    until(lambda: not nodes.has(name), "nothing is left")
