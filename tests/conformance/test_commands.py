"""Optional commands: the library works if a server or a proxy refuses one or all, and is not deceived by a wrong reply.

The proxy in front of the node answers in place of the server. Only EVAL is required.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from conformance.conftest import Drivers
from conformance.driver import FACES, Client, LockError
from conformance.history import SLACK_MS
from conformance.story import one_try_ms, reached, within
from conformance.test_waiting import calls, wait
from support.clock import until
from support.proxy import Proxy
from support.rules import OPTIONAL, Rule, forbidden, hang_up, unknown
from support.servers import Cluster

LANGUAGES = ["rust", "python", "node"]
"""One face of each language."""
every_language = pytest.mark.parametrize("face", LANGUAGES)

TAKEN_AWAY = [*([command] for command in OPTIONAL), OPTIONAL]
WAYS = [(face, unknown) for face in FACES] + [(face, way) for way in (forbidden, hang_up) for face in LANGUAGES]

LONG_TTL_MS = 60_000
LIMIT_MS = 15_000
"""The limit of an acquire whose client is hung up on several times, with pauses."""

WRONG_REPLIES = {"array": b"*0\r\n", "malformed": b"hello\r\n"}
UNEXPECTED = "sent an unexpected reply; is this a Redis or Valkey server?"


def sent(nodes: Cluster) -> set[str]:
    """Returns the optional commands that this server is sent."""
    lacks = {word for word in ("DELIFEQ", "DELEX") if nodes[0].command("COMMAND", "INFO", word) == [None]}
    return set(OPTIONAL) - lacks


def use(client: Client, nodes: Cluster, name: str) -> None:
    """Uses the lock in every way, with a second lock object that waits for it."""
    holder, waiter = client.lock(name), client.lock(name)
    fence = holder.acquire(timeout_ms=LIMIT_MS)["fence"]
    waiting = wait(nodes, waiter)
    # Each kind of connection has to be hung up on several times. Until then, calls fail.
    reached(lambda: holder.extend(ttl_ms=2 * LONG_TTL_MS))
    reached(holder.extend)
    until(lambda: client.inspect(name)["state"] == "held", "the node reports the holder")
    assert waiting.pending
    holder.release()
    assert waiting.result()["fence"] > fence
    waiter.release()
    until(lambda: not nodes.has(name), "the key is gone")


@pytest.mark.parametrize("commands", TAKEN_AWAY, ids=lambda commands: commands[0] if len(commands) == 1 else "all")
@pytest.mark.parametrize(("face", "way"), WAYS, ids=[f"{face}-{way.__name__}" for face, way in WAYS])
def test_command_that_is_taken_away(
    drivers: Drivers, node: Cluster, face: str, way: Callable[[str], Rule], commands: Sequence[str], name: str
) -> None:
    with Proxy(node[0], rules=[way(command) for command in commands]) as proxy:
        client = drivers.start(face).client([proxy.url], ttl_ms=LONG_TTL_MS, node_timeout_ms=LIMIT_MS)
        use(client, node, name)
        # The second time the server has the scripts.
        use(client, node, name)
        # Without HELLO the client does not send CLIENT TRACKING, and without INFO neither DELIFEQ nor DELEX.
        expected = sent(node) & set(commands)
        assert proxy.met.keys() & expected or not expected, "the command was not sent"


@every_language
def test_commands_that_take_long(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    patient = {"node_timeout_ms": LIMIT_MS, "connect_timeout_ms": LIMIT_MS}
    with Proxy(node[0], rules=[Rule(command, delay_s=0.1) for command in OPTIONAL]) as proxy:
        client = drivers.start(face).client([proxy.url], ttl_ms=LONG_TTL_MS, **patient)
        use(client, node, name)
        assert set(proxy.met) == sent(node)


@contextmanager
def unavailable(proxy: Proxy, answer: str) -> Iterator[None]:
    """Checks that the block fails in time because of this node, and says so."""
    with within(one_try_ms()), pytest.raises(LockError) as error:
        yield
    assert error.value.code == "unavailable"
    assert error.value.nodes == [(proxy.url, answer)]
    assert f"{proxy.url}: {answer}" in error.value.message


@every_language
def test_info_that_takes_too_long(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    with Proxy(node[0], rules=[Rule("INFO", delay_s=60)]) as proxy:
        client = drivers.start(face).client([proxy.url], ttl_ms=LONG_TTL_MS, connect_timeout_ms=300)
        answers = []
        for call in (lambda: client.lock(name).acquire(timeout_ms=0), lambda: client.list_locks("*")):
            with within(one_try_ms()), pytest.raises(LockError) as error:
                call()
            assert error.value.code == "unavailable"
            answers += [answer for _, answer in error.value.nodes]
        (finding,) = client.diagnose()[0]["findings"]
        assert len(answers) == 2
        for answer in [*answers, finding["message"]]:
            # It may tell the time since the connect began, after the call. A busy machine notices the end late.
            told = re.fullmatch(r"no answer within (\d+)ms: the login or the set-up was not answered", answer)
            assert told, answer
            assert int(told[1]) <= 300 + SLACK_MS
        assert not node.has(name)


GROUPS = {
    "cluster": ("", "the servers of the cluster do not tell its map: no answer within 2s"),
    "sentinel": ("/cache", "no primary of cache is known: {host} no answer within 300ms"),
}
"""The end of each address, and what comes before the reason for its failure."""


@pytest.mark.parametrize("group", GROUPS)
@every_language
def test_group_that_does_not_get_as_far_as_a_command(drivers: Drivers, face: str, group: str, name: str) -> None:
    """The error says how far a connection to one of its servers has come, as for a node that is a server."""
    end, says = GROUPS[group]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        client = drivers.start(face).client([f"rediss+{group}://{host}{end}"], connect_timeout_ms=LIMIT_MS)
        with pytest.raises(LockError) as error:
            client.lock(name).acquire(timeout_ms=3_000)
    says = f"cannot be reached: {says.format(host=host)}: the TLS handshake was not answered"
    ((_, answer),) = error.value.nodes
    assert answer.startswith(says)


@every_language
def test_script_that_takes_too_long(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """A late grant is released."""
    with Proxy(node[0], rules=[Rule("EVALSHA", delay_s=1)]) as proxy:
        client = drivers.start(face).client([proxy.url], ttl_ms=LONG_TTL_MS, node_timeout_ms=300)
        first, lock = client.lock(name, node_timeout_ms=LIMIT_MS), client.lock(name)
        first.acquire()
        first.release()
        before = calls(node[0], "evalsha")
        with unavailable(proxy, "no answer within 300ms"):
            lock.acquire(timeout_ms=0)
        until(lambda: calls(node[0], "evalsha") > before, "it arrives")
        until(lambda: not node.has(name), "the grant is released")


@pytest.mark.parametrize("reply", WRONG_REPLIES.values(), ids=WRONG_REPLIES)
@every_language
def test_wrong_reply_to_info(drivers: Drivers, node: Cluster, face: str, reply: bytes, name: str) -> None:
    """The library does not know the server, and so does not ask it for the lock."""
    with Proxy(node[0], rules=[Rule("INFO", lie=lambda _: reply)]) as proxy:
        lock = drivers.start(face).client([proxy.url], ttl_ms=LONG_TTL_MS).lock(name)
        for _ in range(2):
            with unavailable(proxy, UNEXPECTED):
                lock.acquire(timeout_ms=0)
        assert not node.has(name)


@pytest.mark.parametrize("reply", WRONG_REPLIES.values(), ids=WRONG_REPLIES)
@every_language
def test_wrong_reply_to_a_script(drivers: Drivers, node: Cluster, face: str, reply: bytes, name: str) -> None:
    """The server has granted the lock, but the client does not count that. It releases the grant."""
    with Proxy(node[0], rules=[Rule("EVALSHA", lie=lambda _: reply)]) as proxy:
        client = drivers.start(face).client([proxy.url], ttl_ms=LONG_TTL_MS, node_timeout_ms=LIMIT_MS)
        first, lock = client.lock(name), client.lock(name)
        # The text of the script comes first, by EVAL.
        fence = first.acquire()["fence"]
        first.release()
        with unavailable(proxy, UNEXPECTED):
            lock.acquire(timeout_ms=0)
        assert proxy.met["EVALSHA"]
        until(lambda: not node.has(name), "the grant is released")
        assert reached(lock.acquire)["fence"] > fence
