"""A node whose server sentinels name: locks and waiters move to the new primary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.conftest import Drivers, every_face, log_ends, shown
from conformance.driver import Call, Lock, LockError
from conformance.story import Asked, heard, within
from conformance.test_waiting import calls
from support.clock import until
from support.sentinels import Sentinels
from support.servers import User

TTL_MS = 4000
"""How long a new primary grants nothing to a waiter."""

LONG_TTL_MS = 15_000
"""Long enough to outlive failovers on a slow machine, with the pause between two of them, so that locks stay held."""

NOTICE_MS = 1000
"""Sentinels are asked once a second."""

WHOLE_SECONDS_MS = 1000
"""A server reports its uptime in whole seconds, so that it is barred for up to a second longer."""


@pytest.fixture
def sentinels(request: pytest.FixtureRequest, program: Path, user: User | None) -> Iterator[Sentinels]:
    """A primary, its replica and their sentinels, of this test case alone."""
    with Sentinels(program=program, user=user) as sentinels, shown(request, "servers", lambda: log_ends(sentinels)):
        yield sentinels


def planned(sentinels: Sentinels) -> None:
    """The primary steps back in good order."""
    sentinels.fail_over()


def killed(sentinels: Sentinels) -> None:
    """The primary crashes."""
    sentinels.servers[0].kill()


def frozen(sentinels: Sentinels) -> None:
    """The primary hangs, with all of its connections."""
    sentinels.servers[0].freeze()


def held(sentinels: Sentinels, lock: Lock, name: str) -> int:
    """Acquires, and waits until the replica has the lock; returns the fence."""
    fence: int = lock.acquire()["fence"]
    until(lambda: all(server.command("EXISTS", name) for server in sentinels.servers), "both servers have it")
    return fence


def passes_on(holder: Lock, fence: int, waiting: Call) -> None:
    """The lock is still held, and who waits gets it after its release."""
    holder.check()
    assert waiting.pending
    holder.release()
    with within(NOTICE_MS + TTL_MS + WHOLE_SECONDS_MS):
        won = waiting.result()
    assert won["fence"] > fence


@every_face
@pytest.mark.parametrize("end", [planned, killed, frozen])
def test_a_held_lock_and_its_waiter_move_to_the_new_primary(
    drivers: Drivers, sentinels: Sentinels, face: str, end: Callable[[Sentinels], None], name: str
) -> None:
    holder = drivers.fresh(face).client([sentinels.url], ttl_ms=LONG_TTL_MS).lock(name)
    fence = held(sentinels, holder, name)
    waiter = drivers.start(face).client([sentinels.url], ttl_ms=TTL_MS).lock(name)
    asked = Asked([sentinels.servers[0]])
    waiting = waiter.start_acquire()
    asked.wait()
    # A replica does not count what its primary has executed.
    extended = calls(sentinels.servers[1], "pexpire")
    end(sentinels)
    # Sentinels name it a little later than it is the primary.
    primary = sentinels.successor(sentinels.servers[0])
    if end is frozen:
        # It takes writes until a sentinel tells it that it is a replica now.
        sentinels.servers[0].thaw()
    with within(NOTICE_MS):
        until(lambda: calls(primary, "pexpire") > extended, "it is extended there")
    former, present = (f"127.0.0.1:{server.port}" for server in sentinels.servers[:2])
    event = heard(holder.driver, "failover", to=present)
    assert event["fields"]["from"] == former
    assert event["fields"]["node"].startswith("redis+sentinel://")
    passes_on(holder, fence, waiting)
    waiter.release()
    until(lambda: not sentinels.servers[1].command("EXISTS", name), "the lock is free")


@pytest.fixture
def three(request: pytest.FixtureRequest, program: Path, user: User | None) -> Iterator[Sentinels]:
    """A primary, two replicas and their sentinels, of this test case alone."""
    with (
        Sentinels(replicas=2, failover_timeout_ms=2000, program=program, user=user) as three,
        shown(request, "servers", lambda: log_ends(three)),
    ):
        yield three


def test_one_primary_dies_after_the_other(drivers: Drivers, three: Sentinels, name: str) -> None:
    """The lock is held until the last server has it, and then the waiter gets it there."""
    holder = drivers.start("python").client([three.url], ttl_ms=LONG_TTL_MS).lock(name)
    fence = holder.acquire()["fence"]
    waiting = drivers.start("node").client([three.url], ttl_ms=TTL_MS).lock(name).start_acquire()
    for _ in range(2):
        until(lambda: all(server.has(name) for server in three.servers if server.running), "all servers have it")
        former = three.server_of(name)
        extended = {server: calls(server, "pexpire") for server in three.servers if server.running}
        former.kill()
        primary = three.successor(former)
        with within(NOTICE_MS):
            until(lambda: calls(primary, "pexpire") > extended[primary], "it is extended there")  # noqa: B023
    passes_on(holder, fence, waiting)
    assert primary.has(name)


@every_face
def test_a_master_that_no_sentinel_knows(drivers: Drivers, sentinels: Sentinels, face: str, name: str) -> None:
    client = drivers.start(face).client([sentinels.url.replace("mymaster", "theirmaster")])

    def all_say_so() -> bool:
        """What a sentinel answers later than after 300 ms counts in the next asking."""
        with pytest.raises(LockError) as unknown:
            client.lock(name).acquire(timeout_ms=0)
        assert unknown.value.code == "unavailable"
        (_, vote), *_ = unknown.value.nodes
        assert "theirmaster" in vote
        return vote.count("monitors no such master") == 3

    until(all_say_so, "every sentinel says so")


@every_face
def test_a_diagnosis_names_the_sentinel_that_is_down(drivers: Drivers, sentinels: Sentinels, face: str) -> None:
    client = drivers.start(face).client([sentinels.url])
    sentinels.sentinels[1].kill()
    (diagnosis,) = client.diagnose()
    found = [finding for finding in diagnosis["findings"] if finding["check"] in {"sentinel", "primary", "failover"}]
    assert [finding["level"] for finding in found] == ["ok", "warning", "ok", "ok", "ok"]
    down = f"127.0.0.1:{sentinels.sentinels[1].port}: cannot be reached"
    assert found[1]["message"].startswith(down)
    assert found[3]["message"] == f"127.0.0.1:{sentinels.servers[0].port}, named by 2 of 3 sentinels"
