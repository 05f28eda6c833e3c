"""The suite finds planted faults: a suite that never fails proves nothing.

drivers/faulty.py replaces Python's faces in separate runs. With each of its faults, the test case for this fault must
fail. Without a fault, the same test cases must pass.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.conftest import under_test
from conformance.drivers.faulty import FAULTS
from support.process import python

HERE = Path(__file__).parent
FAULTY = shlex.join(python("conformance.drivers.faulty"))

FOUND_BY = {
    "blind-release": (
        "test_loss.py::test_late_release_leaves_the_next_holder_alone[one node-python]",
        "nodes.has(name)",
    ),
    "prefix-release": (
        "test_loss.py::test_value_that_begins_alike_is_somebody_elses[python]",
        "it has released what only begins like its own",
    ),
    "held-for-ever": (
        "test_loss.py::test_nobody_is_told_that_an_expired_lock_is_held[python]",
        "latest_end_ns",
    ),
    "no-drift": (
        "test_life.py::test_acquire_extend_check_release[one node-python]",
        'remaining_ms"] <= TTL_MS - DRIFT_MS',
    ),
    "falling-fence": ("test_pairs.py::test_hand_over[one node-python-python]", "the history is wrong"),
    "unconfirmed-fence": (
        "test_minority.py::test_fence_of_one_node_is_kept_by_a_quorum[python]",
        "a quorum did not keep the fence",
    ),
    "two-holders": ("test_pairs.py::test_hand_over[one node-python-python]", "the history is wrong"),
    "never-told": ("test_loss.py::test_expiry_is_told[python]", "NoneType"),
    "no-clean-up": (
        "test_minority.py::test_lost_attempt_leaves_nothing[python]",
        "the minority is not free again",
    ),
    "waits-for-all": (
        "test_minority.py::test_hung_minority_delays_nobody[python]",
        "it has waited for the hung minority",
    ),
    "recreating-extend": (
        "test_loss.py::test_extension_brings_no_deleted_key_back[one node-python]",
        "the extension has created the key",
    ),
    "late-timeout": ("test_life.py::test_denied[one node-python]", "limit_ms + SLACK_MS"),
    "acquired-twice": ("test_life.py::test_misuse[python]", "DID NOT RAISE"),
    "mangled-name": ("test_life.py::test_names_that_are_no_text[one node-python]", "the key is not the name"),
    "any-option": ("test_tables.py::test_unknown_option[python]", "DID NOT RAISE"),
    "no-votes": (
        "test_loss.py::test_minority_of_dead_and_hung_nodes[python]",
        "the answers of the nodes are wrong",
    ),
    "told-password": (
        "test_secrets.py::test_secrets_are_not_told[python]",
        "told: the password",
    ),
    "told-token": ("test_secrets.py::test_secrets_are_not_told[python]", "told: the token"),
    "logged-token": ("test_secrets.py::test_secrets_are_not_told[python]", "told: the token"),
    "half-quorum": ("test_quorum.py::test_attempts[python]", "won is True"),
    "same-token": ("test_attempt.py::test_every_attempt_has_a_token_of_its_own[python]", "a token is used again"),
    "blocked-retry": (
        "test_attempt.py::test_lost_vote_does_not_block_the_retry[five nodes-python]",
        "its own leftover was in its way",
    ),
    "blind-confirm": (
        "test_attempt.py::test_node_that_was_taken_does_not_confirm[python]",
        "won with nodes that others hold",
    ),
    "kept-cancelled": (
        "test_attempt.py::test_cancelled_at_any_moment_leaves_nothing[one node-asyncio]",
        "a cancelled acquire has left its key",
    ),
    "overtaking-release": (
        "test_network.py::test_release_that_overtakes_its_acquire[python]",
        "the key is gone from every node",
    ),
    "single-release": (
        "test_network.py::test_acquire_that_outlives_its_connection[python]",
        "the key is gone from every node",
    ),
    "late-win": (
        "test_network.py::test_answers_later_than_the_validity[two rounds-python]",
        "won although its validity was over",
    ),
    "down-is-busy": ("test_attempt.py::test_busy_and_down_are_different[python]", "DID NOT RAISE"),
    "unfenced-extend": (
        "test_extend.py::test_extension_does_not_count_a_later_grant[five nodes-python]",
        "DID NOT RAISE",
    ),
    "lost-by-silence": (
        "test_extend.py::test_failed_extension_keeps_the_lock[python]",
        'code == "unavailable"',
    ),
    "first-answer": ("test_quorum.py::test_held_locks[extensions-python]", "two nodes, one gone"),
    "reviving-extend": (
        "test_extend.py::test_extension_after_the_end_creates_nothing[one node-python]",
        "DID NOT RAISE",
    ),
    "late-restore": (
        "test_extend.py::test_release_ends_every_extension[python]",
        "no key of a released lock is there",
    ),
    "endless-hold": (
        "test_extend.py::test_extension_does_not_pass_max_hold[one node-python]",
        "extended past max_hold",
    ),
    "half-ttl": ("test_tables.py::test_what_options_do_on_a_node[python]", "ttl_ms of"),
    "endless-fence": (
        "test_extend.py::test_fences_are_kept_while_a_lock_is[one node-python]",
        "a fence is kept for ever",
    ),
    "forgotten-fence": (
        "test_extend.py::test_fences_are_kept_while_a_lock_is[one node-python]",
        "no quorum keeps the fence",
    ),
    "deaf-waiter": (
        "test_waiting.py::test_whoever_frees_the_key_wakes_the_waiter[one node-del-python]",
        "took",
    ),
    "blocked-line": (
        "test_waiting.py::test_waiters_that_are_cancelled_keep_nobody_back[one node-asyncio]",
        "somebody gets the lock",
    ),
    "patient-release": (
        "test_loss.py::test_late_release_is_quick[one node-python]",
        "it has waited for longer than one node_timeout",
    ),
    "setnx-two-holders": ("test_setnx.py::test_exclude_each_other[python]", "not wants.try_acquire()"),
    "setnx-early-takeover": (
        "test_setnx.py::test_takeover_after_a_crash[python]",
        "was taken over before its time was over",
    ),
    "setnx-late-takeover": ("test_setnx.py::test_takeover_after_a_crash[python]", "ms and the slack"),
    "setnx-del-takeover": ("test_setnx.py::test_one_of_two_takes_over[python]", "it is not one who has taken it over"),
    "setnx-any-value": ("test_setnx.py::test_values[python]", "not a number: taken"),
    "setnx-blind-release": (
        "test_setnx.py::test_release_that_arrives_late_leaves_the_next_holder_alone[python-ours]",
        "there is no key",
    ),
    "setnx-picky-release": ("test_setnx.py::test_release_after_a_losers_getset[python]", "LockError: lost"),
    "setnx-repeated-release": (
        "test_setnx.py::test_release_is_not_repeated[python]",
        "the next holder's lock was deleted",
    ),
    "setnx-kept-grant": ("test_setnx.py::test_late_grant_is_given_back[python]", "it is given back"),
    "setnx-endless-key": (
        "test_setnx.py::test_crash_in_an_acquire_leaves_no_lock_for_ever[python-before its answer]",
        "the server keeps it for ever",
    ),
    "setnx-extends": ("test_setnx.py::test_what_it_cannot_do[python]", "DID NOT RAISE"),
    "setnx-many-nodes": ("test_setnx.py::test_several_nodes[python]", "DID NOT RAISE"),
}


def run(
    config: pytest.Config, fault: str, *stories: str, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs test cases with the faulty driver."""
    command = [sys.executable, "-m", "pytest", "-q", *options]
    # There is one server, so that the ids of test cases do not name it.
    command += ["--server", str(under_test(config)[0])]
    for face in ("python", "asyncio"):
        command += ["--driver", f"{face}={FAULTY} --fault {fault}"]
    if directory := config.getoption("--driver-dir"):
        command += ["--driver-dir", str(directory)]
    paths = [str(HERE / story) for story in stories]
    return subprocess.run([*command, *paths], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("fault", FOUND_BY)
def test_fault_is_found(pytestconfig: pytest.Config, fault: str) -> None:
    story, why = FOUND_BY[fault]
    result = run(pytestconfig, fault, story)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, f"nothing was found:\n{result.stdout}{result.stderr}"
    # This is only the line that failed and its message: the lines above it were right.
    failure = "\n".join(line for line in result.stdout.splitlines() if line.startswith((">", "E ")))
    assert why in failure, result.stdout


def test_known_failures_must_fail(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    story, _ = FOUND_BY["told-token"]
    known = tmp_path / "known_failures.toml"
    known.write_text("[[failure]]\nstory = 'test_secrets.py::*[python]'\nreason = 'it tells the token'\n")
    options = ["--known-failures", str(known), "-rxX"]
    failing = run(pytestconfig, "told-token", story, options=options)
    assert failing.returncode == 0, failing.stdout
    assert "it tells the token" in failing.stdout, failing.stdout
    passing = run(pytestconfig, "none", story, options=options)
    assert passing.returncode == pytest.ExitCode.TESTS_FAILED, passing.stdout
    assert "XPASS(strict)" in passing.stdout, passing.stdout


def test_every_fault_has_its_story() -> None:
    assert {*FOUND_BY, "none"} == FAULTS.keys()


@pytest.mark.parametrize("file", sorted({story.partition("::")[0] for story, _ in FOUND_BY.values()}))
def test_without_a_fault_nothing_is_found(pytestconfig: pytest.Config, file: str) -> None:
    result = run(
        pytestconfig, "none", *dict.fromkeys(story for story, _ in FOUND_BY.values() if story.startswith(file))
    )
    assert result.returncode == 0, result.stdout + result.stderr
