//! What lapses, stops and outages excuse, and what they do not.

use std::time::Duration;

use redlock_history::{Kind, Record, Report, Rules, Violation};

use super::*;

/// A time of trouble for one name, or for one client that was stopped.
fn period(kind: Kind, whom: &str, times: (u64, u64)) -> Record {
    let (client, name) = if kind == Kind::Stopped { (whom, "") } else { ("something", whom) };
    named(name, Record { fence: None, ..record(client, kind, times, 0, None) })
}

fn lapse(times: (u64, u64)) -> Record {
    period(Kind::Lapse, "foo", times)
}

fn stopped(client: &str, times: (u64, u64)) -> Record {
    period(Kind::Stopped, client, times)
}

fn outage(times: (u64, u64)) -> Record {
    period(Kind::Outage, "", times)
}

fn for_ever(record: Record) -> Record {
    Record { return_ns: None, ..record }
}

/// `a` holds from 30, asked for at 20, and `b` from 50, asked for at 40.
fn overlap(lapses: impl IntoIterator<Item = Record>) -> Vec<Record> {
    let a = [acquire("a", (20, 30), 1, 130), release("a", (60, 61), 1)];
    let b = [acquire("b", (40, 50), 2, 150), release("b", (70, 71), 2)];
    [a, b].concat().into_iter().chain(lapses).collect()
}

#[track_caller]
fn excused(records: Vec<Record>) -> Report {
    let report = good(&STRICT, records);
    assert_eq!(report.excused, 1, "{report}");
    assert!(report.to_string().contains("1 overlaps excused"), "{report}");
    report
}

#[track_caller]
fn is_overlap(records: Vec<Record>) {
    let violation = bad(records);
    assert!(matches!(violation, Violation::Overlap { .. }), "{violation}");
}

#[test]
fn a_lapse_excuses_an_overlap_that_it_may_have_caused() {
    excused(overlap([lapse((35, 45))]));
    excused(overlap([lapse((0, 100))]));
    excused(overlap([for_ever(lapse((35, 35)))]));
    assert_eq!(good(&STRICT, turns_with(lapse((0, 100)))).excused, 0);
}

fn turns_with(record: Record) -> Vec<Record> {
    vec![acquire("a", (0, 10), 1, 100), release("a", (30, 40), 1), acquire("b", (5, 35), 2, 130), record]
}

#[test]
fn an_extension_after_the_lapse_says_that_the_keys_were_there_again() {
    // Both had the lock from a quorum after the lapse; that of b, if b asked before its end, proves nothing.
    let extended = |asked_b, lapsed| {
        vec![
            lapse((12, lapsed)),
            acquire("a", (0, 10), 1, 100),
            // Even if it moves nothing.
            extend("a", (30, 35), 1, 100),
            release("a", (60, 61), 1),
            acquire("b", (asked_b, 50), 2, 150),
            release("b", (70, 71), 2),
        ]
    };
    excused(extended(40, 30));
    is_overlap(extended(40, 29));
    excused(extended(29, 29));
}

#[test]
fn an_extension_of_the_first_while_the_second_holds_is_not_excused() {
    // The lapse excuses that b could get it, but after it only one of them can have a quorum.
    let extended = |asked_b, asked| {
        vec![
            lapse((15, 20)),
            acquire("a", (0, 10), 1, 100),
            acquire("b", (asked_b, 30), 2, 150),
            extend("a", (asked, 40), 1, 140),
            release("a", (60, 61), 1),
            release("b", (70, 71), 2),
        ]
    };
    is_overlap(extended(21, 30));
    assert_eq!(judge(extended(21, 30), &STRICT).excused, 0);
    // Both were invoked in the lapse, so either may be the wrong one.
    excused(extended(21, 20));
    excused(extended(20, 30));
}

#[test]
fn of_two_extensions_the_one_that_was_asked_for_last_counts() {
    // It returned before the other did.
    let extended = |asked| {
        vec![
            lapse((12, 35)),
            acquire("a", (0, 10), 1, 100),
            extend("a", (30, 60), 1, 130),
            extend("a", (asked, 50), 1, 140),
            release("a", (80, 81), 1),
            acquire("b", (40, 70), 2, 150),
            release("b", (90, 91), 2),
        ]
    };
    is_overlap(extended(36));
    excused(extended(35));
}

#[test]
fn an_overlap_is_told_once_however_often_it_is_extended() {
    is_overlap(overlap([extend("b", (51, 52), 2, 152), extend("b", (53, 54), 2, 154)]));
}

#[test]
fn of_holds_that_go_on_the_one_that_was_confirmed_last_counts() {
    // c overlaps a and b; that b has it is excused, and so is c against a, but not c against b.
    let three = |lapsed| {
        vec![
            acquire("a", (0, 10), 1, 100),
            lapse((15, lapsed)),
            acquire("b", (20, 30), 2, 130),
            acquire("c", (35, 40), 3, 140),
            release("a", (60, 61), 1),
            release("b", (62, 63), 2),
            release("c", (64, 65), 3),
        ]
    };
    let violation = bad(three(19));
    let Violation::Overlap { first, second } = &violation else { panic!("{violation}") };
    assert_eq!((first.acquired.fence, second.acquired.fence), (Some(2), Some(3)));
    assert_eq!(good(&STRICT, three(20)).excused, 2);
}

#[test]
fn a_lapse_excuses_a_lock_that_was_won_when_it_was_over() {
    let late = |lapsed| {
        let a = [acquire("a", (3, 10), 2, 100), release("a", (20, 21), 2)];
        [&a[..], &[acquire("b", (5, 30), 1, 130), release("b", (40, 41), 1), lapse((1, lapsed))]].concat()
    };
    let violation = bad(late(2));
    assert!(matches!(violation, Violation::Superseded { .. }), "{violation}");
    good(&STRICT, late(3));
}

#[test]
fn a_lapse_excuses_no_fence() {
    let twice = [acquire("a", (0, 10), 7, 15), release("a", (12, 13), 7), acquire("b", (20, 30), 7, 130)];
    let violation = bad(twice.into_iter().chain([lapse((0, 100))]));
    assert!(matches!(violation, Violation::Duplicate { .. }), "{violation}");
    let fell = [acquire("a", (0, 10), 7, 15), release("a", (12, 13), 7), acquire("b", (20, 30), 6, 130)];
    let violation = bad(fell.into_iter().chain([lapse((0, 100))]));
    assert!(matches!(violation, Violation::OutOfOrder { .. }), "{violation}");
}

/// `b` acquires at a new server, and then `a` extends or acquires at the former one. Overlaps are excused.
fn two_sides(call: Record, divided: (u64, u64)) -> Vec<Record> {
    let b = [acquire("b", (20, 30), 2, 130), release("b", (35, 36), 2)];
    let a = [acquire("a", (0, 10), 1, 100), call, release("a", (60, 61), 1)];
    [&a[..], &b[..], &[lapse((0, 100)), period(Kind::Divided, "foo", divided)]].concat()
}

#[test]
fn a_division_excuses_an_extension_at_the_other_side() {
    let extended = |divided| two_sides(extend("a", (40, 50), 1, 150), divided);
    good(&STRICT, extended((30, 40)));
    for divided in [(31, 40), (30, 39)] {
        let violation = bad(extended(divided));
        assert!(matches!(violation, Violation::Bridged { .. }), "{violation}");
    }
}

#[test]
fn a_division_excuses_a_smaller_fence_of_the_other_side_but_not_the_same_one() {
    let acquired = |fence, divided| {
        let c = [acquire("c", (40, 45), fence, 145), release("c", (47, 48), fence)];
        let b = [acquire("b", (20, 30), 2, 130), release("b", (35, 36), 2)];
        [&c[..], &b[..], &[period(Kind::Divided, "foo", divided)]].concat()
    };
    good(&STRICT, acquired(1, (30, 40)));
    for divided in [(31, 40), (30, 39)] {
        let violation = bad(acquired(1, divided));
        assert!(matches!(violation, Violation::OutOfOrder { .. }), "{violation}");
    }
    let violation = bad(acquired(2, (30, 40)));
    assert!(matches!(violation, Violation::Duplicate { .. }), "{violation}");
}

/// A hold of `a` that ends at 50, with 10 of slack; it is notified at `at`.
fn told(at: u64, stops: impl IntoIterator<Item = Record>) -> Vec<Record> {
    [acquire("a", (0, 10), 1, 50), lost("a", at, 1)].into_iter().chain(stops).collect()
}

#[test]
fn a_stop_excuses_being_told_late_until_it_is_over() {
    good(&STRICT, told(90, [stopped("a", (40, 80))]));
    let violation = bad(told(91, [stopped("a", (40, 80))]));
    assert!(matches!(violation, Violation::ToldLate { .. }), "{violation}");
    // It was stopped again before it could be notified.
    good(&STRICT, told(110, [stopped("a", (40, 80)), stopped("a", (90, 100))]));
    let violation = bad(told(110, [stopped("a", (40, 80)), stopped("a", (91, 100))]));
    assert!(matches!(violation, Violation::ToldLate { .. }), "{violation}");
}

#[test]
fn a_stop_that_began_after_the_slack_excuses_nothing() {
    good(&STRICT, told(80, [stopped("a", (60, 70))]));
    let violation = bad(told(80, [stopped("a", (61, 70))]));
    assert!(matches!(violation, Violation::ToldLate { .. }), "{violation}");
}

#[test]
fn a_stop_before_the_end_or_of_somebody_else_excuses_nothing() {
    let violation = bad(told(61, [stopped("a", (20, 50))]));
    assert!(matches!(violation, Violation::ToldLate { .. }), "{violation}");
    good(&STRICT, told(61, [stopped("a", (20, 51))]));
    let violation = bad(told(61, [stopped("b", (20, 80))]));
    assert!(matches!(violation, Violation::ToldLate { .. }), "{violation}");
}

#[test]
fn whoever_was_killed_need_not_be_told() {
    let silent = |stop| [acquire("a", (0, 10), 1, 50), stop, acquire("b", (50, 100), 2, 150)];
    good(&STRICT, silent(for_ever(stopped("a", (40, 40)))));
    let violation = bad(silent(stopped("a", (40, 89))));
    assert!(matches!(violation, Violation::NeverTold { end_ns: 100, .. }), "{violation}");
    good(&STRICT, silent(stopped("a", (40, 90))));
}

#[test]
fn a_stop_revives_nothing() {
    let revived = |at| {
        let a = [acquire("a", (0, 10), 1, 50), extend("a", (at, 95), 1, 150)];
        [&a[..], &[stopped("a", (20, 90)), release("a", (100, 101), 1)]].concat()
    };
    // It was invoked by the end of the slack, though it returned long after.
    good(&STRICT, revived(60));
    let violations = judge(revived(61), &STRICT).violations;
    assert!(matches!(violations[0], Violation::Revived { .. }), "{violations:#?}");
}

#[test]
fn a_call_that_takes_too_long_is_caught() {
    // The limit is 200.
    let calls = |to| {
        let slow = [denied("b", (100, to)), acquire("a", (0, 10), 1, 900), extend("a", (20, 30), 1, 950)];
        slow.into_iter().chain([release("a", (500, 501), 1)])
    };
    good(&STRICT, calls(300));
    let violation = bad(calls(301));
    assert!(matches!(violation, Violation::Stuck { deadline_ns: 300, .. }), "{violation}");
    assert!(
        violation.to_string().contains("had to come back by 0.000000300 s and did at 0.000000301 s"),
        "{violation}"
    );
    good(&Rules { limit: None, ..STRICT }, calls(301));
    for slow in [acquire("b", (700, 901), 2, 990), failed(extend("a", (110, 311), 1, 800))] {
        let violation = bad(calls(300).chain([slow]));
        assert!(matches!(violation, Violation::Stuck { .. }), "{violation}");
    }
}

#[test]
fn a_call_that_never_came_back_is_caught() {
    let waits = |kind, fence| for_ever(Record { fence, ..failed(record("b", kind, (100, 100), 1, None)) });
    let until = |end| [acquire("b", (0, 10), 1, 400), release("b", (98, 99), 1), denied("c", (end - 10, end))];
    for (kind, fence) in [(Kind::Acquire, None), (Kind::Extend, Some(1)), (Kind::Release, Some(1))] {
        good(&STRICT, until(300).into_iter().chain([waits(kind, fence)]));
        let violation = bad(until(301).into_iter().chain([waits(kind, fence)]));
        let Violation::Stuck { call, deadline_ns: 300 } = &violation else { panic!("{violation}") };
        assert_eq!(call.kind, kind);
        assert!(violation.to_string().contains("and did not"), "{violation}");
    }
}

#[test]
fn the_limit_counts_from_the_last_outage_that_a_call_met() {
    let call = |times| [acquire("a", (0, 1), 1, 50), release("a", (2, 3), 1), denied("b", times)];
    let with = |times, outages: &[Record]| [&call(times)[..], outages].concat();
    // Healed at 400.
    good(&STRICT, with((100, 600), &[outage((50, 400))]));
    assert!(matches!(bad(with((100, 601), &[outage((50, 400))])), Violation::Stuck { deadline_ns: 600, .. }));
    // One that begins at the limit, and one that begins after it.
    good(&STRICT, with((100, 900), &[outage((300, 400)), outage((500, 700))]));
    assert!(matches!(bad(with((100, 500), &[outage((301, 400))])), Violation::Stuck { deadline_ns: 300, .. }));
    // One outage has ended, one is of another name, and one has not ended yet.
    assert!(matches!(bad(with((100, 301), &[outage((50, 90))])), Violation::Stuck { deadline_ns: 300, .. }));
    let other = period(Kind::Outage, "bar", (50, 400));
    assert!(matches!(bad(with((100, 301), &[other])), Violation::Stuck { deadline_ns: 300, .. }));
    good(&STRICT, with((100, 900), &[period(Kind::Outage, "foo", (50, 800))]));
    good(&STRICT, with((100, 900), &[for_ever(outage((50, 50)))]));
}

#[test]
fn a_call_of_a_stopped_client_has_time_until_it_runs_again() {
    let call = |times, stop| [acquire("a", (0, 1), 1, 50), release("a", (2, 3), 1), denied("b", times), stop];
    good(&STRICT, call((100, 600), stopped("b", (300, 400))));
    assert!(matches!(bad(call((100, 601), stopped("b", (300, 400)))), Violation::Stuck { deadline_ns: 600, .. }));
    assert!(matches!(bad(call((100, 301), stopped("a", (200, 400)))), Violation::Stuck { .. }));
    // Killed while it waited.
    let [acquired, released, waits, _] = call((100, 100), outage((0, 0)));
    let killed = [acquired, released, for_ever(waits), for_ever(stopped("b", (200, 200))), denied("c", (700, 800))];
    good(&STRICT, killed);
}

#[test]
fn outages_and_stops_and_chains_of_them_add_up() {
    let call = |to| {
        let trouble = [outage((150, 300)), stopped("b", (500, 600)), outage((800, 900))];
        [&trouble[..], &[denied("b", (100, to))]].concat()
    };
    good(&STRICT, call(1100));
    assert!(matches!(bad(call(1101)), Violation::Stuck { deadline_ns: 1100, .. }));
}

/// No acquire waits longer than 50 while the lock is free; calls may take any time.
const PROMPT: Rules = Rules { idle: Some(Duration::from_nanos(50)), limit: None, ..STRICT };

/// `a` holds until 40; the clients in `rest` do as they like.
fn given_back(rest: impl IntoIterator<Item = Record>) -> Vec<Record> {
    [acquire("a", (0, 10), 1, 100), release("a", (30, 40), 1)].into_iter().chain(rest).collect()
}

#[track_caller]
fn is_idle(records: Vec<Record>, since: u64, until: u64) -> Violation {
    let violation = one(records, &PROMPT);
    let Violation::Idle { since_ns, until_ns, .. } = violation else { panic!("{violation}") };
    assert_eq!((since_ns, until_ns), (since, until));
    violation
}

#[test]
fn who_waits_for_long_while_nobody_has_the_lock_is_caught() {
    let served = |asked, at| given_back([acquire("b", (asked, at), 2, 900), release("b", (at, at + 1), 2)]);
    good(&PROMPT, served(20, 90));
    let violation = is_idle(served(20, 91), 40, 91);
    assert!(
        violation.to_string().contains("\"b\" waited for it from 0.000000040 s until 0.000000091 s"),
        "{violation}"
    );
    good(&STRICT, served(20, 91));
    // A later acquire waits from then on.
    good(&PROMPT, served(60, 110));
    is_idle(served(60, 111), 60, 111);
    // Nor is a waiter served that gets nothing.
    good(&PROMPT, given_back([denied("b", (20, 90))]));
    is_idle(given_back([denied("b", (20, 91))]), 40, 91);
    good(&PROMPT, vec![denied("b", (0, 50))]);
    is_idle(vec![denied("b", (0, 51))], 0, 51);
}

#[test]
fn who_waits_while_others_have_the_lock_is_in_order() {
    let turns = |at| [acquire("b", (at - 1, at), 2, 400), release("b", (250, 260), 2), denied("c", (20, 310))];
    good(&PROMPT, given_back(turns(90)));
    // The client that got it was quick, but another waited all the time.
    is_idle(given_back(turns(91)), 40, 91);
    good(&PROMPT, given_back([named("bar", denied("b", (20, 70))), denied("b", (10, 90))]));
}

#[test]
fn keys_of_who_has_not_come_back_are_no_lock_that_lies_idle() {
    let left = Record { valid_until_ns: Some(200), ..for_ever(denied("b", (40, 40))) };
    good(&PROMPT, given_back([left.clone(), denied("c", (20, 250))]));
    is_idle(given_back([left, denied("c", (20, 251))]), 200, 251);
    // Its end is unknown.
    let left = Record { valid_until_ns: None, ..for_ever(denied("b", (40, 40))) };
    good(&PROMPT, given_back([left, denied("c", (20, 900))]));
}

#[test]
fn outages_and_stops_hold_up_who_waits_for_a_lock_that_lies_idle() {
    for trouble in [outage((30, 70)), period(Kind::Outage, "foo", (60, 70)), stopped("b", (60, 70))] {
        good(&PROMPT, given_back([trouble.clone(), denied("b", (20, 120))]));
        is_idle(given_back([trouble, denied("b", (20, 121))]), 40, 121);
    }
    is_idle(given_back([outage((92, 120)), denied("b", (20, 91))]), 40, 91);
}

#[test]
fn trouble_writes_no_calls() {
    let report = good(&STRICT, [stopped("a", (0, 10)), outage((0, 10)), lapse((5, 900)), denied("b", (0, 10))]);
    assert_eq!((report.records, report.clients, report.names), (4, 1, 1));
    // Nor is the end of a time of trouble the end of the history.
    good(&STRICT, [acquire("a", (0, 10), 1, 50), outage((0, 900)), denied("b", (0, 60))]);
}
