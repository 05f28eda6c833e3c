"""The suite finds planted faults: a suite that never fails proves nothing.

drivers/faulty.py replaces Python's faces in separate runs. With each of its faults, the test case for this fault must
fail. Without a fault, the same test cases must pass.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from conformance.conftest import under_test
from conformance.drivers.faulty import FAULTS
from conformance.planted import FAULTY
from support.process import python

HERE = Path(__file__).parent

Failures = dict[str, list[str]]
"""The failing lines of each story with its fault."""

Found = tuple[str, str, str]
"""A fault, the test case that finds it, and the text of the failing line."""

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
    "owner-by-label": (
        "test_view.py::test_two_owners_with_one_label[python]",
        "two owners are taken for one",
    ),
    "late-fence": (
        "test_view.py::test_fence_that_was_granted_too_late_does_not_count[python]",
        "a fence larger than the holder's",
    ),
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
    "short-least": (
        "test_at_least.py::test_nobody_else_gets_it_until_then[one node-released-plain-python]",
        "it was free too soon",
    ),
    "lengthening-leave": (
        "test_at_least.py::test_no_key_lives_longer_for_it[one node-plain-python]",
        "a key lives longer than it did",
    ),
    "no-margin": (
        "test_margin.py::test_it_is_lost_before_others_can_have_it[one node-plain-python]",
        "another has it within the margin",
    ),
    "late-margin": (
        "test_margin.py::test_it_is_lost_before_others_can_have_it[one node-of_all-python]",
        'won["remaining_ms"] <= valid_ms',
    ),
    "unmargined-extend": (
        "test_margin.py::test_an_extension_keeps_the_margin[python]",
        'extended["remaining_ms"] <= most_ms',
    ),
    "margin-for-all": (
        "test_margin.py::test_keys_that_are_gone_need_no_margin[five nodes-python]",
        "it is free at once",
    ),
    "patient-margin": (
        "test_margin.py::test_a_release_within_the_margin_is_sent_at_once[one node-plain-python]",
        "it has waited for the margin",
    ),
    "margin-after-release": (
        "test_margin.py::test_a_release_in_time_is_an_ordinary_one[one node-python]",
        "it is free at once",
    ),
    "late-renewal": (
        "test_margin.py::test_it_is_renewed_sooner[python]",
        "it is renewed too late for its margin",
    ),
    "least-from-release": (
        "test_at_least.py::test_a_release_after_that_time_is_an_ordinary_one[one node-python]",
        "it is free at once",
    ),
    "held-while-left": (
        "test_at_least.py::test_the_holder_is_not_held_from_the_release_on[one node-plain-python]",
        "DID NOT RAISE",
    ),
    "undone-leave": (
        "test_at_least.py::test_an_extension_that_comes_late_changes_nothing[plain-python]",
        "it has extended what was released",
    ),
    "kept-loss": (
        "test_at_least.py::test_a_lost_lock_is_not_kept[plain-python]",
        "the others are free at once",
    ),
    "kept-attempt": (
        "test_at_least.py::test_a_lost_attempt_is_not_kept[python]",
        "not any(server.has(name)",
    ),
    "least-and-ttl": (
        "test_at_least.py::test_a_crash_keeps_it_for_the_longer_of_both[one node-shorter than the ttl-plain-python]",
        "kept_ms + SLACK_MS",
    ),
    "least-of-all": ("test_at_least.py::test_the_default_of_a_client[python]", "node.has(each)"),
    "long-ttl": (
        "test_lock_all.py::test_a_crashed_holder_blocks_for_one_ttl[one node-python]",
        "SHORT_TTL_MS + SLACK_MS",
    ),
    "first-floor": (
        "test_lock_all.py::test_its_fence_is_larger_than_each_former_one[one node-last-python]",
        "fence > largest",
    ),
    "takes-what-is-free": (
        "test_lock_all.py::test_a_held_name_denies_all[one node-last-python]",
        "not lock.try_acquire()",
    ),
    "hoarding-waiter": (
        "test_lock_all.py::test_a_waiter_holds_none_and_is_woken_by_the_last[one node-last-python]",
        "the waiter holds a name",
    ),
    "first-name-release": (
        "test_lock_all.py::test_all_are_held_and_released_together[one node-python]",
        "no node has a key",
    ),
    "first-name-confirm": (
        "test_lock_all.py::test_a_fence_of_one_node_is_kept_by_a_quorum_for_each_name[python]",
        "a quorum did not keep the fence of",
    ),
    "any-name-extend": (
        "test_lock_all.py::test_one_name_that_is_deleted_loses_all[one node-first-python]",
        "DID NOT RAISE",
    ),
    "blind-release-of-all": (
        "test_lock_all.py::test_one_name_that_another_has_loses_all[one node-first-python]",
        "the lock's keys were deleted",
    ),
    "all-or-none-release": (
        "test_lock_all.py::test_a_release_leaves_the_keys_of_others[python]",
        "and there",
    ),
    "no-restore": (
        "test_lock_all.py::test_a_minority_that_has_lost_a_name_gets_it_back[three nodes-python]",
        "the node has got it back",
    ),
    "first-name-restore": (
        "test_lock_all.py::test_a_name_that_was_granted_later_is_restored_once_the_others_know[last-python]",
        "it has taken a name that was granted after it",
    ),
    "overwrites-other-types": (
        "test_lock_all.py::test_a_key_of_another_type_is_in_the_way[one node-python]",
        "not lock.try_acquire()",
    ),
    "other-type-is-gone": (
        "test_lock_all.py::test_a_key_of_another_type_is_another_owners[one node-python]",
        '"taken"',
    ),
    "eight-names": ("test_lock_all.py::test_the_most_names[one node-python]", "names are 16"),
    "repeated-names": ("test_lock_all.py::test_repeated_names_count_once[one node-python]", "shown_names()"),
    "one-name-apart": ("test_lock_all.py::test_one_name_is_the_ordinary_lock[one node-python]", '"worker 7"'),
    "first-prefix": (
        "test_lock_all.py::test_the_prefix_of_keys_is_for_each_name[one node-python]",
        'nodes.has(f"app:{each}")',
    ),
    "polling-waiter": ("test_lock_all.py::test_waiting_costs_next_to_nothing[python]", " scripts"),
    "one-more-permit": (
        "test_semaphore.py::test_as_many_hold_it_as_there_are_permits[one node-python]",
        "not late.try_acquire()",
    ),
    "one-vote-slot": (
        "test_semaphore.py::test_a_minority_that_is_away_gives_no_further_permit[python]",
        "for client in clients",
    ),
    "stubborn-waiter": ("test_semaphore.py::test_a_release_wakes_a_waiter[one node-python]", "took"),
    "permits-in-key": (
        "test_semaphore.py::test_callers_with_different_permits[one node-python]",
        "not many.try_acquire()",
    ),
    "one-slot-try": ("test_semaphore.py::test_one_try_finds_the_one_free_slot[one node-python]", "is free"),
    "forgetful-release": ("test_semaphore.py::test_fences_of_each_slot_rise[one node-python]", "sorted(each)"),
    "slot-is-lock": (
        "test_semaphore.py::test_a_lock_and_a_semaphore_of_one_name_do_not_meet[one node-python]",
        "not semaphore.is_locked()",
    ),
    "first-slot-shown": (
        "test_semaphore.py::test_what_an_inspection_shows[one node-python]",
        "view[field] for field in shown",
    ),
    "prefix-before-slot": (
        "test_semaphore.py::test_the_prefix_of_keys_is_that_of_the_name[one node-python]",
        "nodes.has(slot_key(",
    ),
    "told-term": ("test_election.py::test_who_leads[five nodes-python]", '"term": number'),
    "impatient-candidate": ("test_election.py::test_the_options_of_an_election[python]", "it has not waited"),
    "discouraged-candidate": ("test_election.py::test_a_campaign_outlasts_an_outage", "run.pending"),
    "one-term": ("test_election.py::test_a_lost_leader_campaigns_again[one node-python]", "it leads again"),
    "late-stop": ("test_election.py::test_a_campaign_that_is_stopped[one node-python]", "took"),
    "untold-failure": ("test_election.py::test_a_body_that_fails_resigns[one node-python]", '["failed"]'),
    "reader-alone": (
        "test_shared.py::test_readers_overlap_and_a_writer_is_alone[one node-python]",
        "readers exclude each other",
    ),
    "readers-apart": (
        "test_shared.py::test_readers_overlap_and_a_writer_is_alone[one node-python]",
        "a writer beside readers",
    ),
    "writer-beside-readers": (
        "test_shared.py::test_readers_overlap_and_a_writer_is_alone[one node-python]",
        "a writer beside readers",
    ),
    "reader-beside-writer": (
        "test_shared.py::test_readers_overlap_and_a_writer_is_alone[one node-python]",
        "a reader beside a writer",
    ),
    "any-sorted-set": (
        "test_shared.py::test_somebodys_sorted_set_is_in_the_way[one node-python]",
        "not lock.try_acquire()",
    ),
    "release-of-all-readers": (
        "test_shared.py::test_a_release_ends_one_reader_alone[one node-python]",
        "LockError: lost",
    ),
    "last-ttl-of-readers": (
        "test_shared.py::test_a_short_reader_does_not_end_a_long_one[one node-python]",
        "the key expires with the short one",
    ),
    "longest-ttl-of-readers": (
        "test_shared.py::test_a_dead_reader_ends_though_others_are_renewed[one node-python]",
        "the dead one is in the way",
    ),
    "readers-by-the-server": (
        "test_shared.py::test_readers_keep_their_time_on_a_server_with_another_clock[one node-behind-python]",
        "LockError: lost",
    ),
    "reader-old-fence": (
        "test_shared.py::test_fences_of_readers_and_writers_rise[one node-python]",
        "a fence is not larger than the one before",
    ),
    "reader-forgotten-fence": (
        "test_shared.py::test_fences_of_readers_and_writers_rise[one node-python]",
        "a fence is not larger than the one before",
    ),
    "no-intent": (
        "test_shared.py::test_a_waiting_writer_is_not_passed_by_readers[one node-python-python]",
        "a reader passes by",
    ),
    "untold-intent": (
        "test_shared.py::test_a_waiting_writer_is_not_passed_by_readers[one node-python-python]",
        "the nodes know that it waits",
    ),
    "kept-intent": (
        "test_shared.py::test_a_writer_that_gives_up_lets_readers_in[one node-python]",
        "LockError: ",
    ),
    "reader-not-renewed": ("test_shared.py::test_a_reader_is_renewed[one node-python]", 'assert state["held"]'),
    "reader-never-told": ("test_shared.py::test_the_expiry_of_a_reader_is_told[python]", "NoneType"),
    "recreating-reader": (
        "test_shared.py::test_a_reader_whose_key_is_deleted_is_lost[one node-python]",
        "DID NOT RAISE",
    ),
    "unfenced-reader": (
        "test_shared.py::test_an_extension_does_not_count_a_later_sharing[one node-python]",
        "DID NOT RAISE",
    ),
    "late-reader": (
        "test_shared.py::test_a_reader_is_restored_where_somebody_was_later_once_the_others_know[python]",
        "it has come back behind a later owner",
    ),
    "detached-term": ("test_hand_over.py::test_a_term_is_not_handed_over[python]", "invalid_argument"),
    "kept-token": (
        "test_hand_over.py::test_late_extension_of_the_former_holder[one node-python]",
        "every node has re-keyed",
    ),
    "any-token": (
        "test_hand_over.py::test_of_two_attachments_one_has_the_lock[one node-python]",
        "DID NOT RAISE",
    ),
    "second-fence": (
        "test_hand_over.py::test_failed_attachment_can_be_repeated[python]",
        "attached.fence == fence",
    ),
    "no-key-back": (
        "test_hand_over.py::test_failed_attachment_can_be_repeated[python]",
        "every node has the text's token again",
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

ALSO_FOUND_BY: list[Found] = [
    # The faults of all shapes, found in each of them.
    (
        "no-clean-up",
        "test_lock_all.py::test_a_name_held_on_a_quorum_leaves_nothing_on_the_others[three nodes-python]",
        "",
    ),
    (
        "deaf-waiter",
        "test_lock_all.py::test_whoever_frees_the_last_name_wakes_the_waiter[one node-deleted-python]",
        "took",
    ),
    (
        "hoarding-waiter",
        "test_lock_all.py::test_overlapping_sets_never_deadlock[one node-python]",
        "no answer to acquire",
    ),
    (
        "hoarding-waiter",
        "test_lock_all.py::test_cancelled_waiters_keep_nobody_back[one node-asyncio]",
        "the cancelled call has left nothing",
    ),
    (
        "no-clean-up",
        "test_semaphore.py::test_a_lost_attempt_at_a_slot_leaves_nothing[python]",
        "it keeps a part of a slot",
    ),
    (
        "two-holders",
        "test_semaphore.py::test_as_many_hold_it_as_there_are_permits[one node-python]",
        "the history is wrong",
    ),
    (
        "long-ttl",
        "test_semaphore.py::test_a_crashed_holder_keeps_its_slot_for_one_ttl[one node-python]",
        "SHORT_TTL_MS + SLACK_MS",
    ),
    ("deaf-waiter", "test_semaphore.py::test_a_slot_that_is_deleted_by_hand_is_found[one node-python]", "took"),
    ("polling-waiter", "test_semaphore.py::test_waiting_costs_next_to_nothing[python]", " scripts"),
    ("polling-waiter", "test_semaphore.py::test_renewals_wake_no_waiter[one node-python]", " looks in"),
    (
        "recreating-extend",
        "test_semaphore.py::test_a_slot_that_is_deleted_is_lost_alone[one node-python]",
        "DID NOT RAISE",
    ),
    (
        "two-holders",
        "test_semaphore.py::test_keys_of_another_type_are_in_the_way[one node-python]",
        "semaphore(name, PERMITS)",
    ),
    ("blocked-line", "test_semaphore.py::test_cancelled_waiters_keep_nobody_back[one node-asyncio]", "no answer"),
    (
        "readers-apart",
        "test_shared.py::test_readers_and_writers_take_turns[one node-python-python]",
        "writer.try_acquire",
    ),
    (
        "reader-beside-writer",
        "test_shared.py::test_plain_peers_exclude_readers_and_are_excluded[one node-python]",
        "not reader.try_acquire()",
    ),
    (
        "long-ttl",
        "test_shared.py::test_a_crashed_reader_blocks_for_one_ttl[one node-python]",
        "SHORT_TTL_MS + SLACK_MS",
    ),
    (
        "no-restore",
        "test_shared.py::test_a_minority_that_has_lost_a_reader_gets_it_back[three nodes-python]",
        "the nodes have got it back",
    ),
    (
        "kept-cancelled",
        "test_shared.py::test_readers_that_are_cancelled_at_any_moment_leave_nothing[one node-asyncio]",
        "a cancelled acquire leaves nothing",
    ),
    (
        "two-holders",
        "test_election.py::test_one_leads_at_a_time_and_terms_rise[one node-python]",
        "the history is wrong",
    ),
    ("long-ttl", "test_election.py::test_a_killed_leader_is_replaced[one node-python]", "SHORT_TTL_MS + SLACK_MS"),
    (
        "late-margin",
        "test_election.py::test_a_leader_is_told_before_another_leads[python]",
        "it is told too late for its margin",
    ),
    (
        "no-margin",
        "test_election.py::test_nobody_leads_within_the_margin_of_a_body_that_goes_on[python]",
        "another leads within the margin",
    ),
    ("late-stop", "test_election.py::test_a_term_that_is_stopped[one node-python]", "took"),
    (
        "short-least",
        "test_at_least.py::test_nobody_else_gets_it_until_then[one node-left-slot-python]",
        "it was free too soon",
    ),
    ("no-margin", "test_margin.py::test_a_margin_behind_max_hold[one node-python]", "another has it within the margin"),
    ("no-margin", "test_margin.py::test_a_lock_whose_nodes_do_not_answer[python]", "another has it within the margin"),
]

FOUND: list[Found] = [*((fault, story, why) for fault, (story, why) in FOUND_BY.items()), *ALSO_FOUND_BY]

FIRST: list[Found] = list({found[1].partition("::")[0]: found for found in reversed(FOUND)}.values())
"""A fault for each file of stories: the first one that it finds."""

CHUNK = 8
"""How many test cases one run of pytest has: enough to start it rarely, and few enough for one time limit."""


def chunks(found: list[Found]) -> pytest.MarkDecorator:
    """A test case for each chunk. Stories of all files are in each one, because those of some files take long."""
    number = -(-len(found) // CHUNK)
    parts = [found[at::number] for at in range(number)]
    return pytest.mark.parametrize("found", parts, ids=[f"chunk {at}" for at in range(1, number + 1)])


def command(config: pytest.Config, stories: Iterable[str], *options: str) -> list[str]:
    """Runs test cases apart from this run."""
    # Plugins take as long to load as the test cases to run, and these need one alone.
    words = [*python("pytest"), "-q", "--all", "--disable-plugin-autoload", "-p", "pytest_timeout", *options]
    # There is one server, so that the ids of test cases do not name it.
    words += ["--server", str(under_test(config)[0])]
    if directory := config.getoption("--driver-dir"):
        words += ["--driver-dir", str(directory)]
    return [*words, *(str(HERE / story) for story in stories)]


def failures(
    config: pytest.Config, tmp_path: Path, plants: Iterable[tuple[str, str]]
) -> tuple[dict[str, list[str]], str]:
    """Runs stories with their faults; returns the failing lines of each, none if it passed, and the output."""
    report = tmp_path / "failures.json"
    options = ["-p", "conformance.planted", "--plant-report", str(report)]
    for fault, story in plants:
        options += ["--plant", f"{fault} {story}"]
    # A function is collected with all its faults.
    functions = dict.fromkeys(story.partition("[")[0] for _, story in plants)
    result = subprocess.run(command(config, functions, *options), capture_output=True, text=True, check=False)
    output = result.stdout + result.stderr
    assert report.exists(), output
    failed: Failures = json.loads(report.read_text(encoding="utf-8"))
    missing = {f"{fault} {story}" for fault, story in plants} - failed.keys()
    assert not missing, f"unknown stories: {missing}\n{output}"
    return failed, output


def must_be_found(config: pytest.Config, tmp_path: Path, found: list[Found]) -> None:
    """Fails with the names of the faults that their stories have not found, or not for the reason."""
    failed, output = failures(config, tmp_path, [(fault, story) for fault, story, _ in found])
    wrong = {}
    for fault, story, why in found:
        lines = "\n".join(failed[f"{fault} {story}"])
        if not lines or why not in lines:
            wrong[f"{fault} {story}"] = f"not {why!r}, but {lines}" if lines else "nothing was found"
    assert not wrong, "\n".join([*(f"{planted}: {what}" for planted, what in wrong.items()), output])


@pytest.mark.timeout(600)
@chunks(FIRST)
def test_a_fault_is_found_by_each_file(pytestconfig: pytest.Config, tmp_path: Path, found: list[Found]) -> None:
    must_be_found(pytestconfig, tmp_path, found)


@pytest.mark.test_all("a fault is found by each file of stories already")
@pytest.mark.timeout(600)
@chunks([found for found in FOUND if found not in FIRST])
def test_every_other_fault_is_found(pytestconfig: pytest.Config, tmp_path: Path, found: list[Found]) -> None:
    must_be_found(pytestconfig, tmp_path, found)


@pytest.mark.test_all("the stories run with the drivers of Python, and one with the faulty driver just below")
@pytest.mark.timeout(600)
@chunks(FOUND)
def test_without_a_fault_nothing_is_found(pytestconfig: pytest.Config, tmp_path: Path, found: list[Found]) -> None:
    failed, output = failures(pytestconfig, tmp_path, [("none", story) for _, story, _ in found])
    assert not any(failed.values()), output


def test_known_failures_must_fail(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    story, _ = FOUND_BY["told-token"]
    known = tmp_path / "known_failures.toml"
    known.write_text("[[failure]]\nstory = 'test_secrets.py::*[python]'\nreason = 'it tells the token'\n")
    options = ["--known-failures", str(known), "-rxX"]

    def run(fault: str) -> subprocess.CompletedProcess[str]:
        driver = f"python={FAULTY} --fault {fault}"
        words = command(pytestconfig, [story], *options, "--driver", driver)
        return subprocess.run(words, capture_output=True, text=True, check=False)

    failing = run("told-token")
    assert failing.returncode == 0, failing.stdout
    assert "it tells the token" in failing.stdout, failing.stdout
    passing = run("none")
    assert passing.returncode == pytest.ExitCode.TESTS_FAILED, passing.stdout
    assert "XPASS(strict)" in passing.stdout, passing.stdout


def test_every_fault_has_its_story() -> None:
    assert {*FOUND_BY, "none"} == FAULTS.keys()
