//! What the lock protects: stale writes, rejections, counts.

use redlock_history::{Flaw, Kind, Record, Violation};

use super::*;

/// Fences 1 to 5, acquired and released by five clients before any write.
fn fences() -> impl Iterator<Item = Record> {
    (1..=5).flat_map(|fence| {
        let (client, at) = (fence.to_string(), fence * 10);
        [acquire(&client, (at, at + 1), fence, at + 9), release(&client, (at + 2, at + 3), fence)]
    })
}

fn after_fences(writes: impl IntoIterator<Item = Record>) -> Vec<Record> {
    fences().chain(writes).collect()
}

fn write(times: (u64, u64), fence: u64) -> Record {
    record(&fence.to_string(), Kind::Write, times, fence, None)
}

fn counted(record: Record, count: u64) -> Record {
    Record { count: Some(count), ..record }
}

fn refused(times: (u64, u64), fence: u64) -> Record {
    failed(write(times, fence))
}

/// A write that never came back.
fn unknown(at: u64, fence: u64) -> Record {
    Record { return_ns: None, ..refused((at, at), fence) }
}

fn read(times: (u64, u64), count: u64) -> Record {
    counted(Record { fence: None, ..record("reader", Kind::Read, times, 0, None) }, count)
}

#[test]
fn a_store_that_keeps_order_is_good_and_counted() {
    let report = good(
        &STRICT,
        after_fences([
            counted(write((100, 110), 1), 1),
            counted(write((120, 130), 3), 2),
            refused((140, 150), 2),
            // The same holder again.
            counted(write((160, 170), 3), 3),
            read((180, 190), 3),
        ]),
    );
    assert_eq!(report.writes, 3);
    assert!(report.to_string().contains("3 writes"), "{report}");
}

#[test]
fn names_have_stores_of_their_own() {
    let other = after_fences([counted(write((120, 130), 1), 1)]).into_iter().map(|record| named("bar", record));
    good(&STRICT, after_fences([counted(write((100, 110), 5), 1)]).into_iter().chain(other));
}

#[test]
fn a_stale_write_is_caught() {
    let stale = |at| after_fences([write((100, 110), 2), write((at, 130), 1)]);
    let violation = bad(stale(111));
    let Violation::StaleWrite { earlier, later } = &violation else { panic!("{violation}") };
    assert_eq!((earlier.fence, later.fence), (Some(2), Some(1)));
    assert!(violation.to_string().contains("stale write"), "{violation}");
    // They overlap in time, and the stale one may have come first.
    good(&STRICT, stale(110));
}

#[test]
fn the_count_tells_which_of_two_overlapping_writes_was_first() {
    let overlapping = |one, two| after_fences([counted(write((100, 130), 2), one), counted(write((100, 130), 1), two)]);
    let violation = bad(overlapping(1, 2));
    let Violation::StaleWrite { earlier, later } = &violation else { panic!("{violation}") };
    assert_eq!((earlier.count, later.count), (Some(1), Some(2)));
    good(&STRICT, overlapping(2, 1));
}

#[test]
fn a_refusal_without_a_larger_fence_is_caught() {
    let against = |at, fence| after_fences([write((at, 140), fence), refused((100, 120), 2)]);
    let violation = bad(against(121, 3));
    let Violation::Refused { write } = &violation else { panic!("{violation}") };
    assert_eq!(write.fence, Some(2));
    assert!(violation.to_string().contains("refused"), "{violation}");
    // The larger one was pending by then.
    good(&STRICT, against(120, 3));
    // An equal fence is not a reason to reject.
    assert!(matches!(bad(against(90, 2)), Violation::Refused { .. }));
}

#[test]
fn two_writes_under_one_count_are_caught() {
    let twice = |count| after_fences([counted(write((100, 120), 1), 1), counted(write((110, 130), 2), count)]);
    let violation = bad(twice(1));
    let Violation::CountedTwice { first, second } = &violation else { panic!("{violation}") };
    assert_eq!((first.fence, second.fence), (Some(1), Some(2)));
    assert!(violation.to_string().contains("lost update"), "{violation}");
    good(&STRICT, twice(2));
}

#[test]
fn a_final_count_that_is_too_small_or_too_large_is_caught() {
    let final_count = |count| after_fences([write((100, 110), 1), write((110, 120), 2), read((200, 210), count)]);
    let violation = bad(final_count(1));
    assert!(matches!(violation, Violation::Miscounted { least: 2, most: 2, .. }), "{violation}");
    assert!(violation.to_string().contains("found 1 writes, there were 2 to 2"), "{violation}");
    assert!(matches!(bad(final_count(3)), Violation::Miscounted { least: 2, most: 2, .. }));
    good(&STRICT, final_count(2));
}

#[test]
fn a_read_counts_what_may_have_been_written_by_then() {
    let during = |times, count| after_fences([write((100, 110), 1), write((110, 120), 2), read(times, count)]);
    // The first write has ended, the second is pending.
    good(&STRICT, during((111, 115), 1));
    good(&STRICT, during((111, 115), 2));
    // Both may be pending, or neither.
    for count in 0..=2 {
        good(&STRICT, during((110, 110), count));
    }
    assert!(matches!(bad(during((111, 115), 0)), Violation::Miscounted { least: 1, most: 2, .. }));
    assert!(matches!(bad(during((105, 109), 2)), Violation::Miscounted { least: 0, most: 1, .. }));
}

#[test]
fn a_write_of_which_nobody_knows_may_count() {
    let with_unknown = |count| after_fences([write((100, 110), 1), unknown(105, 2), read((200, 210), count)]);
    good(&STRICT, with_unknown(1));
    good(&STRICT, with_unknown(2));
    assert!(matches!(bad(with_unknown(3)), Violation::Miscounted { least: 1, most: 2, .. }));
}

#[test]
fn a_count_that_falls_is_caught() {
    // All four are pending for long enough for any count, but a read had found 3 when the last of them was invoked.
    let falling = |at| {
        after_fences([
            counted(write((100, 190), 1), 1),
            counted(write((100, 190), 2), 2),
            write((100, 190), 4),
            read((110, 120), 3),
            read((at, 130), 2),
        ])
    };
    let violation = bad(falling(121));
    assert!(matches!(violation, Violation::Miscounted { least: 3, most: 3, .. }), "{violation}");
    good(&STRICT, falling(120));
}

#[test]
fn a_write_under_a_fence_that_nobody_won_is_caught() {
    assert_eq!(flaw(after_fences([write((100, 110), 6)])), Flaw::NeverAcquired);
    assert_eq!(flaw(after_fences([refused((100, 110), 0), write((90, 95), 1)])), Flaw::NeverAcquired);
    assert_eq!(flaw(fences().chain([write((50, 60), 5)])), Flaw::BeforeAcquired);
}

#[test]
fn a_write_without_a_fence_and_a_read_without_a_count_are_caught() {
    assert_eq!(flaw(after_fences([Record { fence: None, ..write((100, 110), 1) }])), Flaw::NoFence);
    assert_eq!(flaw(after_fences([Record { count: None, ..read((100, 110), 0) }])), Flaw::NoCount);
    assert_eq!(flaw(after_fences([Record { return_ns: None, ..read((100, 110), 0) }])), Flaw::NotOver);
}
