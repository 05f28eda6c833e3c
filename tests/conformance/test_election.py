"""Elections: at most one candidate leads, terms rise, and a leader that is lost is told before another leads."""

from __future__ import annotations

import time

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import FACES, Election, LockError
from conformance.history import SLACK_MS
from conformance.story import Asked, leader_of, within
from support.clock import until
from support.servers import Cluster

LONG_TTL_MS = 60_000
"""A ttl longer than any test case, so that a leader that is gone has resigned."""
SHORT_TTL_MS = 3000
"""A ttl that ends within a test case, and after the renewals of a slow machine."""
TTL_MS = 6000
MARGIN_MS = 3000
"""Far longer than a slow machine may be late."""
OUTAGE_MS = 10_000
"""How long an acquire without a timeout goes on while no quorum answers."""
LIMIT_S = 30.0


def term(election: Election) -> int:
    """The number of the last term."""
    number: int = election.terms()[-1]["fence"]
    return number


@every_face
def test_one_leads_at_a_time_and_terms_rise(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Each candidate leads once, and resigns by returning; its `run` returns what its body has returned."""
    clients = [drivers.start(each).client(nodes.urls, ttl_ms=LONG_TTL_MS) for each in (face, "rust", "python", "node")]
    first, *others = [client.election(name) for client in clients]
    runs = {first: first.start_run()}
    leader_of([first])
    until(lambda: all(server.has(name) for server in nodes), "every node has granted it")
    granted = [server.get(name) for server in nodes]
    for candidate in others:
        asked = Asked(nodes)
        runs[candidate] = candidate.start_run()
        asked.wait()
    assert [server.get(name) for server in nodes] == granted, "another leads beside it"
    terms = []
    while runs:
        leader = leader_of(list(runs))
        terms.append(term(leader))
        assert all(call.pending for call in runs.values())
        with within(0):
            leader.end_term()
            assert runs.pop(leader).result()["result"] == terms[-1]
        assert [each["how"] for each in leader.terms()] == ["returned"]
    assert terms == sorted(set(terms))
    until(lambda: not nodes.has(name), "nobody leads any more")


@every_face
def test_who_leads(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Everybody sees the label of the leader. With one node they see its term, and with several they do not."""
    client, others = (drivers.start(each).client(nodes.urls, ttl_ms=LONG_TTL_MS) for each in (face, "rust"))
    first, second = others.election(name, label="host 7"), client.election(name, label="host 8")
    assert second.leader() is None
    assert not nodes.has(name), "looking leaves a key"
    run = first.start_run()
    leader_of([first])
    number = term(first) if len(nodes) == 1 else None
    for election in (first, second):
        assert election.leader() == {"label": "host 7", "term": number}
    view = client.inspect(name)
    assert (view["state"], view["label"]) == ("held", "host 7")
    first.end_term()
    run.result()
    until(lambda: second.leader() is None, "nobody leads")
    unnamed = client.election(name, label="")
    run = unnamed.start_run()
    leader_of([unnamed])
    assert first.leader() == {"label": None, "term": term(unnamed) if len(nodes) == 1 else None}
    unnamed.end_term()
    run.result()
    lock = client.lock(name, label="no candidate")
    lock.acquire()
    until(lambda: (second.leader() or {}).get("label") == "no candidate", "whoever has the lock is seen")


@every_face
def test_a_killed_leader_is_replaced(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    client, others = (drivers.start(each).client(nodes.urls, ttl_ms=SHORT_TTL_MS) for each in (face, "rust"))
    leader, candidate = client.election(name), others.election(name)
    leader.start_run()
    leader_of([leader])
    asked = Asked(nodes)
    candidate.start_run()
    asked.wait()
    assert not candidate.leads
    number = term(leader)
    killed_ns = leader.driver.kill()
    leader_of([candidate])
    assert term(candidate) > number
    assert candidate.terms()[-1]["began_ns"] - killed_ns <= (SHORT_TTL_MS + SLACK_MS) * 1e6
    candidate.stop()


@every_face
def test_a_leader_is_told_before_another_leads(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    """Its servers hang, and are back when it has been told. It has stopped by then, and campaigns again."""
    options = {"ttl_ms": TTL_MS, "margin_ms": MARGIN_MS}
    client, others = (drivers.start(each).client(own_nodes.urls) for each in (face, "rust"))
    leader, candidate = client.election(name, **options), others.election(name, **options)
    leader.start_run()
    leader_of([leader])
    asked = Asked(own_nodes)
    candidate.start_run()
    asked.wait()
    hung = list(own_nodes)[:3]
    for server in hung:
        server.freeze()
    frozen = time.monotonic()
    until(lambda: not leader.leads, "it is told", LIMIT_S)
    assert (time.monotonic() - frozen) * 1000 <= TTL_MS - MARGIN_MS + SLACK_MS, "it is told too late for its margin"
    assert not candidate.leads
    for server in hung:
        server.thaw()
    assert leader_of([leader, candidate]) in {leader, candidate}
    last = [*leader.terms()[1:], *candidate.terms()][0]
    over = leader.terms()[0]
    assert over["how"] == "cut"
    assert last["began_ns"] > over["over_ns"]
    assert last["fence"] > over["fence"]
    leader.stop()
    candidate.stop()


@pytest.mark.parametrize("face", [name for name in FACES if name != "rust"])
def test_nobody_leads_within_the_margin_of_a_body_that_goes_on(
    drivers: Drivers, own_nodes: Cluster, face: str, name: str
) -> None:
    """A body needs some time to stop, and it has the margin. In async Rust a body that is told is over."""
    options = {"ttl_ms": TTL_MS, "margin_ms": MARGIN_MS}
    client, others = (drivers.start(each).client(own_nodes.urls) for each in (face, "rust"))
    leader, candidate = client.election(name, **options), others.election(name, **options)
    run = leader.start_run(lingers=True)
    leader_of([leader])
    asked = Asked(own_nodes)
    candidate.start_run()
    asked.wait()
    for server in own_nodes:
        server.freeze()
    until(lambda: not leader.leads, "it is told", LIMIT_S)
    told_ns = leader.terms()[0]["over_ns"]
    for server in own_nodes:
        server.thaw()
    leader_of([candidate])
    # It may have been told late.
    assert candidate.terms()[0]["began_ns"] >= told_ns + (MARGIN_MS - SLACK_MS) * 1e6, "another leads within the margin"
    asked = Asked(own_nodes)
    leader.end_term()
    asked.wait()
    assert run.pending, "it campaigns again"
    candidate.end_term()
    leader_of([leader])
    assert term(leader) > term(candidate)
    leader.end_term()
    assert run.result()["result"] == term(leader)


@every_face
def test_a_lost_leader_campaigns_again(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    leader = drivers.start(face).client(nodes.urls).election(name, ttl_ms=SHORT_TTL_MS)
    run = leader.start_run()
    leader_of([leader])
    number = term(leader)
    for server in nodes:
        server.command("DEL", name)
    until(lambda: len(leader.terms()) == 2, "it leads again", LIMIT_S)
    first, second = leader.terms()
    assert (first["how"], second["how"]) == ("cut", None)
    assert second["fence"] > number
    assert second["began_ns"] > first["over_ns"]
    assert run.pending
    leader.end_term()
    assert run.result()["result"] == second["fence"]


@every_face
def test_a_campaign_that_is_stopped(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """It ends at once, leaves the leader alone, and is for good."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    leader, candidate, other = (client.election(name) for _ in range(3))
    leader.start_run()
    leader_of([leader])
    asked = Asked(nodes)
    run, waiting = candidate.start_run(), other.start_run()
    asked.wait()
    assert run.pending
    assert not candidate.is_stopped()
    with within(0):
        candidate.stop()
        assert run.result()["result"] is None
    assert candidate.is_stopped()
    candidate.stop()
    with within(0):
        assert candidate.start_run().result()["result"] is None
    assert candidate.terms() == []
    assert leader.leads
    assert not other.is_stopped()
    assert waiting.pending
    leader.end_term()
    leader_of([other])
    other.stop()
    assert waiting.result()["result"] is None


@every_face
def test_a_term_that_is_stopped(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """The body is told, and another can lead at once."""
    client, others = (drivers.start(each).client(nodes.urls, ttl_ms=LONG_TTL_MS) for each in (face, "rust"))
    leader, candidate = client.election(name), others.election(name)
    run = leader.start_run()
    leader_of([leader])
    asked = Asked(nodes)
    candidate.start_run()
    asked.wait()
    with within(0):
        leader.stop()
        assert run.result()["result"] is None
        leader_of([candidate])
    (ended,) = leader.terms()
    assert ended["how"] == "cut"
    assert term(candidate) > ended["fence"]
    candidate.stop()
    until(lambda: not nodes.has(name), "nobody leads")


@every_face
def test_a_body_that_fails_resigns(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Its failure is that of `run`."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    leader, candidate = client.election(name), client.election(name)
    run = leader.start_run()
    leader_of([leader])
    waiting = candidate.start_run()
    with within(0):
        leader.end_term(fail=True)
        assert run.result()["failed"]
        leader_of([candidate])
    assert [each["how"] for each in leader.terms()] == ["failed"]
    candidate.end_term()
    assert waiting.result()["result"] == term(candidate)


@every_face
def test_a_term_whose_client_is_closed(drivers: Drivers, nodes: Cluster, face: str, name: str) -> None:
    """Another may lead while the body goes on, so what that returns does not count."""
    client = drivers.start(face).client(nodes.urls, ttl_ms=LONG_TTL_MS)
    leader = client.election(name)
    run = leader.start_run()
    leader_of([leader])
    client.close()
    leader.end_term()
    with pytest.raises(LockError) as ended:
        run.result()
    assert ended.value.code == "closed"


def test_a_campaign_outlasts_an_outage(drivers: Drivers, own_nodes: Cluster, name: str) -> None:
    """No quorum answers for longer than an acquire without a timeout goes on. All faces wait together."""
    options = {"ttl_ms": LONG_TTL_MS, "restart_delay_ms": 0}
    clients = {face: drivers.start(face).client(own_nodes.urls, **options) for face in FACES}
    elections = [client.election(f"{name} {face}") for face, client in clients.items()]
    down = list(own_nodes)[:3]
    for server in down:
        server.kill()
    began = time.monotonic()
    runs = [election.start_run() for election in elections]
    until(lambda: (time.monotonic() - began) * 1000 > OUTAGE_MS + SLACK_MS, "the outage is long", LIMIT_S)
    assert all(run.pending for run in runs)
    for election in elections:
        with pytest.raises(LockError) as unknown:
            election.leader()
        assert unknown.value.code == "unavailable"
    for server in down:
        server.restart()
    for election, run in zip(elections, runs, strict=True):
        leader_of([election])
        election.end_term()
        assert run.result()["result"] == term(election)


@every_face
def test_the_options_of_an_election(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """They are in force on the node, and what a lock has besides is that of a candidate, whatever the client has."""
    of_locks = {"timeout_ms": 0, "auto_renew": False, "at_least_ms": LONG_TTL_MS}
    client = drivers.start(face).client(node.urls, ttl_ms=SHORT_TTL_MS // 2, max_hold_ms=SHORT_TTL_MS // 2, **of_locks)
    election = client.election(name, ttl_ms=TTL_MS, fence_ttl_ms=2 * LONG_TTL_MS, label="host 7")
    lock = client.lock(name, ttl_ms=LONG_TTL_MS, max_hold_ms=LONG_TTL_MS, at_least_ms=0)
    lock.acquire()
    asked = Asked(node)
    run = election.start_run()
    asked.wait()
    lock.release()
    until(lambda: election.leads or not run.pending, "it leads")
    assert run.pending, "it has not waited"
    number = term(election)
    assert 0 < node[0].left_ms(name) <= TTL_MS
    # The next renewal comes after a third of the ttl.
    node[0].command("PEXPIRE", name, 2 * TTL_MS // 3)
    until(lambda: node[0].left_ms(name) > 2 * TTL_MS // 3, "it is renewed")
    assert election.leader() == {"label": "host 7", "term": number}
    election.end_term()
    run.result()
    until(lambda: not node.has(name), "it has resigned")
