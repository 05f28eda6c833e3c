"""What an operator is told about nodes, alike in every language."""

from __future__ import annotations

from collections.abc import Callable

from conformance.conftest import Drivers, every_face
from conformance.driver import Json
from support.rights import fewest
from support.servers import Cluster


def levels(diagnosis: Json) -> dict[str, str]:
    """The level of each check."""
    return {finding["check"]: finding["level"] for finding in diagnosis["findings"]}


@every_face
def test_nodes_of_every_kind(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str) -> None:
    first, second, third = nodes = start_nodes(3)
    second.configure(maxmemory_policy="allkeys-lru")
    third.kill()
    good, evicts, gone = drivers.start(face).client(nodes.urls).diagnose()
    assert [good["node"], evicts["node"], gone["node"]] == [node.address for node in nodes]
    assert (good["level"], evicts["level"], gone["level"]) == ("ok", "warning", "unusable")
    assert set(levels(good).values()) == {"ok"}
    assert {check for check, level in levels(evicts).items() if level != "ok"} == {"eviction"}
    assert levels(gone) == {"connection": "unusable"}
    assert all(finding["message"] for finding in good["findings"])
    assert not first.keys()


@every_face
def test_rights(drivers: Drivers, start_nodes: Callable[..., Cluster], face: str) -> None:
    """The user with the fewest rights has all that locks need."""
    (server,) = start_nodes(1, user=fewest())
    driver = drivers.start(face)
    found = driver.client([server.url], key_prefix="lock:").diagnose()
    assert {levels(diagnosis)["rights"] for diagnosis in found} == {"ok"}
    server.set_user(fewest().name, "-pexpire")
    found = driver.client([server.url], key_prefix="lock:").diagnose()
    # In a cluster, each server is diagnosed.
    (diagnosis,) = (each for each in found if levels(each)["rights"] == "unusable")
    assert any("pexpire" in finding["message"] for finding in diagnosis["findings"])
