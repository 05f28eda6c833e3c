//! Locks of several names, permits of semaphores, least times, margins, terms and readers.

use std::time::Duration;

use super::*;

/// Every rule that a turn of `a`, and then one of `b`, asked for at 20 and got at `@`, can break. The records of each are
/// of these locks.
fn turn(first: &str, second: &str) -> String {
    let a = format!("a acquire 5-10 #4 <100 {first}; a release 30-35 #4 {first};");
    format!("{a} b acquire 20-@ #5 <130 {second}; b release 60-65 #5 {second};")
}

/// The same, in which `b` asked at this time and got this fence.
fn turn_with(first: &str, second: &str, asked: &str) -> String {
    turn(first, second).replace("20-@ #5", &format!("{asked} #@")).replace("60-65 #5", "60-65 #@")
}

const BOTH: &str = "names=bar+foo";

#[test]
fn a_lock_of_several_names_excludes_each_of_them() {
    for (first, second) in [(BOTH, ""), ("", BOTH), (BOTH, "names=foo+other")] {
        STRICT.edge(&turn(first, second), "30", "29", "lock \"foo\": two holders at once");
    }
    for other in ["name=other", "name=bar+foo"] {
        STRICT.good(&turn(BOTH, other).replace('@', "29"));
    }
}

#[test]
fn its_fence_is_one_of_each_of_its_names() {
    let set = turn_with("", BOTH, "40-50");
    STRICT.edge(&set, "5", "3", "the smaller fence");
    STRICT.bad(&set.replace('@', "4"), "given twice");
    let set = "a acquire 5-10 #4 <100; b acquire 40-60 #5 <130 names=bar+foo; b lost 130 #5 names=bar+foo;";
    LAX.edge(&format!("{set} a extend @-62 #4 <110; a release 80-85 #4"), "60", "61", "bridged");
}

#[test]
fn what_is_said_of_several_names_is_said_once() {
    let set = "a acquire 5-10 #4 <50 names=foo+bar+foo; a lost @ #4 names=foo+bar+foo";
    STRICT.edge(set, "60", "61", "told late");
    let report = STRICT.good(&set.replace('@', "60"));
    assert_eq!((report.acquisitions, report.losses, report.names), (1, 1, 2));
    STRICT.edge("a acquire 0-@ failed names=foo+bar", "200", "201", "stuck");
    assert_eq!(STRICT.good("a acquire 0-200 failed names=foo+bar").denied, 1);
}

#[test]
fn a_write_under_several_names_is_to_one_of_them() {
    let writes = "a write 20 #4; b write 50 #5; a write 55 #4 @";
    let history = turn(BOTH, "").replace('@', "40") + writes;
    STRICT.edge(&history, "failed|name=bar", "", "stale write");
}

/// No acquire waits longer than 10 while the lock is free; calls may take any time, and losses are not recorded.
const PROMPT: Rules = Rules { idle: Some(Duration::from_nanos(10)), limit: None, ..UNTOLD };

#[test]
fn several_names_are_waited_for_only_while_all_are_free() {
    // The other one has foo until 65.
    let waits = turn("", "").replace('@', "30") + "b acquire 0 #1 <900 name=bar; c acquire 0-@ failed names=bar+foo;";
    let bar_until = |until: u64| format!("{waits} b release {until} #1 name=bar");
    PROMPT.edge(&bar_until(20), "75", "76", "from 0.000000065 s until 0.000000076 s");
    PROMPT.edge(&bar_until(90), "100", "101", "from 0.000000090 s until 0.000000101 s");
}

#[test]
fn each_slot_of_a_semaphore_has_one_holder() {
    let [zero, one] = ["slot=0 permits=3", "slot=1 permits=3"];
    for other in [one, ""] {
        STRICT.good(&turn(zero, other).replace('@', "25"));
    }
    STRICT.edge(&turn(zero, zero), "30", "29", "lock \"foo\", slot 0: two holders at once");
    // Fences are those of a slot.
    STRICT.good(&turn_with(zero, one, "40-50").replace('@', "4"));
    STRICT.edge(&turn_with(zero, zero, "40-50"), "5", "4", "given twice");
}

#[test]
fn a_slot_that_its_caller_does_not_allow_is_caught() {
    UNTOLD.edge("a acquire 5-10 #4 <100 permits=3 @", "slot=2", "slot=3|", "its slot is not below its permits");
}

/// Whatever slots they say that they have.
#[test]
fn no_more_hold_a_semaphore_than_the_largest_of_its_callers_allows() {
    for slots in 0..27 {
        let [a, b, c] = [slots % 3, slots / 3 % 3, slots / 9];
        let two = format!("a acquire 0-10 #1 <100 permits=1 slot={a}; b acquire 1-11 #2 <100 permits=2 slot={b};");
        let report = UNTOLD.judge(&format!("{two} c acquire 2-12 #3 <100 permits=2 slot={c}"));
        assert!(!report.is_ok(), "{slots}");
    }
}

#[test]
fn a_permit_is_waited_for_only_while_no_slot_is_free() {
    let held: [String; 3] = [(0, 90), (1, 40), (2, 20)].map(|(slot, until)| {
        let permit = format!("#1 slot={slot} permits=3");
        format!("{slot} acquire 0 <900 {permit}; {slot} release {until} {permit};")
    });
    let waits = |permits| format!("{} a acquire 0-@ failed permits={permits}", held.concat());
    PROMPT.edge(&waits(3), "30", "31", "nobody had it from 0.000000020 s");
    PROMPT.edge(&waits(2), "50", "51", "nobody had it from 0.000000040 s");
    PROMPT.edge(&waits(1), "100", "101", "nobody had it from 0.000000090 s");
    // The one that gets the last slot has waited as well.
    let won = format!("{} a acquire 0-@ #2 <900 permits=2 slot=1", held[..2].concat());
    PROMPT.edge(&won, "50", "51", "from 0.000000040 s until 0.000000051 s");
}

#[test]
fn a_key_of_a_slot_belongs_to_who_asked_for_that_slot() {
    for (permits, slot) in [(1, 0), (3, 0), (3, 2)] {
        let asks = format!("a acquire 5-30 failed permits={permits}; one key @ #4 slot={slot}");
        STRICT.edge(&asks, "30", "31", "leaked");
    }
    STRICT.edge("a acquire 5-30 failed permits=2; one key 20 #4 @", "slot=1", "slot=2|", "leaked");
    // Who has one slot may have tried another one before.
    let won = "a acquire 5-30 #4 <100 permits=3 slot=1; a release 40-45 #4 permits=3 slot=1; one key @";
    STRICT.edge(won, "45 #4 slot=1|30 #3 slot=2", "46 #4 slot=1|31 #3 slot=2", "leaked");
}

#[test]
fn grants_of_several_names_and_of_slots_are_counted_for_each() {
    let rules = Rules { quorum: Some(2), ..STRICT };
    let won = |lock| format!("a acquire 5-10 #4 <100 {lock}; a release 30-35 #4 {lock}; one granted 7 #4 {lock};");
    let (set, permit) = (won(BOTH), won("slot=1"));
    rules.edge(&format!("{set} two granted 7 #4 @"), BOTH, "", "the grants of 1 nodes");
    rules.edge(&format!("{permit} two granted 7 #4 @"), "slot=1", "slot=0", "the grants of 1 nodes");
}

#[test]
fn a_lock_stays_reserved_for_its_least_time() {
    let reserved = "a acquire 5-10 #4 <100 least_until_ns=80; b acquire 40-@ #5 <900;";
    let released = format!("{reserved} a release 30-35 #4");
    UNTOLD.edge(&released, "80", "79", "too soon: acquire of \"a\"");
    UNTOLD.bad(&released.replace('@', "79"), "kept from others until 0.000000080 s");
    Rules { exclusion: false, ..UNTOLD }.good(&released.replace('@', "79"));
    // Both were over at once, and the other one may have been first.
    let at_once = "a acquire 30 #4 <100 least_until_ns=80; a release 30 #4; b acquire 30 #5 <100; b release 30 #5";
    UNTOLD.good(at_once);
    // Nobody kept it from others: it was killed, or told of a loss, or released when it was over.
    for end in ["a release 30-35 #4 failed", "a lost 30 #4"] {
        UNTOLD.good(&format!("{reserved} {end}").replace('@', "79"));
    }
    UNTOLD.good(&released.replace("<100", "<34").replace('@', "79"));
    // Who gets a reserved lock itself is caught too.
    UNTOLD.bad(&released.replace("b acquire", "a acquire").replace('@', "79"), "too soon");
}

#[test]
fn a_lock_stays_reserved_for_the_margin_of_who_lost_it() {
    let margin = "a acquire 5-10 #4 <50 margin_ns=30; b acquire 40-@ #5 <900;";
    for reason in ["", "reason=expired", "reason=unreachable", "reason=max_hold"] {
        let told = format!("{margin} a lost 50 #4 {reason};");
        STRICT.edge(&told, "80", "79", "kept from others until 0.000000080 s");
        // It says itself that it has stopped.
        STRICT.edge(&format!("{told} a release 60 #4"), "60", "59", "too soon");
    }
    for end in ["a lost 50 #4 reason=taken", "a lost 50 #4 reason=deleted", "a release 45-46 #4"] {
        STRICT.good(&format!("{margin} {end}").replace('@', "50"));
    }
    // Nobody knows how it ended.
    UNTOLD.edge(margin, "80", "79", "too soon");
    let lapse = "a acquire 5-10 #4 <50 margin_ns=30; a lost 50 #4; b acquire 40-70 #5 <900; fault lapse @";
    STRICT.edge(lapse, "0-5|70-90", "0-4|71-90", "too soon");
}

#[test]
fn a_key_may_stay_for_as_long_as_it_reserves_its_lock() {
    let least = "a acquire 5-10 #4 <100 least_until_ns=80; a release 30-35 #4; one key @ #4";
    STRICT.edge(least, "80", "81", "leaked");
    let margin = "a acquire 5-10 #4 <50 margin_ns=30; one key @ #4; a lost 50 #4";
    STRICT.edge(margin, "80", "81", "leaked");
    STRICT.edge(&format!("{margin}; a release 60-61 #4"), "61", "62", "leaked");
    STRICT.edge(&format!("{margin} reason=taken"), "50", "51", "leaked");
}

#[test]
fn a_term_is_a_fence() {
    STRICT.edge("a acquire 5-10 #4 <100 term=@; b acquire 5-10 failed", "4", "5", "its term is not its fence");
}

/// A turn in which one is a writer, or both are readers.
const PAIRS: [(&str, &str); 3] = [("", "shared"), ("shared", ""), ("shared", "shared")];

#[test]
fn readers_overlap_and_a_reader_and_a_writer_never() {
    STRICT.good(&turn("shared", "shared").replace('@', "29"));
    for (first, second) in &PAIRS[..2] {
        STRICT.edge(&turn(first, second), "30", "29", "two holders at once");
    }
    // Of the two readers, the one whose hold ends later, or the one that asked earlier.
    for (a, b) in [(20, 50), (50, 20)] {
        let readers = "a acquire 5-10 #4 <100 shared; b acquire 6-11 #5 <100 shared;";
        let ends = format!("a release {a} #4 shared; b release {b} #5 shared;");
        let writer = "c acquire 30-@ #6 <100; c release 55 #6";
        STRICT.edge(&format!("{readers} {ends} {writer}"), "50", "40", "two holders at once");
    }
}

#[test]
fn a_readers_fence_is_larger_than_all_before_it_and_no_writers() {
    for (first, second) in PAIRS {
        let pair = turn_with(first, second, "40-50");
        STRICT.edge(&pair, "5", "3", "the smaller fence");
        STRICT.bad(&pair.replace('@', "4"), "given twice");
    }
    // It was invoked before the other returned.
    STRICT.edge(&turn_with("shared", "@", "9-50").replace("#@", "#4"), "shared", "", "given twice");
}

#[test]
fn a_reader_is_extended_over_other_readers_and_over_no_writer() {
    let over = |a: &str, b: &str| {
        let own = format!("a acquire 5-10 #4 <100 {a}; a extend 61-62 #4 <110 {a}; a release 80-85 #4 {a};");
        format!("{own} b acquire 20-30 #5 <50 {b}; b release 40-45 #5 {b}")
    };
    STRICT.good(&over("shared", "shared"));
    for (a, b) in &PAIRS[..2] {
        LAX.bad(&over(a, b), "bridged");
    }
}

#[test]
fn the_margin_of_a_reader_keeps_writers_away_alone() {
    let lost = "a acquire 5-10 #4 <50 shared margin_ns=20; a lost 50 #4 shared reason=expired;";
    STRICT.edge(&format!("{lost} b acquire 51-60 #5 <130 @; b release 80-85 #5 @"), "shared", "", "too soon");
}
