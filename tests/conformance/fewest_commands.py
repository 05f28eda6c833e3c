"""The test cases, or whole files, that `--fewest-commands` leaves out, by reason."""

from __future__ import annotations

LEFT_OUT = {
    "its own proxy takes commands away": [
        "test_commands.py",
        "test_rules.py",
    ],
    "it is about the commands that are taken away": [
        "test_diagnose.py",
        "test_rights.py",
    ],
    "only INFO shows that the server restarted": [
        "test_locked.py::test_a_node_that_may_have_forgotten_the_lock",
        "test_restart.py::test_nodes_that_have_forgotten_a_lock_do_not_grant_it",
    ],
    "only INFO shows which server it is": [
        "test_network.py::test_one_server_under_two_addresses",
        "test_network.py::test_servers_that_are_replaced_by_empty_ones",
        "test_restart.py::test_failover_that_loses_a_lock",
    ],
    "a node does not execute a request that is sent by EVALSHA while its answers are held back": [
        "test_extend.py::test_release_ends_every_extension",
    ],
    "without CLIENT TRACKING waiters poll, and have no positions": [
        "test_waiting.py::test_two_processes_take_turns",
        "test_waiting.py::test_waiting_costs_next_to_nothing",
    ],
}


def is_left_out(nodeid: str) -> bool:
    """Whether the test case is left out."""
    case = nodeid.partition("[")[0].rpartition("/")[2]
    listed = {each for cases in LEFT_OUT.values() for each in cases}
    return not {case, case.partition("::")[0]}.isdisjoint(listed)
