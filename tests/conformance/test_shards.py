"""The clusters of the tests do what test cases rely on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.resp import ReplyError
from support.servers import Server
from support.shards import Shards, slot


@pytest.fixture
def shards(program: Path) -> Iterator[Shards]:
    """Three primaries with a replica each."""
    begun = time.monotonic()
    with Shards(3, replicas=1, program=program) as shards:
        print(f"started in {time.monotonic() - begun:.3f} s")
        yield shards


def test_a_slot_is_that_of_the_hash_tag() -> None:
    # Of the specification: 0x31C3 is the checksum of these digits.
    assert slot("123456789") == 0x31C3
    assert (slot("foo"), slot("bar"), slot("")) == (12_182, 5_061, 0)
    assert slot("redlock:fence:{foo}") == slot("foo")
    assert slot("foo{bar}{zap}") == slot("bar")
    assert slot("foo{{bar}}zap") == slot("{bar")
    assert slot("foo{}{bar}") != slot("bar")


def test_the_servers_know_the_same_slots(program: Path) -> None:
    with Server(tcp=True, cluster=True, program=program) as server:
        for key in ("123456789", "foo", "", "{a}b", "a{b}c", "a{}b", "a{}{b}", "a{{b}}c", "}a{", "a{b", "{}", "é{ü}"):
            assert server.command("CLUSTER", "KEYSLOT", key) == slot(key), key


def test_more_options_win(program: Path) -> None:
    options = ("--cluster-require-full-coverage", "yes", "--cluster-node-timeout", "700")
    with Shards(2, replicas=2, program=program, options=options) as shards:
        assert [len(shards.replicas(shard)) for shard in range(2)] == [2, 2]
        assert [shards.primary(shard) for shard in range(2)] == shards.servers[:2]
        told = shards.servers[5].command("CONFIG", "GET", "cluster-require-full-coverage")
        assert told == [b"cluster-require-full-coverage", b"yes"]
        assert shards.servers[5].command("CONFIG", "GET", "cluster-node-timeout") == [b"cluster-node-timeout", b"700"]


def test_a_slot_moves_with_its_keys(shards: Shards) -> None:
    source, target = shards.owner("foo"), shards.other("foo")
    assert source is shards.servers[2] is shards.primary(shards.shard("foo"))
    for number in range(250):
        source.command("SET", f"{{foo}}{number}", "x")
    shards.open("foo", source, target)
    with pytest.raises(ReplyError, match=f"ASK 12182 127.0.0.1:{target.port}"):
        source.command("GET", "foo")
    shards.move_keys(["{foo}1", "{foo}2"], source, target)
    assert source.get("{foo}3")
    with pytest.raises(ReplyError, match="ASK"):
        source.get("{foo}1")
    shards.move_all("foo", source, target)
    shards.close("foo", source, target)
    assert shards.owner("foo") is target
    assert target.command("DBSIZE") == 250
    assert all(shards.owner_by(server, "foo") is target for server in shards)
    # Each server has to know the epoch of a move before the slot comes back.
    for _ in range(10):
        shards.migrate("foo", target, source)
        shards.migrate("foo", source, target)
    assert target.command("DBSIZE") == 250
    shards.settled()


def test_a_replica_takes_over_as_often_as_it_is_asked(shards: Shards) -> None:
    for _ in range(3):
        former = shards.owner("foo")
        primary = shards.fail_over(2)
        assert primary is shards.owner("foo") is shards.primary(2) is not former
        assert shards.replicas(2) == [former]
        assert all(shards.owner_by(server, "foo") is primary for server in shards)
        assert shards.other("foo") is not former
        shards.settled()


def test_a_replica_takes_over_from_a_dead_or_frozen_primary(shards: Shards) -> None:
    # The first server too, which no method may depend on.
    for key, shard in (("bar", 0), ("foo", 2)):
        former = shards.owner(key)
        former.command("SET", key, "x")
        shards.replica(shard).await_all_of(former)
        if shard == 0:
            former.kill()
        else:
            former.freeze()
        assert not former.answers
        assert shards.owner(key) is former
        primary = shards.successor(former)
        assert primary is shards.replica(shard) is shards.owner(key) is shards.primary(shard)
        assert primary.get(key)
        other = shards.other(key)
        shards.migrate(key, primary, other)
        shards.migrate(key, other, primary)
        if shard == 0:
            former.restart()
        else:
            former.thaw()
        # Both are primaries for a moment; the latest is told.
        assert shards.owner(key) is primary
        shards.settled()
        assert not shards.is_primary(former)
        assert shards.is_primary(primary)
