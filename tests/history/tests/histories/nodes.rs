//! Observations on nodes: keys that should be deleted, and missing grants.

use std::time::Duration;

use redlock_history::{Flaw, Kind, Record, Rules, Violation};

use super::*;

/// A node had a key from before `at` to after it.
fn key(at: u64, fence: u64) -> Record {
    record("node 1", Kind::Key, (at, at), fence, None)
}

/// A hold of `a`, fence 4, from 10 to 30, valid until 50.
fn hold(rest: impl IntoIterator<Item = Record>) -> Vec<Record> {
    [acquire("a", (5, 10), 4, 50), release("a", (30, 35), 4)].into_iter().chain(rest).collect()
}

#[track_caller]
fn is_leak(records: Vec<Record>) -> Violation {
    let violation = bad(records);
    assert!(matches!(violation, Violation::Leaked { .. }), "{violation}");
    violation
}

#[test]
fn a_key_of_a_hold_that_is_going_on_is_good() {
    // This lasts from its invocation until its release has ended.
    for at in [5, 20, 35] {
        good(&STRICT, hold([key(at, 4)]));
    }
}

#[test]
fn a_key_after_its_release_is_caught() {
    let violation = is_leak(hold([key(36, 4)]));
    let Violation::Leaked { hold: Some(hold), .. } = &violation else { panic!("{violation}") };
    assert_eq!(hold.acquired.fence, Some(4));
    assert!(violation.to_string().contains("leaked: \"node 1\" had its key at 0.000000036 s"), "{violation}");
}

#[test]
fn a_key_may_be_seen_for_as_long_as_it_takes_to_go() {
    let rules = Rules { settle: Duration::from_nanos(7), ..STRICT };
    good(&rules, hold([key(42, 4)]));
    assert!(matches!(one(hold([key(43, 4)]), &rules), Violation::Leaked { .. }));
    // The exact time of the observation is unknown.
    good(&rules, hold([record("node 1", Kind::Key, (42, 90), 4, None)]));
}

#[test]
fn a_key_after_a_loss_was_told_is_caught() {
    let told = |at| vec![acquire("a", (5, 10), 4, 50), lost("a", 40, 4), key(at, 4)];
    good(&STRICT, told(40));
    is_leak(told(41));
}

#[test]
fn a_key_whose_holder_is_gone_may_stay_until_its_validity_ends() {
    let killed = |at| vec![acquire("a", (5, 10), 4, 50), failed(release("a", (20, 21), 4)), key(at, 4)];
    good(&STRICT, killed(50));
    is_leak(killed(51));
    // An extension moves this.
    let extended = |at| [killed(at), vec![extend("a", (12, 15), 4, 80)]].concat();
    good(&STRICT, extended(80));
    is_leak(extended(81));
}

#[test]
fn what_a_client_still_owed_when_it_was_killed_in_an_outage_may_stay_until_its_ttl_is_over() {
    let of_all = |kind, times: (u64, Option<u64>)| Record {
        return_ns: times.1,
        ..named("", record("a", kind, (times.0, times.0), 0, None))
    };
    let killed = |at, killed_at, outage| {
        let stopped = Record { fence: None, ..of_all(Kind::Stopped, (killed_at, None)) };
        let outage = Record { fence: None, client: "chaos".to_owned(), ..of_all(Kind::Outage, outage) };
        hold([key(at, 4), stopped, outage])
    };
    // The release did not reach the node, and its client had gone and could not retry it.
    good(&STRICT, killed(50, 38, (2, Some(45))));
    is_leak(killed(51, 38, (2, Some(45))));
    // If nodes work, a release reaches them all.
    is_leak(killed(50, 46, (2, Some(45))));
    // A client that continues can retry it.
    let stood_still = Record { fence: None, ..of_all(Kind::Stopped, (38, Some(44))) };
    let outage = Record { fence: None, client: "chaos".to_owned(), ..of_all(Kind::Outage, (2, None)) };
    is_leak(hold([key(50, 4), stood_still, outage.clone()]));
    // The same holds for an attempt that failed.
    let stopped = Record { fence: None, ..of_all(Kind::Stopped, (22, None)) };
    let attempt = |client: &str, at| {
        let attempt = Record { valid_until_ns: Some(40), ..denied(client, (5, 20)) };
        vec![attempt, key(at, 9), stopped.clone(), outage.clone()]
    };
    good(&STRICT, attempt("a", 40));
    is_leak(attempt("a", 41));
    is_leak(attempt("b", 40));
}

#[test]
fn a_key_of_an_attempt_that_failed_is_caught() {
    let attempt = |at| vec![denied("b", (5, 20)), key(at, 9)];
    good(&STRICT, attempt(20));
    let violation = is_leak(attempt(21));
    assert!(violation.to_string().contains("of a fence 9 that nobody won"), "{violation}");
}

#[test]
fn a_key_of_an_attempt_that_never_came_back_may_stay_until_its_ttl_is_over() {
    let killed = |at, until: Option<u64>| {
        let attempt = Record { return_ns: None, valid_until_ns: until, ..denied("b", (5, 5)) };
        vec![attempt, key(at, 9)]
    };
    good(&STRICT, killed(60, Some(60)));
    is_leak(killed(61, Some(60)));
    // Its result is unknown, or it still waits.
    good(&STRICT, killed(61, None));
}

#[test]
fn a_node_that_did_not_decide_the_vote_may_have_a_smaller_fence_or_a_larger_one() {
    for fence in [3, 5] {
        good(&STRICT, hold([key(35, fence)]));
        let violation = is_leak(hold([key(36, fence)]));
        assert!(matches!(violation, Violation::Leaked { hold: None, .. }), "{violation}");
    }
}

#[test]
fn a_key_without_a_fence_is_anybodys() {
    let unfenced = |at| Record { fence: None, ..key(at, 0) };
    good(&STRICT, hold([unfenced(35)]));
    let violation = is_leak(hold([unfenced(36)]));
    assert!(violation.to_string().contains("without a fence"), "{violation}");
}

fn grant(node: &str, at: u64) -> Record {
    record(node, Kind::Granted, (at, at), 4, None)
}

fn under(token: &str, record: Record) -> Record {
    Record { token: Some(token.to_owned()), ..record }
}

const TWO: Rules = Rules { quorum: Some(2), ..STRICT };

#[test]
fn a_success_with_a_quorum_of_grants_is_good() {
    good(&TWO, hold([grant("node 1", 7), grant("node 3", 8)]));
    good(&TWO, hold(["node 1", "node 2", "node 3"].map(|node| under("t", grant(node, 7)))));
    // From the call to its return.
    good(&TWO, hold([grant("node 1", 5), grant("node 3", 10)]));
    // Somewhere around it.
    let around = |node| record(node, Kind::Granted, (0, 90), 4, None);
    good(&TWO, hold([around("node 1"), around("node 2")]));
    // An acquire that was not won needs no grants.
    good(&TWO, [denied("b", (0, 10))]);
}

#[test]
fn a_success_without_a_quorum_of_grants_is_caught() {
    let no_quorum = |grants: Vec<Record>| match one(hold(grants), &TWO) {
        Violation::NoQuorum { granted, .. } => granted,
        other => panic!("{other}"),
    };
    assert_eq!(no_quorum(vec![]), 0);
    assert_eq!(no_quorum(vec![grant("node 1", 7)]), 1);
    // One node twice.
    assert_eq!(no_quorum(vec![grant("node 1", 7), grant("node 1", 8)]), 1);
    // Too early, too late.
    assert_eq!(no_quorum(vec![grant("node 1", 4), grant("node 2", 7)]), 1);
    assert_eq!(no_quorum(vec![grant("node 1", 7), grant("node 2", 11)]), 1);
    // Another fence, another name.
    assert_eq!(no_quorum(vec![grant("node 1", 7), Record { fence: Some(3), ..grant("node 2", 7) }]), 1);
    assert_eq!(no_quorum(vec![grant("node 1", 7), named("bar", grant("node 2", 7))]), 1);
    // The fence went to two attempts.
    assert_eq!(no_quorum(vec![under("s", grant("node 1", 7)), under("t", grant("node 2", 7))]), 1);
    good(&STRICT, hold([grant("node 1", 7)]));
    let violation = one(hold([grant("node 1", 7)]), &TWO);
    assert!(violation.to_string().contains("with the grants of 1 nodes only"), "{violation}");
}

#[test]
fn what_was_seen_on_a_node_has_a_time_and_a_grant_has_a_fence() {
    assert_eq!(flaw(hold([Record { return_ns: None, ..key(20, 4) }])), Flaw::NotOver);
    assert_eq!(flaw(hold([Record { return_ns: None, ..grant("node 1", 20) }])), Flaw::NotOver);
    assert_eq!(flaw(hold([Record { fence: None, ..grant("node 1", 20) }])), Flaw::NoFence);
}

#[test]
fn nodes_are_no_clients() {
    let report = good(&STRICT, hold([key(20, 4), named("bar", grant("node 1", 7))]));
    assert_eq!((report.records, report.clients, report.names), (4, 1, 1));
}
