"""The test cases, or whole files, that options of the suite leave out, by reason. Brackets name one variant."""

from __future__ import annotations

import pytest

Reasons = dict[str, list[str]]

FEWEST_COMMANDS: Reasons = {
    "its own proxy takes commands away": [
        "test_commands.py",
        "test_observing.py::test_what_a_server_refuses_is_told",
    ],
    "it is about the commands that are taken away": [
        "test_diagnose.py",
        "test_rights.py",
    ],
    "only INFO shows that the server restarted": [
        "test_restart.py::test_nodes_that_have_forgotten_a_lock_do_not_grant_it",
        "test_view.py::test_a_node_that_may_have_forgotten_the_lock",
    ],
    "only INFO shows which server it is": [
        "test_network.py::test_one_server_under_two_addresses",
        "test_network.py::test_servers_that_are_replaced_by_empty_ones",
    ],
    "a node does not execute a request that is sent by EVALSHA while its answers are held back": [
        "test_extend.py::test_release_ends_every_extension",
    ],
    "without CLIENT TRACKING waiters poll, and have no positions": [
        "test_semaphore.py::test_renewals_wake_no_waiter",
        "test_semaphore.py::test_waiting_costs_next_to_nothing",
        "test_view.py::test_count_begins_again_with_the_next_holder",
        "test_view.py::test_how_many_wait",
        "test_waiting.py::test_waiting_costs_next_to_nothing",
    ],
}

GROUP: Reasons = {
    "several nodes": [
        "test_clock.py::test_clock_of_a_minority_jumps",
        "test_diagnose.py::test_nodes_of_every_kind",
        "test_refusals.py::test_lock_key_of_another_type_is_held",
        "test_refusals.py::test_refusing_nodes",
        "test_refusals.py::test_scripts_are_forgotten",
    ],
    "it fills one server by a script": [
        "test_operators.py::test_a_list_goes_as_far_as_its_reader",
    ],
    "an event names the server, not its group": [
        "test_observing.py::test_a_server_that_may_evict_is_told",
    ],
    "a proxy in front of one server, which clients pass by": [
        "test_at_least.py::test_an_extension_that_comes_late_changes_nothing",
        "test_commands.py",
        "test_network.py::test_acquire_that_outlives_its_connection",
        "test_network.py::test_connections_that_break_within_replies",
        "test_network.py::test_release_that_is_sent_again_finds_the_next_holder",
        "test_observing.py::test_what_a_server_refuses_is_told",
        "test_proxy.py",
        "test_setnx.py::test_late_grant_is_given_back",
        "test_setnx.py::test_one_of_two_takes_over",
        "test_setnx.py::test_release_is_not_repeated",
        "test_setnx.py::test_late_release_leaves_the_next_holder_alone",
        "test_waiting.py::test_many_waiters_that_run_out_of_time_blame_no_node",
    ],
}
"""What no group of servers can be used for."""

CLUSTER: Reasons = GROUP | {
    "a cluster has one database": [
        "test_data_loss.py::test_lost_keys_are_noticed[swap]",
    ],
    "a server that loads says that its cluster is down": [
        "test_restart.py::test_node_that_loads_its_data",
    ],
}
SENTINEL: Reasons = GROUP

LEFT_OUT = {"fewest commands": FEWEST_COMMANDS, "cluster": CLUSTER, "sentinel": SENTINEL}

_ONE = {"start_nodes", "undisturbed"}
_SEVERAL = {"five_nodes", "own_nodes"}


def is_listed(item: pytest.Item, reasons: Reasons) -> bool:
    """Whether a test case is left out for one of these reasons."""
    case, _, variants = item.nodeid.rpartition("/")[2].removesuffix("]").partition("[")
    names = {case.partition("::")[0], case, *(f"{case}[{variant}]" for variant in variants.split("-"))}
    return not names.isdisjoint(each for cases in reasons.values() for each in cases)


def is_about_one_node(item: pytest.Item) -> bool:
    """Whether a test case uses one node, as its fixtures and its parameters tell."""
    assert isinstance(item, pytest.Function)
    used, given = set(item.fixturenames), item.callspec.params if hasattr(item, "callspec") else {}
    numbers = {given.get("nodes", 1), given.get("n", 1)}
    return bool(used & _ONE) and not used & _SEVERAL and numbers == {1}
