"""What an operator asks: who holds a lock, which locks there are, whether the nodes are fit, and how to end a hold."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import each_launcher, every_launcher
from cli.redlock import LONG_MS, STATUS, Redlock, freed, one_line, taken, waiting
from cli.running import Ended, Running, full_pipe
from cli.terminal import INTERRUPT
from conformance.conftest import ROOT
from conformance.history import SLACK_MS
from conformance.story import Asked, fence_key, slot_key
from support.clock import until
from support.proxy import HOLD, Proxy
from support.rights import fewest, for_any_name
from support.rules import unknown
from support.servers import Cluster, Server

Json = dict[str, Any]

SLACK_S = SLACK_MS / 1000

OK, NO, UNUSABLE = 0, 1, 2
USAGE, UNAVAILABLE, HELD, FORBIDDEN = 64, 69, 75, 77

TOKEN = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")

PASSWORD = "correct-horse"

NODE_KEYS = {"node", "state", "label", "readers", "labels", "fence", "ttl_left_ms", "error"}
LOCK_KEYS = (NODE_KEYS - {"node", "error"}) | {
    "name",
    "key",
    "slot",
    "since",
    "until",
    "waiting",
    "holders",
    "quorum",
    "nodes",
}


def read(ended: Ended) -> Json:
    """A document, which is all of the output."""
    document: Json = json.loads(ended.out)
    return document


def locks(ended: Ended) -> dict[str, Json]:
    """The locks of a document, by name, each with all of its keys."""
    found = read(ended)["locks"]
    assert all(lock.keys() == LOCK_KEYS for lock in found)
    assert all(node.keys() == NODE_KEYS for lock in found for node in lock["nodes"])
    return {lock["name"]: lock for lock in found}


def test_status(redlock: Redlock, node: Server, name: str) -> None:
    free = redlock.end("status", name)
    assert free.status == NO
    assert name in free.out
    assert "free" in free.out
    began = datetime.now(UTC)
    holder = redlock.hold("-t", "20s", name)
    begun = datetime.now(UTC)
    waiter = redlock.start("run", name, "--", "true")
    waiting(node, name, waiter)
    ended = redlock.end("status", name)
    assert (ended.status, ended.err) == (OK, "")
    fence = node.get(fence_key(name))
    assert fence
    for part in (name, "held", fence.decode(), f":{holder.pid}"):
        assert part in ended.out
    lock = locks(redlock.end("status", "--json", name))[name]
    assert (lock["state"], lock["key"], lock["slot"], lock["waiting"]) == ("held", name, None, 1)
    assert (lock["holders"], lock["quorum"], len(lock["nodes"])) == (1, 1, 1)
    assert lock["fence"] == int(fence) == lock["nodes"][0]["fence"]
    assert lock["label"].endswith(f":{holder.pid}")
    since, end = (datetime.fromisoformat(lock[each]) for each in ("since", "until"))
    assert began <= since <= begun
    assert 0 < (end - datetime.now(UTC)).total_seconds() <= 20 + SLACK_S
    assert 0 < lock["ttl_left_ms"] <= 20_000
    redlock.end_work()
    assert (holder.end().status, waiter.end().status) == (0, 0)


def test_every_field_is_documented(redlock: Redlock) -> None:
    page = (ROOT / "core" / "docs" / "command-line.md").read_text(encoding="utf-8")
    table = page.partition("| field | meaning |")[2].partition("\n\n")[0]
    said = redlock.end("status", "--help").out
    for field in LOCK_KEYS | NODE_KEYS:
        assert f"`{field}`" in table, field
        assert re.search(rf"\b{field}\b", said.partition("--json")[2]), field
    assert "null if unknown (`labels`: empty)" in page
    assert "null; labels is then empty" in " ".join(said.split())
    free = redlock.end("status", "--json", "free")
    assert [field for field, value in locks(free)["free"].items() if value == []] == ["labels"]


def test_status_of_several(redlock: Redlock, node: Server, name: str) -> None:
    names = [f"{name}/{each}" for each in ("held", "free", "foreign")]
    taken(node, names[0], label="somebody@else")
    node.command("SET", names[2], "another library's", "PX", LONG_MS)
    ended = redlock.end("status", *names)
    assert ended.status == NO, "one of them is free"
    assert [ended.out.index(each) for each in names] == sorted(ended.out.index(each) for each in names), "in this order"
    states = {each: lock["state"] for each, lock in locks(redlock.end("status", "--json", *names)).items()}
    assert states == dict(zip(names, ["held", "free", "foreign"], strict=True))
    assert redlock.end("status", names[0], names[2]).status == OK, "neither can be acquired"


def test_status_of_a_semaphore(redlock: Redlock, node: Server, name: str) -> None:
    holder = redlock.hold("--permits", "2", name)
    ended = redlock.end("status", "--permits", "2", name)
    assert ended.status == NO, "a slot is free"
    assert "1 of 2" in ended.out
    found = read(redlock.end("status", "--permits", "2", "--json", name))["locks"]
    assert [lock["slot"] for lock in found] == [0, 1]
    assert sorted(lock["state"] for lock in found) == ["free", "held"]
    assert redlock.end("status", "--permits", "1", name).status in {OK, NO}
    second = redlock.hold("--permits", "2", name)
    assert redlock.end("status", "--permits", "2", name).status == OK
    redlock.end_work()
    assert (holder.end().status, second.end().status) == (0, 0)


def test_operators_of_a_quorum(redlock: Redlock, start_nodes: Callable[..., Cluster], name: str) -> None:
    """A minority that is away hides nothing and hinders nothing. Without a quorum, what is known is said."""
    nodes = start_nodes(3)
    for server in nodes:
        taken(server, name, label="somebody@else")
        server.command("SET", fence_key(name), 7)
    nodes[2].kill()
    at = redlock.at(nodes)
    ended = at.end("status", name)
    assert ended.status == OK
    assert all(server.address in ended.out for server in nodes)
    lock = locks(at.end("status", "--json", name))[name]
    assert (lock["holders"], lock["quorum"]) == (2, 2)
    assert [each["state"] for each in lock["nodes"]] == ["held", "held", "unavailable"]
    assert lock["nodes"][2]["error"]
    listed = read(at.end("list", "--json"))
    assert ([each["name"] for each in listed["locks"]], listed["complete"]) == ([name], True)
    assert [each["node"] for each in listed["unscanned"]] == [nodes[2].address]
    released = at.end("release", "--force", "--yes", name)
    assert released.status == OK
    assert nodes[2].address in released.err, "it may still be there"
    assert not nodes.has(name)
    taken(nodes[0], name)
    nodes[1].kill()
    ended = at.end("status", name)
    assert ended.status == UNAVAILABLE
    one_line(ended.err)
    assert nodes[0].address in ended.out, "what is known is shown all the same"
    ended = at.end("list", "--json")
    assert (ended.status, read(ended)["complete"]) == (UNAVAILABLE, False)
    assert at.end("release", "--force", "--yes", name).status == UNAVAILABLE


def test_status_again_and_again(redlock: Redlock, node: Server, name: str) -> None:
    running = redlock.start("status", "--json", "--watch=100ms", name)

    def states() -> list[str]:
        return [json.loads(line)["locks"][0]["state"] for line in running.out.splitlines(True) if line.endswith("\n")]

    until(lambda: states().count("free") >= 2, "it is free")
    taken(node, name)
    until(lambda: states()[-2:] == ["held"] * 2, "it is held")
    running.send(signal.SIGTERM)
    assert running.end(SLACK_S).status == STATUS["TERM"]


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_status_on_a_terminal_until_it_is_interrupted(redlock: Redlock, node: Server, name: str, term: str) -> None:
    taken(node, name, label="somebody@else")
    terminal = redlock.terminal("redlock", "status", "--watch=200ms", name, env={"TERM": term})
    for _ in range(3):
        terminal.expect("somebody@else")
    terminal.type(INTERRUPT)
    assert terminal.end() == STATUS["INT"]
    assert ("\x1b" in terminal.shown) == (term == "xterm"), "a terminal that is not cleared shows text alone"


def test_wait(redlock: Redlock, node: Server, name: str) -> None:
    assert redlock.end("wait", name).status == OK
    taken(node, name)
    for words in (["-w", "0"], ["--wait=2s"]):
        ended = redlock.end("wait", *words, name)
        assert ended.status == HELD
        assert name in one_line(ended.err)
    quiet = redlock.end("wait", "-q", "-w", "0", name)
    assert (quiet.status, quiet.err) == (HELD, "")
    asked = Asked([node])
    running = redlock.start("wait", "-w", "1m", name)
    asked.wait()
    assert running.runs
    freed(node, name)
    ended = running.end(SLACK_S)
    assert (ended.status, ended.out, ended.err) == (OK, "", "")
    assert not node.has(name), "it has not taken it"


def test_a_wait_without_an_answer_ends_in_time(redlock: Redlock, own_node: Server, name: str) -> None:
    own_node.freeze()
    ended = redlock.at(own_node).end("wait", "-w", "1s", "--connect-timeout", "30s", name)
    assert ended.status == UNAVAILABLE
    assert name in one_line(ended.err)
    assert ended.took_s < 1 + 2 * SLACK_S, "beside its start"


def test_wait_for_several(redlock: Redlock, node: Server, name: str) -> None:
    names = [f"{name}/{each}" for each in "ab"]
    for each in names:
        taken(node, each)
    running = redlock.start("wait", *names)
    freed(node, names[0])
    assert redlock.end("wait", "-w", "1500ms", names[1], names[0]).status == HELD
    assert running.runs, "one of them is held"
    freed(node, names[1])
    assert running.end(SLACK_S).status == OK


def test_list(redlock: Redlock, own_node: Server) -> None:
    at = redlock.at(own_node)
    empty = at.end("list", "--json")
    assert (empty.status, read(empty)) == (OK, {"complete": True, "locks": [], "unscanned": []})
    assert at.end("run", "jobs:past", "--", "true").status == 0
    holders = [at.hold("jobs:{one}"), at.hold("--permits", "2", "pool"), at.hold("set:a", "set:b")]
    own_node.command("SET", "somebody's data", "1")
    ended = at.end("list", "--json")
    assert (ended.status, ended.err) == (OK, "")
    document = read(ended)
    found = [(lock["name"], lock["slot"] is None, lock["state"]) for lock in document["locks"]]
    assert sorted(found) == [
        *(("jobs:{one}", True, "held"), ("pool", False, "held"), ("set:a", True, "held"), ("set:b", True, "held"))
    ]
    assert document["complete"]
    assert {"jobs:past", "jobs:{one}"} <= locks(at.end("list", "--json", "--all")).keys()
    assert locks(at.end("list", "--json", "--match", "jobs:*")).keys() == {"jobs:{one}"}
    people = at.end("list")
    assert people.status == OK
    for part in ("jobs:{one}", "pool", "set:a", "set:b", f":{holders[0].pid}"):
        assert part in people.out
    assert "jobs:past" not in people.out
    assert "somebody's data" not in people.out
    at.end_work()
    assert [each.end().status for each in holders] == [0, 0, 0]
    assert not locks(at.end("list", "--json"))


def test_list_of_readers(redlock: Redlock, own_node: Server) -> None:
    at = redlock.at(own_node)
    reader = at.hold("--shared", "page")
    assert re.search(rf"^page +shared .* 1: \S+:{reader.pid}$", at.end("list").out, re.M)
    at.end_work()
    assert reader.end().status == 0


def test_list_takes_its_time(redlock: Redlock, own_node: Server) -> None:
    """So many keys in a second, so that a busy server stays usable."""
    for number in range(1_000):
        own_node.command("SET", f"data:{number}", "1")
    taken(own_node, "job")
    own_node.command("SET", fence_key("job"), 7)
    at = redlock.at(own_node)
    slow = at.end("list", "--rate", "1000", "--json")
    assert locks(slow).keys() == {"job"}
    assert slow.took_s >= 0.5, "1,000 keys, of which a server looks at up to twice as many as it is asked to"
    assert locks(at.end("list", "--rate", "100000", "--json")).keys() == {"job"}


def test_list_without_the_right_to_scan(redlock: Redlock, own_node: Server) -> None:
    user = for_any_name(fewest())
    own_node.set_user(user.name, "on", f">{user.password}", *user.rules)
    at = redlock.at(own_node.url_as(user.name, user.password))
    ended = at.end("list")
    assert ended.status == FORBIDDEN
    assert "scan" in one_line(ended.err)
    own_node.set_user(user.name, "+scan")
    assert at.end("list").status == OK


def test_release(redlock: Redlock, node: Server, name: str) -> None:
    """Waiters are woken, and what held it learns of its loss."""
    holder = redlock.hold("-t", "3s", name, work=["--catch", "TERM"])
    waiter = redlock.start("run", name, "--", "echo", "mine")
    waiting(node, name, waiter)
    ended = redlock.end("release", "--force", "--yes", name)
    assert (ended.status, ended.err) == (OK, "")
    assert f":{holder.pid}" in ended.out, "it shows whose it was"
    assert "released" in ended.out
    done = waiter.end(SLACK_S)
    assert (done.status, done.out) == (0, "mine\n")
    assert holder.end(3 + SLACK_S).status == 76
    again = redlock.end("release", "--force", "--yes", name)
    assert again.status == NO
    assert "free" in again.out


def test_release_leaves_a_new_holder_alone(redlock: Redlock, node: Server, name: str) -> None:
    """What was shown is compared: another holder has come while somebody read the question."""
    taken(node, name, label="old@host")
    terminal = redlock.terminal("redlock", "release", "--force", name)
    terminal.expect("old@host")
    terminal.expect(r"\[y/N\] $")
    other = f"{'f' * 32}:9:new@host"
    node.command("SET", name, other, "PX", LONG_MS)
    terminal.type("y\n")
    assert terminal.end() == NO
    assert node.get(name) == other.encode()


@pytest.mark.parametrize(
    ("answer", "status"),
    [("y\n", OK), ("yes\n", OK), ("n\n", NO), ("\n", NO), ("\x04", NO), (INTERRUPT, STATUS["INT"])],
)
def test_release_asks(redlock: Redlock, node: Server, name: str, answer: str, status: int) -> None:
    taken(node, name, label="old@host")
    terminal = redlock.terminal("redlock", "release", "--force", name)
    terminal.expect(r"\[y/N\] $")
    assert "old@host" in terminal.shown
    terminal.type(answer)
    assert terminal.end() == status
    assert node.has(name) != (status == OK)


def test_release_of_a_slot(redlock: Redlock, node: Server, name: str) -> None:
    taken(node, slot_key(name, 1), label="old@host")
    assert redlock.end("release", "--force", "--yes", "--slot", "0", name).status == NO
    ended = redlock.end("release", "--force", "--yes", "--slot", "1", name)
    assert ended.status == OK
    assert "old@host" in ended.out
    assert not node.has(slot_key(name, 1))


def test_release_of_somebodys_data(redlock: Redlock, node: Server, name: str) -> None:
    node.command("RPUSH", name, "precious")
    ended = redlock.end("release", "--force", "--yes", name)
    assert ended.status == NO
    one_line(ended.err)
    assert node.has(name)


def test_check(redlock: Redlock, own_node: Server) -> None:
    at = redlock.at(own_node)
    ended = at.end("check")
    assert (ended.status, ended.err) == (OK, "")
    assert own_node.address in ended.out
    document = read(at.end("check", "--json"))
    assert document["level"] == "ok"
    (diagnosed,) = document["nodes"]
    assert (diagnosed["node"], diagnosed["level"]) == (own_node.address, "ok")
    found = {finding["check"] for finding in diagnosed["findings"]}
    expected = {"connection", "role", "version", "resp3", "tracking", "info", "evalsha", "rights", "eviction", "clock"}
    assert expected <= found
    own_node.configure(maxmemory_policy="allkeys-lru")
    ended = at.end("check", "-q")
    assert ended.status == NO
    assert "eviction" in ended.out
    assert "rights" not in ended.out, "only what is not as it should be"
    own_node.kill()
    ended = at.end("check", "--json")
    assert ended.status == UNUSABLE
    assert read(ended)["level"] == "unusable"


def test_check_of_a_failover(redlock: Redlock) -> None:
    """It has to be shorter than the ttl of the locks, which no other option changes."""
    with Server(tcp=True) as primary:
        watched = f"sentinel monitor job 127.0.0.1 {primary.port} 1\nsentinel down-after-milliseconds job 9000\n"
        with Server(tcp=True, monitored=watched) as sentinel:
            at = redlock.at(f"redis+sentinel://127.0.0.1:{sentinel.port}/job")
            for words, level in (([], "warning"), (["--node-timeout", "1s"], "warning"), (["--ttl", "21s"], "ok")):
                (diagnosed,) = read(at.end("check", "--json", *words))["nodes"]
                found = {each["check"]: each["level"] for each in diagnosed["findings"]}
                assert found["failover"] == level, words


def test_check_of_a_right_that_is_missing(redlock: Redlock, own_node: Server) -> None:
    user = for_any_name(fewest())
    own_node.set_user(user.name, "on", f">{user.password}", *user.rules)
    at = redlock.at(own_node.url_as(user.name, user.password))
    assert at.end("check").status == OK, "what the page gives is all that is needed"
    own_node.set_user(user.name, "-pexpire")
    ended = at.end("check")
    assert ended.status == UNUSABLE
    assert "pexpire" in ended.out


def test_check_of_a_command_that_is_unknown(redlock: Redlock, start_nodes: Callable[..., Cluster], name: str) -> None:
    """A renamed one is unknown to scripts, too. One that only a proxy does not know is not missed."""
    (renames,) = start_nodes(1, options=["--rename-command", "TIME", "RENAMED"])
    at = redlock.at(renames)
    assert at.end("acquire", "-n", name).status == UNAVAILABLE
    ended = at.end("check")
    assert ended.status == UNUSABLE
    assert "does not know time" in ended.out
    with Proxy(start_nodes(1)[0], rules=[unknown("TIME")]) as proxy:
        at = redlock.at(proxy.url)
        assert at.end("acquire", "-n", name).status == OK
        assert at.end("check").status == OK


@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_no_secret_is_said(redlock: Redlock, own_node: Server, right: bool) -> None:
    """Neither a password nor a token nor a user is in anything that is written, and support is sent `check`."""
    own_node.set_user("operator-17", "on", f">{PASSWORD}", "+@all", "~*")
    at = redlock.at(own_node.url_as("operator-17", PASSWORD if right else f"{PASSWORD}!"))
    holder = redlock.at(own_node).hold("job")
    stored = own_node.get("job")
    assert stored
    token = stored.partition(b":")[0].decode()
    assert TOKEN.fullmatch(token)
    for words in (
        *(["check"], ["check", "--json"], ["status", "job"], ["status", "--json", "job"], ["list"], ["list", "--json"]),
        *(["run", "-n", "job", "--", "true"], ["wait", "-w", "0", "job"], ["release", "--force", "--yes", "job"]),
    ):
        ended = at.end(*words)
        said = ended.out + ended.err
        assert said, words
        assert PASSWORD not in said
        assert token not in said
        assert not TOKEN.search(said)
        assert "operator-17" not in said or words[0] != "check"
        assert ended.status not in {OK, NO} or right
    holder.kill()


@each_launcher("words", ["list --json", "--help", "manual", "completions bash", "status NAME", "check"])
def test_an_output_that_cannot_be_written(redlock: Redlock, node: Server, name: str, words: str) -> None:
    taken(node, name)
    node.command("SET", fence_key(name), 7)
    given = [name if word == "NAME" else word for word in words.split()]
    with Path("/dev/full").open("wb") as full:
        ended = redlock.end(*given, stdout=full)
    assert ended.status == 74
    assert "panicked" not in one_line(ended.err)


def test_a_reader_that_has_seen_enough(redlock: Redlock) -> None:
    """As `head` in a pipeline."""
    ended = redlock.shell("(redlock --help; echo $? >status) | head -c 0; cat status", cwd=redlock.folder).end()
    status = int(ended.out)
    assert status in {0, 141}
    assert not ended.err


@every_launcher
def test_a_reader_that_reads_nothing(redlock: Redlock, own_node: Server, name: str) -> None:
    """A signal ends the program."""
    read, write = full_pipe()
    asked = Asked([own_node])
    running = redlock.at(own_node).start("status", name, stdout=write)
    os.close(write)
    asked.wait()
    running.send(signal.SIGTERM)
    assert running.end(SLACK_S).status == STATUS["TERM"]
    os.close(read)


def connects(proxy: Proxy, links: int, running: Running) -> bool:
    """Whether it has made a connection, beside so many that there were."""
    assert running.runs, running.end()
    return len(proxy.links) > links


def test_a_server_that_answers_nothing_while_it_is_asked(redlock: Redlock, own_node: Server, name: str) -> None:
    """A signal ends every command in the middle of a call."""
    with Proxy(own_node) as proxy:
        proxy.replies(HOLD)
        for words in (["status", name], ["list"], ["check"], ["wait", name], ["release", "--force", "--yes", name]):
            links = len(proxy.links)
            running = redlock.at(proxy.url).start(*words, "--connect-timeout", "60s", "--node-timeout", "9s")
            until(functools.partial(connects, proxy, links, running), "it connects")
            began = time.monotonic()
            running.send(signal.SIGTERM)
            assert running.end().status == STATUS["TERM"], words
            assert time.monotonic() - began < SLACK_S
