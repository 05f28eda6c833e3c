"""What troubles leave behind is told from what the library leaves behind."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from arena import Arena, node
from schedule import KINDS, Trouble
from servers import Server
from story import until
from troubles import CUT_BYTES, Troubles, locks

LONG_MS = 60_000


class Alone:
    """An arena of one server."""

    def __init__(self, server: Server) -> None:
        self.servers = [server]


@pytest.fixture
def server() -> Iterator[Server]:
    with node(0) as server:
        yield server


@pytest.fixture
def troubles(server: Server) -> Troubles:
    arena: Arena = Alone(server)  # type: ignore[assignment]
    return Troubles(arena)


def strike(troubles: Troubles, name: str, amount: float) -> None:
    kind = next(kind for kind in KINDS if kind.name == name)
    trouble = Trouble(kind=kind, at_s=0, lasts_s=0, where=0, amount=amount)
    troubles.begin(trouble)
    troubles.end(trouble)


def test_ctrl_c_is_not_for_servers(server: Server) -> None:
    assert os.getpgid(server.pid) != os.getpgid(0), "a run that is broken off goes on to where nothing is half done"


def test_a_release_that_a_power_cut_has_undone_is_known(server: Server, troubles: Troubles) -> None:
    server.command("SET", "held", "a:1", "PX", LONG_MS)
    server.command("SET", "released", "b:2", "PX", LONG_MS)
    before = server.written()
    server.command("DEL", "released")
    # As far as the deletion, and not further.
    strike(troubles, "power cut", (server.written() - before) / CUT_BYTES)
    assert troubles.revived == {(0, b"held", b"a:1"), (0, b"released", b"b:2")}
    server.command("SET", "held", "c:3", "PX", LONG_MS)
    left = {(0, name, value) for name, value in locks(server)} - troubles.revived
    assert left == {(0, b"held", b"c:3")}, "what came later is nobody's excuse"
    troubles.forget_the_gone()
    assert troubles.revived == {(0, b"released", b"b:2")}


def test_a_key_that_has_expired_by_a_clock_that_is_ahead_is_not_back_with_it(
    server: Server, troubles: Troubles
) -> None:
    server.command("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    server.command("SET", "name", "a:1", "PX", 1000)
    server.command("SET", "later", "b:2", "PX", 1000)
    strike(troubles, "clock forward", 60)
    # To ask for the other one would delete it.
    until(lambda: not server.command("EXISTS", "later"), "both have expired")
    troubles.put_clocks_right()
    assert not list(locks(server))


def test_a_file_that_is_written_anew_is_short_and_keeps_the_data(server: Server) -> None:
    server.command("SET", "kept", "a:1")
    for _ in range(2):
        for _ in range(100):
            server.command("SET", "often", "b:2")
        server.compact()
        assert server.written() < 100
    server.command("SET", "cut off", "c:3")
    server.lose_power(0)
    assert dict(locks(server)) == {b"kept": b"a:1", b"often": b"b:2"}
