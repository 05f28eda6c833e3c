//! Clients' actions with locks: fences, order, exclusion, losses.

use std::time::Duration;

use super::*;

/// Two clients in turn, the second waiting.
const TURNS: &str = "a acquire 0-10 #1 <100; b acquire 5-35 #2 <130; a release 30-40 #1; b release 60-70 #2;";

#[test]
fn nothing_is_a_good_history() {
    assert_eq!(STRICT.good(""), Report::default());
}

#[test]
fn taking_turns_is_good_and_counted() {
    let report = STRICT.good(&format!("{TURNS} c acquire 12-20 failed"));
    assert_eq!((report.records, report.names, report.clients), (5, 1, 3));
    assert_eq!((report.acquisitions, report.denied, report.losses), (2, 1, 0));
    assert_eq!(report.waits.median, Duration::from_nanos(10));
    assert_eq!(report.waits.longest, Duration::from_nanos(30));
    assert_eq!(
        report.to_string(),
        "5 records, 3 clients, 1 name: 2 acquisitions (wait median 10.0ns, 99 % 30.0ns, longest 30.0ns), 1 denied, 0 lost, \
         0 violations"
    );
}

#[test]
fn expiry_loss_and_a_failed_release_end_a_hold() {
    let two = "a acquire 0-10 #1 <50; a lost 55 #1; b acquire 20-60 #2 <100; b lost 70 #2;";
    let others = "c acquire 60-71 #3 <200; c release 80-180 #3 failed; d acquire 90-100 #4 <200; d release 195-200 #4";
    // Released after its loss was told, as `with` does.
    STRICT.good(&format!("{two} {others}; a release 130-140 #1 failed"));
    // It may be written down before its acquire, and a hold at the end of the history owes nothing.
    STRICT.good("a acquire 0-10 #1 <8; a lost 9 #1; b acquire 0-10 #2 <50");
    STRICT.good("a acquire 0-10 #1 <50; b acquire 0-60 failed");
}

#[test]
fn an_extension_moves_the_end() {
    // One never shortens, and one that failed moves nothing. The second was invoked in time.
    let extended =
        "a extend 20-30 #1 <70; a extend 31-32 #1 <40; a extend 65-90 #1 <120; a extend 100-110 #1 <500 failed";
    STRICT.good(&format!("a acquire 0-10 #1 <50; {extended}; a lost 121 #1; b acquire 0-122 #2 <200"));
    let ends = "a release 58-60 #1; b release 70-71 #2";
    let extended = "a acquire 0-10 #1 <50; a extend 20-30 #1 <90 @; b acquire 0-52 #2 <99;";
    STRICT.edge(&format!("{extended} {ends}"), "failed", "", "two holders at once");
}

#[test]
fn without_a_known_end_a_hold_lasts_until_it_is_released() {
    STRICT.good("a acquire 0-10 #1; a release 1000-1010 #1; b acquire 900-1005 #2 <1500; b lost 1500 #2");
    STRICT.bad("a acquire 0-10 #1; b acquire 500-510 #2 <600; b release 520-530 #2", "two holders at once");
}

#[test]
fn a_fence_given_twice_is_caught() {
    let turns = "a acquire 0-10 #7 <100; a release 20-30 #7; b acquire 40-50 #7 <140; b release 60-70 #7";
    STRICT.bad(
        turns,
        "lock \"foo\": one fence was given twice: \
         acquire of \"a\" (fence 7) from 0.000000000 s to 0.000000010 s, valid for 90ns; \
         acquire of \"b\" (fence 7) from 0.000000040 s to 0.000000050 s, valid for 90ns",
    );
    // Losses find their own acquire.
    STRICT.bad("a acquire 0-10 #7 <50; a lost 55 #7; a acquire 60-70 #7 <140; a lost 145 #7", "given twice");
}

#[test]
fn a_smaller_fence_later_is_caught() {
    let turns = "a acquire 0-10 #2 <100; a release 20-30 #2; b acquire 40-50 #@ <140; b release 60-70 #@";
    STRICT.edge(turns, "3", "1", "the smaller fence: acquire of \"a\"");
}

#[test]
fn two_holders_at_once_are_caught() {
    let overlap = "a acquire 0-10 #1 <100; b acquire 20-@ #2 <130; a release 50-60 #1; b release 70-80 #2";
    STRICT.edge(overlap, "50", "49", "two holders at once: acquire of \"a\"");
    let extended = "a acquire 0-10 #1 <50; a extend 20-30 #1 <90; a lost 95 #1; b acquire 40-@ #2 <150;";
    let shows = "to 0.000000010 s, valid for 40ns; extend of \"a\" (fence 1) from 0.000000020 s";
    STRICT.edge(&format!("{extended} b release 100-110 #2"), "90", "89|60", shows);
}

#[test]
fn a_loss_told_late_or_never_is_caught() {
    STRICT.edge("a acquire 0-10 #1 <50; a lost @ #1", "60", "61", "told by 0.000000060 s");
    STRICT.edge("a acquire 0-10 #1 <50; a extend 20-30 #1 <70; a lost @ #1", "80", "81", "told late");
    STRICT.edge("a acquire 0-10 #1 <50; b acquire 0-@ failed", "60", "61", "never told");
    // A release after the end does not excuse silence.
    let released = "a acquire 0-10 #1 <50; a release @-70 #1 failed";
    STRICT.edge(&format!("{released}; a lost 80 #1"), "60", "61", "never told");
    STRICT.bad(&released.replace('@', "61"), "never told");
}

#[test]
fn an_extension_after_the_end_is_caught() {
    // While the release is going on, another thread may still come first.
    STRICT.edge("a acquire 0-10 #1 <50; a release 20-30 #1; a extend @-40 #1 <90", "25|30", "31", "revived");
    let after_a_loss = "a acquire 0-10 #1 <50; a lost 30 #1; a extend 31-35 #1 <90";
    STRICT.bad(after_a_loss, "extend of \"a\" (fence 1) from 0.000000031 s");
    STRICT.edge("a acquire 0-10 #1 <50; a extend @-65 #1 <120; a release 58-70 #1", "60", "61", "revived");
}

#[test]
fn what_is_impossible_is_caught() {
    for (history, why) in [
        (&format!("{TURNS} a release 80-90 #3")[..], "nobody acquired this fence"),
        (&format!("{TURNS} a release 80-90 #1 name=bar"), "nobody acquired this fence"),
        ("a acquire 0-10 #1 <50 failed; a release 20-30 #1", "nobody acquired this fence"),
        ("a extend 0-10 #1 <50 failed", "nobody acquired this fence"),
        ("a lost 10 #1", "nobody acquired this fence"),
        ("a acquire 0-10 #1 <50; a release 5-20 #1", "before the lock was acquired"),
        ("a acquire 0-10 <50", "its fence is missing"),
        (&format!("{TURNS} a release 80-90"), "its fence is missing"),
        ("a acquire 10-0 #1 <50; a release 20-30 #1", "it returned before it was invoked"),
        ("a acquire 0-10 #1 <50; a release 30-20 #1", "it returned before it was invoked"),
        ("a acquire 10-0 failed", "it returned before it was invoked"),
        ("a acquire 0- #1 <50", "it has happened and is not over"),
        (&format!("{TURNS} a release 32- #1"), "it has happened and is not over"),
        (&format!("{TURNS} b lost 50- #2"), "it has happened and is not over"),
    ] {
        STRICT.bad(history, why);
    }
}

#[test]
fn a_rule_that_is_off_finds_nothing() {
    LAX.good("a acquire 0-10 #1 <100; b acquire 20-30 #2 <130");
    Rules { order: false, ..STRICT }.good("a acquire 0-10 #2 <15; a lost 15 #2; b acquire 20-30 #1 <130");
    UNTOLD.good("a acquire 0-10 #1 <50; b acquire 0-61 failed");
    UNTOLD.good("a acquire 0-10 #1 <50; a extend 61-65 #1 <120");
}

#[test]
fn faults_add_up() {
    let acquires = "a acquire 0-10 #2 <100; b acquire 20-30 #1 <130; c acquire 40-50 #2 <150;";
    let violations = STRICT.judge(&format!("{acquires} b release 5-6 #9; a lost 120 #2")).violations;
    let rules: Vec<&str> = violations.iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, [MALFORMED, DUPLICATE, OUT_OF_ORDER, OVERLAP, OVERLAP, TOLD_LATE]);
}

#[test]
fn a_lock_won_after_a_larger_fence_is_caught() {
    // b was granted it first. It can only return late because its keys were gone when a's acquire was granted.
    let late = "a acquire 0-10 #2 <100; a release 20-21 #2; b acquire 10-30 #@; b release 40-41 #@";
    // It had ended when it returned, and no client relied on it.
    let ended = "a acquire 0-10 #2 <100; a release 20-21 #2; b acquire 10-30 #1 <@; b release 40-41 #1";
    STRICT.edge(late, "3", "1", "won when it was over: acquire of \"a\"");
    STRICT.edge(ended, "30", "31", "won when it was over");
    LAX.good(&late.replace('@', "1"));
    // It was invoked after the other returned, so the order of the fences is enough.
    STRICT.bad(&ended.replace("10-30", "11-30").replace('@', "100"), "the smaller fence");
}

#[test]
fn an_extension_that_bridges_another_hold_is_caught() {
    // It may be invoked before the other returned.
    let bridged =
        "b acquire 5-30 #2 <100; b release 35-36 #2; a acquire 0-10 #1 <50; a extend @-45 #1 <90; a release 50-51 #1";
    LAX.edge(bridged, "30", "31", "bridged: acquire of \"b\"");
    Rules { order: false, ..LAX }.good(&bridged.replace('@', "31"));
    // With exclusion, it also counts as two holders at once.
    let violations = STRICT.judge(&bridged.replace('@', "31")).violations;
    assert!(matches!(&violations[..], [one, two] if (one.rule, two.rule) == (BRIDGED, OVERLAP)), "{violations:#?}");
}

#[test]
fn what_failed_or_never_came_back_carries_no_obligation() {
    for back in ["50", ""] {
        // The fence of a again, a too small one and a too large one, all while a or b hold.
        let tried = ["c", "d", "e"].into_iter().zip([1, 0, 9]);
        let tried = tried.map(|(client, fence)| format!("{client} acquire 41-{back} #{fence} <140 failed;"));
        let tried: String = tried.collect();
        STRICT.good(&format!("{TURNS} {tried} a extend 25-{back} #1 <500 failed"));
    }
}
