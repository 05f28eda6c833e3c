//! Observations on nodes: keys that should be deleted, and missing grants.

use std::time::Duration;

use super::*;

/// A hold of `a`, fence 4, from 10 to 30, valid until 50.
const HOLD: &str = "a acquire 5-10 #4 <50; a release 30-35 #4;";

fn hold(rest: &str) -> String {
    format!("{HOLD} {rest}")
}

#[test]
fn a_key_after_its_release_is_caught() {
    // The hold lasts from its invocation until its release has ended. A node that did not decide the vote may have a smaller
    // fence or a larger one, and a key without a fence is anybody's.
    STRICT.edge(&hold("one key @ #4"), "5|20|35", "36", "leaked: key of \"one\" (fence 4) from 0.000000036 s");
    STRICT.bad(&hold("one key 36 #4"), "0.000000036 s; acquire of \"a\" (fence 4)");
    for fence in ["#3", "#5", ""] {
        STRICT.edge(&hold(&format!("one key @ {fence}")), "35", "36", "leaked");
    }
}

#[test]
fn a_key_may_be_seen_for_as_long_as_it_takes_to_go() {
    // The exact time of an observation that took some time is unknown.
    let rules = Rules { settle: Duration::from_nanos(7), ..STRICT };
    rules.edge(&hold("one key @ #4"), "42|42-90", "43|43-90", "leaked");
}

#[test]
fn a_key_whose_hold_ended_otherwise_is_caught() {
    STRICT.edge("a acquire 5-10 #4 <50; a lost 40 #4; one key @ #4", "40", "41", "leaked");
    // Its holder was killed. An extension moves this.
    let killed = "a acquire 5-10 #4 <50; a release 20-21 #4 failed; one key @ #4";
    STRICT.edge(killed, "50", "51", "leaked");
    STRICT.edge(&format!("{killed}; a extend 12-15 #4 <80"), "80", "81", "leaked");
}

#[test]
fn what_a_client_still_owed_when_it_was_killed_in_an_outage_may_stay_until_its_ttl_is_over() {
    let killed = "one key 50 #4; chaos outage 2-45 name=;";
    // The release did not reach the node, and its client had gone and could not retry it.
    STRICT.edge(&hold("one key @ #4; a stopped 38-; chaos outage 2-45 name="), "50", "51", "leaked");
    // If nodes work, a release reaches them all, and a client that continues can retry it.
    STRICT.edge(&hold(&format!("{killed} a stopped @")), "38-|44-", "45-|38-44", "leaked");
    // The same holds for an attempt that failed.
    let attempt = "one key @ #9; a stopped 22-; chaos outage 2- name=; b acquire 5-20 <40 failed";
    STRICT.bad(&attempt.replace('@', "40"), "leaked");
    STRICT.edge(&attempt.replace("b acquire", "a acquire"), "40", "41", "leaked");
}

#[test]
fn a_key_of_an_attempt_is_caught_when_it_failed_or_its_ttl_is_over() {
    STRICT.edge("b acquire 5-20 failed; one key @ #9", "20", "21", "leaked");
    // Its result is unknown, or it still waits.
    STRICT.edge("b acquire 5- <60 failed; one key @ #9", "60", "61", "leaked");
    STRICT.good("b acquire 5- failed; one key 61 #9");
}

const TWO: Rules = Rules { quorum: Some(2), ..STRICT };

#[test]
fn a_success_without_a_quorum_of_grants_is_caught() {
    let good = ["7 #4; three granted 8 #4", "5 #4; three granted 10 #4", "0-90 #4; two granted 0-90 #4"];
    // From one node twice, too early, too late, of another fence and another name, and to two attempts.
    let bad = [
        "7 #4",
        "7 #4; one granted 8 #4",
        "4 #4; two granted 7 #4",
        "7 #4; two granted 11 #4",
        "7 #4; two granted 7 #3",
        "7 #4; two granted 7 #4 name=bar",
        "7 #4 token=s; two granted 7 #4 token=t",
    ];
    TWO.edge(&hold("one granted @"), &good.join("|"), &bad.join("|"), "the grants of 1 nodes only");
    TWO.bad(HOLD, "the grants of 0 nodes only");
    TWO.good(&hold("one granted 7 #4 token=t; two granted 7 #4 token=t; three granted 7 #4 token=t"));
    // An acquire that was not won needs no grants.
    TWO.good("b acquire 0-10 failed");
    STRICT.good(&hold("one granted 7 #4"));
}

#[test]
fn what_was_seen_on_a_node_has_a_time_and_a_grant_has_a_fence() {
    STRICT.bad(&hold("one key 20- #4"), "not over");
    STRICT.bad(&hold("one granted 20- #4"), "not over");
    STRICT.bad(&hold("one granted 20"), "its fence is missing");
    // Nodes are no clients.
    let report = STRICT.good(&hold("one key 20 #4; one granted 7 #4 name=bar"));
    assert_eq!((report.records, report.clients, report.names), (4, 1, 1));
}
