"""The rows of `tables/quorum.json` about votes, with real nodes that vote this way, on every face."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from conformance.conftest import Drivers
from conformance.driver import FACES, Client, Driver, Json, Lock, LockError, table
from conformance.history import SLACK_MS
from conformance.story import connect_to_all, fence_key
from support.clock import until
from support.servers import Cluster, Server

every_face = pytest.mark.parametrize("face", FACES)

MOST_NODES = 15
BASE = 1 << 52
"""Added to a row's fences, so that nodes grant them although they are far below any clock."""

VOTE = re.compile(r"(?P<word>\w+)(?: (?P<fence>\d+))?(?: x(?P<times>\d+))?")

Vote = tuple[str, int]
"""A node's vote, and the fence that it grants."""


def settled(section: str, words: set[str]) -> Iterator[tuple[Json, list[Vote]]]:
    """The rows in which all votes are in and of these words, and no node is in quarantine or unresponsive."""
    for row in table("quorum")[section]:
        parts = [VOTE.fullmatch(part) for part in row["votes"].split(", ")]
        votes = [
            (part["word"], int(part["fence"] or 0)) for part in parts if part for _ in range(int(part["times"] or 1))
        ]
        if row.keys() == {"name", "votes", "verdict"} and {word for word, _ in votes} <= words:
            yield row, votes


def client_for(driver: Driver, servers: list[Server]) -> Client:
    """A client that waits for all votes, however slow the machine is."""
    return driver.client(
        [server.url for server in servers], ttl_ms=60_000, node_timeout_ms=5 * SLACK_MS, auto_renew=False
    )


def prepare(server: Server, name: str, vote: Vote) -> None:
    """Makes a node vote this way when it is asked for this lock."""
    match vote:
        case "granted", fence:
            server.command("SET", fence_key(name), BASE + fence - 1)
        case "failed", _:
            server.command("SET", fence_key(name), "no number")
        case "ahead", _:
            token, _, rest = (server.get(name) or b"").partition(b":")
            granted, colon, label = rest.partition(b":")
            server.command("SET", name, b"%b:%d%b%b" % (token, int(granted) + 1, colon, label), "PX", 60_000)
        case (("held" | "foreign" | "taken"), _):
            server.command("SET", name, "another library's token")
        case (("absent" | "gone"), _):
            server.command("DEL", name)


@every_face
def test_attempts(drivers: Drivers, undisturbed: Callable[[int], Cluster], face: str, name: str) -> None:
    driver, nodes = drivers.start(face), list(undisturbed(MOST_NODES))
    wrong = []
    for row, votes in settled("attempts", {"granted", "held", "failed"}):
        of_row = f"{name}/{row['name']}"
        lock = client_for(driver, nodes[: len(votes)]).lock(of_row)
        for server, vote in zip(nodes, votes, strict=False):
            prepare(server, of_row, vote)
        try:
            won = lock.try_acquire()
        except LockError as refused:
            won = False
            if refused.code != "unavailable":
                wrong.append(f"{row}: {refused}")
        if won != (row["verdict"] != "lost"):
            wrong.append(f"{row}: won is {won}")
        elif won and ("granted", (lock.fence or 0) - BASE) not in votes:
            wrong.append(f"{row}: the fence {lock.fence}")
        elif won:
            lock.release()
    assert not wrong, "\n".join(wrong)


@every_face
@pytest.mark.parametrize(
    ("section", "words", "call"),
    [
        ("extensions", {"extended", "absent", "foreign", "ahead"}, Lock.extend),
        ("releases", {"deleted", "gone", "taken"}, Lock.release),
    ],
    ids=["extensions", "releases"],
)
def test_held_locks(
    drivers: Drivers,
    undisturbed: Callable[[int], Cluster],
    section: str,
    words: set[str],
    call: Callable[[Lock], object],
    face: str,
    name: str,
) -> None:
    driver, nodes = drivers.start(face), list(undisturbed(MOST_NODES))
    wrong = []
    for row, votes in settled(section, words):
        servers = nodes[: len(votes)]
        client = client_for(driver, servers)
        of_row = f"{name}/{row['name']}"
        connect_to_all(client, servers, of_row)
        lock = client.lock(of_row)
        lock.acquire()
        until(lambda: all(server.get(of_row) for server in servers), "every node has granted it")  # noqa: B023
        for server, vote in zip(servers, votes, strict=True):
            prepare(server, of_row, vote)
        verdict = outcome(lock, call)
        expected = row["verdict"].replace("carried", "done")
        # With an even number, half of the nodes are enough to lose: the reason depends on whose answers come first.
        exact = len(votes) % 2 == 1
        if verdict != expected and (exact or verdict.split()[0] != expected.split()[0]):
            wrong.append(f"{row}: {verdict}")
    assert not wrong, "\n".join(wrong)


def outcome(lock: Lock, call: Callable[[Lock], object]) -> str:
    """The outcome of a call, in the words of the table."""
    try:
        call(lock)
    except LockError as error:
        return f"{error.code} {error.reason}"
    return "done"
