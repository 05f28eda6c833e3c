"""What is seen from outside is the same in every language: the events of the log, and the metrics."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from conformance.conftest import Drivers, every_face
from conformance.driver import Driver, Json, LockError, table
from conformance.story import Asked, heard, next_won, reached, several
from support.clock import until
from support.proxy import Proxy
from support.rules import forbidden
from support.servers import Cluster

SHORT_TTL_MS = 1_000
RENEWED_TTL_MS = 3_000
"""A ttl of locks that stay held on a slow machine."""
NODE_TIMEOUT_MS = 500
LIMIT_MS = 10_000
MANY = 1_000
"""Names that are counted apart."""


def points(driver: Driver, metric: str, **labels: str) -> list[Json]:
    """The points of a metric that have these labels, among others."""
    found: list[Json] = driver.stats()[metric]["points"]
    return [point for point in found if labels.items() <= point["labels"].items()]


def number(driver: Driver, metric: str, **labels: str) -> float:
    """The sum of these numbers."""
    return sum(float(point["value"]) for point in points(driver, metric, **labels))


def count(driver: Driver, metric: str, **labels: str) -> int:
    """How many observations there were."""
    return sum(int(point["count"]) for point in points(driver, metric, **labels))


@every_face
def test_every_metric_is_there_from_the_start(drivers: Drivers, face: str) -> None:
    metrics = drivers.fresh(face).stats()
    cases = table("metrics")["cases"]
    assert sorted(metrics) == sorted(case["name"] for case in cases)
    for case in cases:
        metric = metrics[case["name"]]
        assert metric["kind"] == case["kind"]
        assert metric["about"].endswith(".")
        for point in metric["points"]:
            assert sorted(point["labels"]) == sorted(case["labels"])
    # What has not happened is zero, so that the first time is seen.
    lost = metrics["redlock_lost_total"]["points"]
    assert {point["labels"]["reason"]: point["value"] for point in lost} == dict.fromkeys(
        table("errors")["lost_reasons"], 0
    )


def samples(metrics: Json) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    """What the text must have: each sample with its labels and its value."""
    found = set[tuple[str, frozenset[tuple[str, str]], float]]()
    for name, metric in metrics.items():
        for point in metric["points"]:
            labels = frozenset(point["labels"].items())
            if "value" in point:
                found.add((name, labels, point["value"]))
                continue
            found |= {(f"{name}_sum", labels, point["sum"]), (f"{name}_count", labels, point["count"])}
            for end, inside in point["buckets"]:
                le = "+Inf" if end is None else str(float(end))
                found.add((f"{name}_bucket", labels | {("le", le)}, inside))
    return found


@every_face
def test_the_metrics_as_text_are_the_same(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    driver = drivers.fresh(face)
    driver.call("count_by_name", most=MANY)
    name += ' "quoted" \\ and more\n'
    lock = driver.client(node.urls).lock(name)
    lock.acquire()
    lock.release()
    assert count(driver, "redlock_acquire_duration_seconds", name=name) == 1
    metrics, text = driver.snapshot()
    families = list(text_string_to_metric_families(text))
    kinds = {name.removesuffix("_total"): (metric["kind"], metric["about"]) for name, metric in metrics.items()}
    assert {family.name: (family.type, family.documentation) for family in families} == kinds
    told = [
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in families
        for sample in family.samples
    ]
    assert len(told) == len(set(told))
    assert set(told) == samples(metrics)


@every_face
@pytest.mark.parametrize("why", ["connection refused", "cannot be resolved", "TLS", "WRONGPASS", "DB index"])
def test_a_node_that_cannot_be_reached_is_reported_once(
    drivers: Drivers, node: Cluster, face: str, why: str, name: str
) -> None:
    """Whatever prevents a connection, and however often. The error says where the address came from."""
    driver, events = drivers.fresh(face), list[Json]()

    def codes() -> list[str]:
        events.extend(driver.events())
        return [event["code"] for event in events]

    with Proxy(node[0]) as proxy:
        proxy.refuse(why == "connection refused")
        place = proxy.url.removeprefix("redis://")
        urls = {
            "cannot be resolved": "redis://redlock.invalid",
            "TLS": f"rediss://{place}",
            "WRONGPASS": f"redis://nobody:wrong@{place}",
            "DB index": f"{proxy.url}/99",
        }
        lock = driver.client([urls.get(why, proxy.url)]).lock(name)
        for _ in range(3):
            with pytest.raises(LockError) as failed:
                lock.acquire(timeout_ms=0)
            assert why in failed.value.nodes[0][1]
            assert failed.value.code == "forbidden" or "given to the client" in failed.value.message
        until(lambda: "node_unreachable" in codes(), "it is reported")
        if why == "connection refused":
            proxy.refuse(False)
            reached(lock.acquire)
            until(lambda: "node_answers" in codes(), "its end is reported")
        assert codes().count("node_unreachable") == 1
        assert why in next(event["fields"]["failure"] for event in events if event["code"] == "node_unreachable")


@every_face
def test_an_error_says_where_the_addresses_came_from(drivers: Drivers, face: str, name: str) -> None:
    def said(env: dict[str, str]) -> str:
        with pytest.raises(LockError) as failed:
            drivers.fresh(face, env).client(None).lock(name).acquire(timeout_ms=0)
        return failed.value.message

    assert "those of REDLOCK_URLS" in said({"REDLOCK_URLS": "redis://127.0.0.1:1"})
    with socket.socket() as local:
        if local.connect_ex(("127.0.0.1", 6379)):
            default = said({})
            assert "the default" in default
            assert "memory://" in default


@every_face
def test_a_life_is_counted(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    driver = drivers.fresh(face)
    driver.call("count_by_name", most=MANY)
    client = driver.client(node.urls)
    lock, other = client.lock(name), client.lock(name)
    lock.acquire()
    assert count(driver, "redlock_acquire_duration_seconds", name=name, outcome="acquired", contended="false") == 1
    assert number(driver, "redlock_held", name=name) == 1
    asked = Asked(node)
    waiting = other.start_acquire()
    asked.wait()
    until(lambda: number(driver, "redlock_waiting", name=name) == 1, "it is counted as waiting")
    lock.release()
    waiting.result()
    assert number(driver, "redlock_waiting", name=name) == 0
    assert count(driver, "redlock_acquire_duration_seconds", name=name, outcome="acquired", contended="true") == 1
    other.release()
    assert number(driver, "redlock_held", name=name) == 0
    assert count(driver, "redlock_hold_duration_seconds", name=name, end="released") == 2
    assert number(driver, "redlock_lost_total") == 0
    for script in ("acquire", "release"):
        assert count(driver, "redlock_node_duration_seconds", script=script) >= 2
    assert number(driver, "redlock_node_up") >= 1
    assert number(driver, "redlock_node_connections_total") >= 1


@every_face
def test_the_first_names_are_counted_apart(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    driver, metric = drivers.fresh(face), "redlock_acquire_duration_seconds"
    client = driver.client(node.urls)

    def use(*names: str) -> None:
        for each in names:
            lock = client.lock(f"{name} {each}")
            lock.acquire()
            lock.release()

    def counted_together() -> int:
        return sum(int(point["count"]) for point in points(driver, metric) if "name" not in point["labels"])

    use("before")
    driver.call("count_by_name", most=2)
    use("a", "b", "c", "a")
    assert [count(driver, metric, name=f"{name} {each}") for each in ("before", "a", "b", "c")] == [0, 2, 1, 0]
    assert counted_together() == 2
    driver.call("count_by_name", most=0)
    use("a")
    assert counted_together() == 3


@every_face
def test_a_loss_is_logged_and_counted(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    driver = drivers.fresh(face)
    driver.call("count_by_name", most=MANY)
    lock = driver.client(node.urls).lock(name, ttl_ms=RENEWED_TTL_MS)
    lock.acquire()
    for server in node:
        server.command("DEL", name)
    assert lock.start_wait_lost(LIMIT_MS).result()["lost"]
    event = heard(driver, "lock_lost", name=name)
    assert event["fields"]["reason"] == "deleted"
    assert number(driver, "redlock_lost_total", name=name, reason="deleted") == 1
    assert number(driver, "redlock_held", name=name) == 0
    assert count(driver, "redlock_hold_duration_seconds", name=name, end="lost") == 1
    assert number(driver, "redlock_renewals_total", outcome="lost") >= 1


@every_face
@pytest.mark.parametrize("shape", ["lock", "one of several", "semaphore", "without taking it"])
def test_a_process_that_waits_for_itself_is_told(
    drivers: Drivers, node: Cluster, shape: str, face: str, name: str
) -> None:
    driver = drivers.fresh(face)
    client = driver.client(node.urls, ttl_ms=RENEWED_TTL_MS, label="the holder")
    waiter = driver.client(node.urls, ttl_ms=SHORT_TTL_MS, label="the waiter")
    if shape == "semaphore":
        held, same = [client.semaphore(name, 2) for _ in range(2)], waiter.semaphore(name, 2)
    else:
        held = [client.lock_all(several(name)) if shape == "one of several" else client.lock(name)]
        same = waiter.lock(held[0].names[-1])
    for lock in held:
        lock.acquire()
    takes = shape != "without taking it"
    waiting = same.start_acquire(timeout_ms=None) if takes else waiter.start_wait_free(same.name)
    event = heard(driver, "waits_for_own_process")
    assert event["fields"]["label"] == "the holder"
    assert event["fields"]["name"] == same.name.decode()
    # Once for each call, although it goes on waiting.
    held[0].extend(ttl_ms=RENEWED_TTL_MS)
    time.sleep(1.5 * SHORT_TTL_MS / 1000)
    assert not [event for event in driver.events() if event["code"] == "waits_for_own_process"]
    for lock in held:
        lock.release()
    assert waiting.result()["acquired" if takes else "free"]


@every_face
def test_a_process_that_hands_its_lock_on_is_not_told(drivers: Drivers, node: Cluster, face: str, name: str) -> None:
    """A call waits for longer than the ttl, and each of those before it has the lock for less."""
    driver = drivers.fresh(face)
    client = driver.client(node.urls, ttl_ms=RENEWED_TTL_MS)
    locks = [client.lock(name) for _ in range(5)]
    locks[0].acquire()
    waiting = [lock.start_acquire(timeout_ms=None) for lock in locks[1:]]
    left = list(zip(locks[1:], waiting, strict=True))
    has = locks[0]
    while True:
        time.sleep(RENEWED_TTL_MS / 3000)
        has.release()
        if not left:
            break
        has, won = next_won(left)
        assert won.result()["acquired"]
        left.remove((has, won))
    assert not [event for event in driver.events() if event["code"] == "waits_for_own_process"]


@every_face
def test_what_happens_to_the_node_of_a_held_lock(drivers: Drivers, own_nodes: Cluster, face: str, name: str) -> None:
    driver = drivers.fresh(face)
    client = driver.client(own_nodes.urls, ttl_ms=RENEWED_TTL_MS, node_timeout_ms=NODE_TIMEOUT_MS)
    lock, node = client.lock(name), client.diagnose()[0]["node"]
    lock.acquire()
    until(lambda: count(driver, "redlock_renewal_margin_ratio") >= 2, "it was renewed twice")
    assert number(driver, "redlock_renewals_total", outcome="renewed") >= 2
    assert number(driver, "redlock_renewals_total", outcome="lost") == 0
    own_nodes[0].freeze()
    # On a busy machine it may have been silent before, and what is heard of that is not this.
    until(lambda: number(driver, "redlock_node_up", node=node) == 0, "it is down")
    heard(driver, "node_silent", node=node)
    own_nodes[0].thaw()
    until(lambda: number(driver, "redlock_node_up", node=node) == 1, "it is up")
    heard(driver, "node_answers", node=node)
    own_nodes[0].configure(maxmemory_policy="noeviction", maxmemory=1)
    client.lock(f"{name}, too").acquire()
    assert "raise maxmemory" in heard(driver, "node_refuses", node=node)["fields"]["failure"]
    own_nodes[0].configure(maxmemory=0)
    own_nodes[0].wipe()
    heard(driver, "node_restarted", node=node)


@every_face
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("INFO", "node_refuses_info"),
        ("CLIENT TRACKING", "tracking_refused"),
        ("CLIENT TRACKING", "node_refuses_tracking"),
        ("HELLO", "node_refuses_hello"),
        ("HELLO", "node_refuses_tracking"),
        ("EVALSHA", "node_refuses_evalsha"),
    ],
)
def test_what_a_server_refuses_is_told(
    drivers: Drivers, node: Cluster, face: str, name: str, command: str, code: str
) -> None:
    with Proxy(node[0], rules=[forbidden(command)]) as proxy:
        driver = drivers.fresh(face)
        client = driver.client([proxy.url])
        lock, other = client.lock(name), client.lock(name)
        lock.acquire()

        def is_refused() -> bool:
            lock.release()
            lock.acquire()
            return proxy.met[command] > 0

        if command == "EVALSHA":
            # A connection sends a hash from the second time on. The next connection tells of the refusal.
            until(is_refused, "a hash is refused")
        # Only a connection on which calls wait asks to be told.
        waiting = other.start_acquire()
        heard(driver, code, node=client.diagnose()[0]["node"])
        lock.release()
        waiting.result()
        other.release()


@every_face
def test_a_server_that_may_evict_is_told(
    drivers: Drivers, start_nodes: Callable[..., Cluster], face: str, name: str
) -> None:
    (server,) = start_nodes(1)
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    driver = drivers.fresh(face)
    driver.client([server.url]).lock(name).acquire()
    heard(driver, "node_evicts", node=server.address, policy="allkeys-lru")
