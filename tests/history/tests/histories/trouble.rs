//! What lapses, stops and outages excuse, and what they do not.

use std::time::Duration;

use super::*;

/// `a` holds from 30, asked for at 20, and `b` from 50, asked for at 40.
const BOTH: &str = "a acquire 20-30 #1 <130; a release 60-61 #1; b acquire 40-50 #2 <150; b release 70-71 #2;";

/// An overlap is excused with each of the first texts in place of the `@`, and not with the others.
#[track_caller]
fn excused(history: &str, by: &str, not_by: &str) {
    STRICT.edge(history, by, not_by, "two holders at once");
    for by in by.split('|') {
        let report = STRICT.good(&history.replace('@', by));
        assert_eq!(report.excused, 1, "{report}");
        assert!(report.to_string().contains("1 overlaps excused"), "{report}");
    }
}

#[test]
fn a_lapse_excuses_an_overlap_that_it_may_have_caused() {
    // It touches the time from the earlier call to the later hold, and is of this name or of all.
    let good = "20-20|50-50|35-45|0-100|35-|0-100 name=";
    excused(&format!("{BOTH} fault lapse @"), good, "0-19|51-99|0-100 name=bar");
    let turns = "a acquire 0-10 #1 <100; a release 30-40 #1; b acquire 5-35 #2 <130; fault lapse 0-100";
    assert_eq!(STRICT.good(turns).excused, 0);
    // An overlap is told once however often it is extended.
    let extended = "b extend 51-52 #2 <152; b extend 53-54 #2 <154";
    STRICT.bad(&format!("{BOTH} {extended}"), "two holders at once");
}

#[test]
fn an_extension_after_the_lapse_says_that_the_keys_were_there_again() {
    // Both had the lock from a quorum after the lapse; that of b, if b asked before its end, proves nothing.
    let a = "a acquire 0-10 #1 <100; a extend 30-35 #1 <100; a release 60-61 #1";
    let both = format!("{a}; b release 70-71 #2; fault lapse 12-@-50 #2 <150");
    excused(&both, "30; b acquire 40|29; b acquire 29", "29; b acquire 40");
    // The lapse excuses that b could get it, but after it only one of them can have a quorum. If both were invoked in the
    // lapse, either may be the wrong one.
    let ends = "a release 60-61 #1; b release 70-71 #2; fault lapse 15-20";
    let both = format!("a acquire 0-10 #1 <100; {ends}; b acquire @-40 #1 <140");
    let not = "21-30 #2 <150; a extend 30";
    excused(&both, "21-30 #2 <150; a extend 20|20-30 #2 <150; a extend 30", not);
    assert_eq!(STRICT.judge(&both.replace('@', not)).excused, 0);
    // The extension that was asked for last counts, though it returned before the other did.
    let a = "a acquire 0-10 #1 <100; a extend 30-60 #1 <130; a extend @-50 #1 <140; a release 80-81 #1";
    excused(&format!("{a}; b acquire 40-70 #2 <150; b release 90-91 #2; fault lapse 12-35"), "35", "36");
}

#[test]
fn of_holds_that_go_on_the_one_that_was_confirmed_last_counts() {
    // c overlaps a and b; that b has it is excused, and so is c against a, but not c against b.
    let acquires = "a acquire 0-10 #1 <100; b acquire 20-30 #2 <130; c acquire 35-40 #3 <140;";
    let ends = "a release 60-61 #1; b release 62-63 #2; c release 64-65 #3;";
    let three = format!("{acquires} {ends} fault lapse 15-@");
    STRICT.edge(&three, "20", "19", "two holders at once: acquire of \"b\"");
    assert_eq!(STRICT.good(&three.replace('@', "20")).excused, 2);
}

#[test]
fn a_lapse_excuses_a_lock_that_was_won_when_it_was_over_and_no_fence() {
    let late =
        "a acquire 3-10 #2 <100; a release 20-21 #2; b acquire 5-30 #1 <130; b release 40-41 #1; fault lapse 1-@";
    STRICT.edge(late, "3", "2", "won when it was over");
    let turns = "a acquire 0-10 #7 <15; a release 12-13 #7; b acquire 20-30 #@ <130; fault lapse 0-100";
    STRICT.edge(turns, "8", "7", "given twice");
    STRICT.bad(&turns.replace('@', "6"), "the smaller fence");
}

#[test]
fn a_division_excuses_what_the_other_side_did_but_not_the_same_fence() {
    // `b` acquires at a new server, and then `a` extends, or `c` acquires, at the former one.
    let b = "b acquire 20-30 #2 <130; b release 35-36 #2; fault divided @;";
    let a = "a acquire 0-10 #1 <100; a extend 40-50 #1 <150; a release 60-61 #1; fault lapse 0-100";
    STRICT.edge(&format!("{b} {a}"), "30-40", "31-40|30-39", "bridged");
    let c = format!("{b} c acquire 40-45 #1 <145; c release 47-48 #1");
    STRICT.edge(&c, "30-40", "31-40|30-39", "the smaller fence");
    STRICT.bad(&c.replace("#1", "#2").replace('@', "30-40"), "given twice");
}

#[test]
fn a_stop_excuses_being_told_late_until_it_is_over() {
    // It has to begin by the end of the slack of ten, and to end after the validity.
    let good = "90 #1; a stopped 40-80|110 #1; a stopped 40-80; a stopped 90-100|80 #1; a stopped 60-70|61 #1; a stopped 20-51";
    let bad = "91 #1; a stopped 40-80|110 #1; a stopped 40-80; a stopped 91-100|80 #1; a stopped 61-70|61 #1; a stopped 20-50";
    STRICT.edge("a acquire 0-10 #1 <50; a lost @", good, bad, "told late");
    STRICT.bad("a acquire 0-10 #1 <50; a lost 61 #1; b stopped 20-80", "told late");
    // Whoever was killed need not be told.
    let silent = "a acquire 0-10 #1 <50; b acquire 50-100 #2 <150; a stopped @";
    STRICT.edge(silent, "40-|40-90", "40-89", "never told");
}

#[test]
fn a_stop_revives_nothing() {
    let revived = "a acquire 0-10 #1 <50; a extend @-95 #1 <150; a stopped 20-90; a release 100-101 #1";
    // It was invoked by the end of the slack, though it returned long after.
    STRICT.good(&revived.replace('@', "60"));
    assert_eq!(STRICT.judge(&revived.replace('@', "61")).violations[0].rule, REVIVED);
}

#[test]
fn a_call_that_takes_too_long_is_caught() {
    // The limit is 200.
    let calls = "a acquire 0-10 #1 <900; a extend 20-30 #1 <950; a release 500-501 #1;";
    let late = format!("{calls} b acquire 100-@ failed");
    STRICT.edge(&late, "300", "301", "had to come back by 0.000000300 s");
    Rules { limit: None, ..STRICT }.good(&late.replace('@', "301"));
    STRICT.edge(&format!("{calls} b acquire 700-@ #2 <990"), "900", "901", "stuck");
    STRICT.edge(&format!("{calls} a extend 110-@ #1 <800 failed"), "310", "311", "stuck");
    // Or it never came back.
    for call in ["acquire 100- failed", "extend 100- #1 failed", "release 100- #1 failed"] {
        let waits = format!("b acquire 0-10 #1 <400; b release 98-99 #1; c acquire 290-@ failed; b {call}");
        STRICT.edge(&waits, "300", "301", "had to come back by 0.000000300 s");
    }
}

#[test]
fn the_limit_counts_from_the_last_outage_or_stop_that_a_call_met() {
    for (trouble, deadline) in [
        ("x outage 50-400 name=", 600),
        // One that begins at the limit, and one that begins after it.
        ("x outage 300-400 name=; x outage 500-700 name=", 900),
        ("x outage 301-400 name=", 300),
        // One outage has ended, one is of another name, and one of this.
        ("x outage 50-90 name=", 300),
        ("x outage 50-400 name=bar", 300),
        ("x outage 50-800", 1000),
        ("b stopped 300-400", 600),
        ("a stopped 200-400", 300),
        ("x outage 150-300 name=; b stopped 500-600; x outage 800-900 name=", 1100),
    ] {
        let [good, bad] = [deadline, deadline + 1].map(|until: u64| until.to_string());
        let call = format!("a acquire 0-1 #1 <50; a release 2-3 #1; b acquire 100-@ failed; {trouble}");
        STRICT.edge(&call, &good, &bad, &format!("had to come back by 0.{deadline:09} s"));
    }
    STRICT.good("b acquire 100-900 failed; x outage 50- name=");
    // Killed while it waited.
    STRICT.good("b acquire 100- failed; b stopped 200-; c acquire 700-800 failed");
}

/// No acquire waits longer than 50 while the lock is free; calls may take any time.
const PROMPT: Rules = Rules { idle: Some(Duration::from_nanos(50)), limit: None, ..STRICT };

/// `a` holds until 40; the clients in `rest` do as they like.
fn given_back(rest: &str) -> String {
    format!("a acquire 0-10 #1 <100; a release 30-40 #1; {rest}")
}

#[test]
fn who_waits_for_long_while_nobody_has_the_lock_is_caught() {
    let served = given_back("b acquire 20-@ #2 <900; b release 200-201 #2");
    PROMPT.edge(&served, "90", "91", "nobody had it from 0.000000040 s until 0.000000091 s");
    STRICT.good(&served.replace('@', "91"));
    // A later acquire waits from then on.
    PROMPT.edge(&served.replace("20-@", "60-@"), "110", "111", "from 0.000000060 s until 0.000000111 s");
    // Nor is a waiter served that gets nothing.
    PROMPT.edge(&given_back("b acquire 20-@ failed"), "90", "91", "from 0.000000040 s until 0.000000091 s");
    PROMPT.edge("b acquire 0-@ failed", "50", "51", "from 0.000000000 s until 0.000000051 s");
}

#[test]
fn who_waits_while_others_have_the_lock_is_in_order() {
    // The client that gets it is quick, but another waits all the time.
    let turns = given_back("b acquire 89-@ #2 <400; b release 250-260 #2; c acquire 20-310 failed");
    PROMPT.edge(&turns, "90", "91", "from 0.000000040 s until 0.000000091 s");
    PROMPT.good(&given_back("b acquire 20-70 failed name=bar; b acquire 10-90 failed"));
    // Keys of who has not come back are no lock that lies idle, even if their end is unknown.
    let left = given_back("b acquire 40- <200 failed; c acquire 20-@ failed");
    PROMPT.edge(&left, "250", "251", "from 0.000000200 s until 0.000000251 s");
    PROMPT.good(&given_back("b acquire 40- failed; c acquire 20-900 failed"));
}

#[test]
fn outages_and_stops_hold_up_who_waits_for_a_lock_that_lies_idle() {
    for trouble in ["x outage 30-70 name=", "x outage 60-70", "b stopped 60-70"] {
        let waits = given_back(&format!("{trouble}; b acquire 20-@ failed"));
        PROMPT.edge(&waits, "120", "121", "from 0.000000040 s until 0.000000121 s");
    }
    PROMPT.edge(&given_back("x outage @-120 name=; b acquire 20-91 failed"), "90", "92", "idle");
}

#[test]
fn trouble_writes_no_calls() {
    let report = STRICT.good("a stopped 0-10; x outage 0-10 name=; x lapse 5-900; b acquire 0-10 failed");
    assert_eq!((report.records, report.clients, report.names), (4, 1, 1));
    // Nor is the end of a time of trouble the end of the history.
    STRICT.good("a acquire 0-10 #1 <50; x outage 0-900 name=; b acquire 0-60 failed");
}
