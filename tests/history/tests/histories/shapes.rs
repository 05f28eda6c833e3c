//! Locks of several names, permits of semaphores, least times, margins and terms.

use std::time::Duration;

use redlock_history::{Flaw, Kind, Reason, Record, Rules, Violation};

use super::*;

/// Makes a record one of a lock of these names.
fn of(names: &[&str], record: Record) -> Record {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    Record { name: names.join(", "), names, ..record }
}

/// Makes a record one of a slot of a semaphore whose caller allows three.
fn slot(slot: u32, record: Record) -> Record {
    Record { slot: Some(slot), permits: Some(3), ..record }
}

/// A key, a write or a read of a slot.
fn of_slot(slot: u32, record: Record) -> Record {
    Record { slot: Some(slot), ..record }
}

fn key(at: u64, fence: u64) -> Record {
    record("node 1", Kind::Key, (at, at), fence, None)
}

fn lapse(times: (u64, u64)) -> Record {
    Record { fence: None, ..record("a fault", Kind::Lapse, times, 0, None) }
}

/// The same without a lock's name for all: every rule that a turn of `a`, and then one of `b`, can break.
fn turn(first: fn(Record) -> Record, second: fn(Record) -> Record, (asked, got): (u64, u64)) -> Vec<Record> {
    let a = [acquire("a", (5, 10), 4, 100), release("a", (30, 35), 4)].map(first);
    let b = [acquire("b", (asked, got), 5, 130), release("b", (60, 65), 5)].map(second);
    [a, b].concat()
}

#[test]
fn a_lock_of_several_names_excludes_each_of_them() {
    let both: fn(Record) -> Record = |record| of(&["bar", "foo"], record);
    let foo: fn(Record) -> Record = |record| record;
    for (first, second) in [(both, foo), (foo, both)] {
        good(&STRICT, turn(first, second, (20, 30)));
        let violation = bad(turn(first, second, (20, 29)));
        assert!(matches!(violation, Violation::Overlap { .. }), "{violation}");
        assert_eq!(violation.name(), "foo");
    }
    good(&STRICT, turn(both, |record| named("other", record), (20, 29)));
    good(&STRICT, turn(both, |record| named("bar, foo", record), (20, 29)));
    // They have one name in common.
    let violation = bad(turn(both, |record| of(&["foo", "other"], record), (20, 29)));
    assert!(violation.to_string().starts_with("lock \"foo\": two holders at once"), "{violation}");
}

#[test]
fn its_fence_is_one_of_each_of_its_names() {
    let set = |asked, fence| {
        let set = [acquire("b", (asked, 60), fence, 130), release("b", (70, 75), fence)];
        let foo = [acquire("a", (5, 10), 4, 100), release("a", (30, 35), 4)];
        [foo, set.map(|record| of(&["bar", "foo"], record))].concat()
    };
    good(&STRICT, set(40, 5));
    assert!(matches!(bad(set(40, 3)), Violation::OutOfOrder { .. }));
    assert!(matches!(bad(set(40, 4)), Violation::Duplicate { .. }));
    let set = of(&["bar", "foo"], acquire("b", (40, 60), 5, 130));
    let bridged = [acquire("a", (5, 10), 4, 100), set, extend("a", (61, 62), 4, 110), release("a", (80, 85), 4)];
    assert!(matches!(one(bridged, &Rules { exclusion: false, ..STRICT }), Violation::Bridged { .. }));
}

#[test]
fn what_is_said_of_several_names_is_said_once() {
    let set =
        |told| [acquire("a", (5, 10), 4, 50), lost("a", told, 4)].map(|record| of(&["foo", "bar", "foo"], record));
    let report = good(&STRICT, set(60));
    assert_eq!((report.acquisitions, report.losses, report.names), (1, 1, 2));
    assert!(matches!(bad(set(61)), Violation::ToldLate { .. }));
    let denied = |until| of(&["foo", "bar"], denied("a", (0, until)));
    assert_eq!(good(&STRICT, [denied(200)]).denied, 1);
    assert!(matches!(bad([denied(201)]), Violation::Stuck { .. }));
}

#[test]
fn a_write_under_several_names_is_to_one_of_them() {
    let set = [acquire("a", (5, 10), 4, 100), release("a", (30, 35), 4)].map(|record| of(&["bar", "foo"], record));
    let later = [acquire("b", (40, 45), 5, 130), release("b", (60, 65), 5)];
    let write = |client: &str, at, fence| record(client, Kind::Write, (at, at), fence, None);
    let with = |late| [&set[..], &later[..], &[write("a", 20, 4), write("b", 50, 5), late]].concat();
    assert!(matches!(bad(with(write("a", 55, 4))), Violation::StaleWrite { .. }));
    good(&STRICT, with(failed(write("a", 55, 4))));
    good(&STRICT, with(named("bar", write("a", 55, 4))));
}

#[test]
fn several_names_are_waited_for_only_while_all_are_free() {
    let rules = Rules { idle: Some(Duration::from_nanos(10)), limit: None, ..STRICT };
    let waits = |until, bar_until: u64| {
        let bar =
            [acquire("b", (0, 0), 1, 900), release("b", (bar_until, bar_until), 1)].map(|record| named("bar", record));
        [&turn(|record| record, |record| record, (20, 30))[..], &bar, &[of(&["bar", "foo"], denied("c", (0, until)))]]
            .concat()
    };
    // The other one has foo until 65.
    good(&rules, waits(75, 20));
    let violation = one(waits(76, 20), &rules);
    assert!(matches!(violation, Violation::Idle { since_ns: 65, until_ns: 76, .. }), "{violation}");
    good(&rules, waits(100, 90));
    assert!(matches!(one(waits(101, 90), &rules), Violation::Idle { since_ns: 90, until_ns: 101, .. }));
}

#[test]
fn each_slot_of_a_semaphore_has_one_holder() {
    let zero: fn(Record) -> Record = |record| slot(0, record);
    good(&STRICT, turn(zero, |record| slot(1, record), (20, 25)));
    good(&STRICT, turn(zero, |record| record, (20, 25)));
    good(&STRICT, turn(zero, zero, (20, 30)));
    let violation = bad(turn(zero, zero, (20, 29)));
    assert!(violation.to_string().starts_with("lock \"foo\", slot 0: two holders at once"), "{violation}");
    // Fences are those of a slot.
    let same = |record: Record| Record { fence: Some(4), ..record };
    let turns = |second: fn(Record) -> Record| turn(zero, second, (40, 50)).into_iter().map(same);
    good(&STRICT, turns(|record| slot(1, record)));
    assert!(matches!(bad(turns(zero)), Violation::Duplicate { .. }));
}

#[test]
fn a_slot_that_its_caller_does_not_allow_is_caught() {
    let won = |slot| [Record { slot, permits: Some(3), ..acquire("a", (5, 10), 4, 100) }];
    good(&Rules { told_late: None, ..STRICT }, won(Some(2)));
    assert_eq!(flaw(won(Some(3))), Flaw::OutsidePermits);
    assert_eq!(flaw(won(None)), Flaw::OutsidePermits);
}

/// Whatever slots they say that they have.
#[test]
fn no_more_hold_a_semaphore_than_the_largest_of_its_callers_allows() {
    let callers = [(1, "a"), (2, "b"), (2, "c")];
    for slots in 0..27_u32 {
        let hold = |(i, (permits, client)): (usize, &(u32, &str))| {
            let at = u64::try_from(i).expect("a small number");
            let slot = Some(slots / 3_u32.pow(u32::try_from(i).expect("a small number")) % 3);
            Record { slot, permits: Some(*permits), ..acquire(client, (at, 10 + at), at + 1, 100) }
        };
        let report = judge(callers.iter().enumerate().map(hold), &Rules { told_late: None, ..STRICT });
        assert!(!report.is_ok(), "{slots}");
    }
}

#[test]
fn a_permit_is_waited_for_only_while_no_slot_is_free() {
    let rules = Rules { idle: Some(Duration::from_nanos(10)), limit: None, told_late: None, ..STRICT };
    let held = |number, until| {
        let client = format!("holder {number}");
        [acquire(&client, (0, 0), 1, 900), release(&client, (until, until), 1)].map(|record| slot(number, record))
    };
    let waits = |permits, until| {
        let call = Record { permits: Some(permits), ..denied("a", (0, until)) };
        [&held(0, 90)[..], &held(1, 40), &held(2, 20), &[call]].concat()
    };
    good(&rules, waits(3, 30));
    assert!(matches!(one(waits(3, 31), &rules), Violation::Idle { since_ns: 20, .. }));
    good(&rules, waits(2, 50));
    assert!(matches!(one(waits(2, 51), &rules), Violation::Idle { since_ns: 40, .. }));
    good(&rules, waits(1, 100));
    // The one that gets the last slot has waited as well.
    let won = Record { permits: Some(2), slot: Some(1), ..acquire("a", (0, 51), 2, 900) };
    let waited = [&held(0, 90)[..], &held(1, 40), &[won]].concat();
    assert!(matches!(one(waited, &rules), Violation::Idle { since_ns: 40, until_ns: 51, .. }));
}

#[test]
fn a_key_of_a_slot_belongs_to_who_asked_for_that_slot() {
    let asks = |permits| Record { permits: Some(permits), ..denied("a", (5, 30)) };
    for (permits, number) in [(1, 0), (3, 0), (3, 2)] {
        good(&STRICT, [asks(permits), of_slot(number, key(30, 4))]);
        assert!(matches!(bad([asks(permits), of_slot(number, key(31, 4))]), Violation::Leaked { .. }));
    }
    assert!(matches!(bad([asks(2), of_slot(2, key(20, 4))]), Violation::Leaked { .. }));
    assert!(matches!(bad([asks(2), key(20, 4)]), Violation::Leaked { .. }));
    // Who has one slot may have tried another one before.
    let won = |key| [slot(1, acquire("a", (5, 30), 4, 100)), slot(1, release("a", (40, 45), 4)), key];
    good(&STRICT, won(of_slot(1, key(45, 4))));
    good(&STRICT, won(of_slot(2, key(30, 3))));
    assert!(matches!(bad(won(of_slot(2, key(31, 3)))), Violation::Leaked { .. }));
    assert!(matches!(bad(won(of_slot(1, key(46, 4)))), Violation::Leaked { .. }));
}

#[test]
fn grants_of_several_names_and_of_slots_are_counted_for_each() {
    let rules = Rules { quorum: Some(2), ..STRICT };
    let grant = |node: &str| record(node, Kind::Granted, (7, 7), 4, None);
    let turn = [acquire("a", (5, 10), 4, 100), release("a", (30, 35), 4)];
    let both = |record| of(&["bar", "foo"], record);
    let set = |second| [&turn.clone().map(both)[..], &[both(grant("one")), second]].concat();
    good(&rules, set(both(grant("two"))));
    assert!(matches!(one(set(grant("two")), &rules), Violation::NoQuorum { granted: 1, .. }));
    let permit =
        |second| [&turn.clone().map(|record| slot(1, record))[..], &[of_slot(1, grant("one")), second]].concat();
    good(&rules, permit(of_slot(1, grant("two"))));
    assert!(matches!(one(permit(of_slot(0, grant("two"))), &rules), Violation::NoQuorum { granted: 1, .. }));
}

#[test]
fn a_lock_stays_reserved_for_its_least_time() {
    let rules = Rules { told_late: None, ..STRICT };
    let with = |release: Record, got| {
        let acquire = Record { least_until_ns: Some(80), ..acquire("a", (5, 10), 4, 100) };
        [acquire, release, super::acquire("b", (40, got), 5, 900)]
    };
    let early = || release("a", (30, 35), 4);
    good(&rules, with(early(), 80));
    let violation = one(with(early(), 79), &rules);
    assert!(matches!(violation, Violation::TooSoon { reserved_ns: 80, .. }), "{violation}");
    assert!(violation.to_string().contains("which kept it from others until 0.000000080 s"), "{violation}");
    good(&Rules { exclusion: false, ..rules }, with(early(), 79));
    // Both were over at once, and the other one may have been first.
    let [first, second] = [4, 5].map(|fence| [acquire("a", (30, 30), fence, 100), release("a", (30, 30), fence)]);
    let first = first.map(|record| Record { least_until_ns: Some(80), ..record });
    good(&rules, [&first[..], &second].concat());
    // Nobody kept it from others: it was killed, or told of a loss, or released when it was over.
    good(&rules, with(failed(early()), 79));
    good(&rules, with(lost("a", 30, 4), 79));
    let over = Record { valid_until_ns: Some(34), ..with(early(), 79)[0].clone() };
    good(&rules, [over, early(), acquire("b", (40, 79), 5, 900)]);
}

#[test]
fn who_gets_a_reserved_lock_itself_is_caught_too() {
    let first = Record { least_until_ns: Some(80), ..acquire("a", (5, 10), 4, 100) };
    let turn = [first, release("a", (30, 35), 4), acquire("a", (40, 50), 5, 900), release("a", (60, 61), 5)];
    assert!(matches!(bad(turn), Violation::TooSoon { .. }));
}

#[test]
fn a_lock_stays_reserved_for_the_margin_of_who_lost_it() {
    let with = |ends: &[Record], got| {
        let acquire = Record { margin_ns: Some(30), ..acquire("a", (5, 10), 4, 50) };
        [&[acquire][..], ends, &[super::acquire("b", (40, got), 5, 900)]].concat()
    };
    let told = |reason| Record { reason, ..lost("a", 50, 4) };
    for reason in [None, Some(Reason::Expired), Some(Reason::Unreachable), Some(Reason::MaxHold)] {
        good(&STRICT, with(&[told(reason)], 80));
        let violation = bad(with(&[told(reason)], 79));
        assert!(matches!(violation, Violation::TooSoon { reserved_ns: 80, .. }), "{violation}");
        // It says itself that it has stopped.
        good(&STRICT, with(&[told(reason), release("a", (60, 60), 4)], 60));
        assert!(matches!(bad(with(&[told(reason), release("a", (60, 60), 4)], 59)), Violation::TooSoon { .. }));
    }
    for reason in [Some(Reason::Taken), Some(Reason::Deleted)] {
        good(&STRICT, with(&[told(reason)], 50));
    }
    // Released in time, or nobody knows how it ended.
    good(&STRICT, with(&[release("a", (45, 46), 4)], 50));
    assert!(matches!(one(with(&[], 79), &Rules { told_late: None, ..STRICT }), Violation::TooSoon { .. }));
}

#[test]
fn a_lapse_excuses_who_gets_a_reserved_lock() {
    let with = |times| {
        let first = Record { margin_ns: Some(30), ..acquire("a", (5, 10), 4, 50) };
        [first, lost("a", 50, 4), acquire("b", (40, 70), 5, 900), lapse(times)]
    };
    for times in [(0, 5), (70, 90)] {
        good(&STRICT, with(times));
    }
    for times in [(0, 4), (71, 90)] {
        assert!(matches!(bad(with(times)), Violation::TooSoon { .. }));
    }
}

#[test]
fn a_key_may_stay_for_as_long_as_it_reserves_its_lock() {
    let least = |at| {
        let acquire = Record { least_until_ns: Some(80), ..acquire("a", (5, 10), 4, 100) };
        [acquire, release("a", (30, 35), 4), key(at, 4)]
    };
    good(&STRICT, least(80));
    assert!(matches!(bad(least(81)), Violation::Leaked { .. }));
    let margin = |ends: &[Record], at| {
        let acquire = Record { margin_ns: Some(30), ..acquire("a", (5, 10), 4, 50) };
        [&[acquire][..], ends, &[key(at, 4)]].concat()
    };
    good(&STRICT, margin(&[lost("a", 50, 4)], 80));
    assert!(matches!(bad(margin(&[lost("a", 50, 4)], 81)), Violation::Leaked { .. }));
    assert!(matches!(bad(margin(&[lost("a", 50, 4), release("a", (60, 61), 4)], 62)), Violation::Leaked { .. }));
    let taken = Record { reason: Some(Reason::Taken), ..lost("a", 50, 4) };
    assert!(matches!(bad(margin(&[taken], 51)), Violation::Leaked { .. }));
}

#[test]
fn a_term_is_a_fence() {
    let term = |term| Record { term: Some(term), ..acquire("a", (5, 10), 4, 100) };
    good(&STRICT, [term(4), release("a", (30, 35), 4)]);
    assert_eq!(flaw([term(5)]), Flaw::WrongTerm);
}

fn shared(record: Record) -> Record {
    Record { shared: true, ..record }
}

#[test]
fn readers_overlap_and_a_reader_and_a_writer_never() {
    let writer: fn(Record) -> Record = |record| record;
    good(&STRICT, turn(shared, shared, (20, 29)));
    for (first, second) in [(writer, shared as fn(Record) -> Record), (shared, writer)] {
        good(&STRICT, turn(first, second, (20, 30)));
        assert!(matches!(bad(turn(first, second, (20, 29))), Violation::Overlap { .. }));
    }
    // Of the two readers, the one whose hold ends later, or the one that asked earlier.
    for end in [20, 50] {
        let readers = [acquire("a", (5, 10), 4, 100), acquire("b", (6, 11), 5, 100)].map(shared);
        let ends = [release("a", (end, end), 4), release("b", (70 - end, 70 - end), 5)].map(shared);
        let writer = [acquire("c", (30, 40), 6, 100), release("c", (45, 45), 6)];
        let all = [&readers[..], &ends, &writer].concat();
        assert!(matches!(bad(all), Violation::Overlap { .. }), "until {end}");
    }
}

#[test]
fn a_readers_fence_is_larger_than_all_before_it_and_no_writers() {
    let pair = |first: fn(Record) -> Record, second: fn(Record) -> Record, asked, fence| {
        let a = [acquire("a", (5, 10), 4, 100), release("a", (12, 13), 4)].map(first);
        let b = [acquire("b", (asked, 30), fence, 130), release("b", (60, 65), fence)].map(second);
        [a, b].concat()
    };
    let writer: fn(Record) -> Record = |record| record;
    for (first, second) in [(writer, shared as fn(Record) -> Record), (shared, writer), (shared, shared)] {
        good(&STRICT, pair(first, second, 20, 5));
        assert!(matches!(bad(pair(first, second, 20, 3)), Violation::OutOfOrder { .. }));
        assert!(matches!(bad(pair(first, second, 20, 4)), Violation::Duplicate { .. }));
    }
    good(&STRICT, pair(shared, shared, 9, 4));
    assert!(matches!(bad(pair(shared, writer, 9, 4)), Violation::Duplicate { .. }));
}

#[test]
fn a_reader_is_extended_over_other_readers_and_over_no_writer() {
    let records = |other: fn(Record) -> Record| {
        let reader =
            [acquire("a", (5, 10), 4, 100), extend("a", (61, 62), 4, 110), release("a", (80, 85), 4)].map(shared);
        let other = [acquire("b", (20, 30), 5, 50), release("b", (40, 45), 5)].map(other);
        [&reader[..], &other].concat()
    };
    good(&STRICT, records(shared));
    let rules = Rules { exclusion: false, ..STRICT };
    assert!(matches!(one(records(|record| record), &rules), Violation::Bridged { .. }));
    // And the other way round: a writer is not extended over a reader.
    let writer = [acquire("a", (5, 10), 4, 100), extend("a", (61, 62), 4, 110), release("a", (80, 85), 4)];
    let reader = [acquire("b", (20, 30), 5, 50), release("b", (40, 45), 5)].map(shared);
    assert!(matches!(one([&writer[..], &reader].concat(), &rules), Violation::Bridged { .. }));
}

#[test]
fn the_margin_of_a_reader_keeps_writers_away_alone() {
    let with = |other: fn(Record) -> Record| {
        let reader = Record { margin_ns: Some(20), ..acquire("a", (5, 10), 4, 50) };
        let lost = Record { reason: Some(Reason::Expired), ..lost("a", 50, 4) };
        let other = [acquire("b", (51, 60), 5, 130), release("b", (80, 85), 5)].map(other);
        [&[reader, lost].map(shared)[..], &other].concat()
    };
    good(&STRICT, with(shared));
    assert!(matches!(bad(with(|record| record)), Violation::TooSoon { .. }));
}
