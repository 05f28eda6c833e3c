//! What the lock protects: stale writes, rejections, counts.

use super::*;

/// Fences 1 to 5, acquired and released by five clients before these accesses.
fn after_fences(accesses: &str) -> String {
    let fences = (1..=5).map(|fence| {
        let at = fence * 10;
        format!("{fence} acquire {at}-{} #{fence} <{}; {fence} release {} #{fence};", at + 1, at + 9, at + 2)
    });
    fences.collect::<String>() + accesses
}

#[test]
fn a_store_that_keeps_order_is_good_and_counted() {
    let same_again = "c write 160-170 #3 count=3; r read 180-190 count=3";
    let writes =
        format!("a write 100-110 #1 count=1; c write 120-130 #3 count=2; b write 140-150 #2 failed; {same_again}");
    let report = STRICT.good(&after_fences(&writes));
    assert_eq!(report.writes, 3);
    assert!(report.to_string().contains("3 writes"), "{report}");
    // Names have stores of their own.
    let other = after_fences("a write 120-130 #1 count=1").replace(';', " name=bar;") + " name=bar;";
    STRICT.good(&(other + &after_fences("e write 100-110 #5 count=1")));
}

#[test]
fn a_stale_write_is_caught() {
    // Where they overlap in time, the stale one may have come first, unless the count says which of them did.
    let shows = "stale write: write of \"b\"";
    STRICT.edge(&after_fences("b write 100-110 #2; a write @-130 #1"), "110", "111", shows);
    let [first, last] = [(1, 2), (2, 1)].map(|(b, a)| format!("count={b}; a write 100-130 #1 count={a}"));
    STRICT.edge(&after_fences("b write 100-130 #2 @"), &last, &first, shows);
}

#[test]
fn a_refusal_without_a_larger_fence_is_caught() {
    // The larger one has to be pending by then, and an equal fence is not a reason to reject.
    let refused = after_fences("b write 100-120 #2 failed; c write @");
    STRICT.edge(&refused, "120-140 #3", "121-140 #3|90-140 #2", "refused: write of \"b\"");
}

#[test]
fn two_writes_under_one_count_are_caught() {
    let twice = after_fences("a write 100-120 #1 count=1; b write 110-130 #2 count=@");
    STRICT.edge(&twice, "2", "1", "lost update: write of \"a\"");
}

#[test]
fn a_count_that_is_too_small_or_too_large_is_caught() {
    let counted = |rest: &str| after_fences(&format!("a write 100-110 #1; b write 110-120 #2; r read {rest}"));
    STRICT.edge(&counted("200-210 count=@"), "2", "1|3", "there were 2 to 2 writes");
    // A read counts what may have been written by then: the first write has ended, the second is pending.
    STRICT.edge(&counted("111-115 count=@"), "1|2", "0", "there were 1 to 2 writes");
    // Both may be pending, or neither.
    STRICT.edge(&counted("@ count=2"), "110", "105-109", "there were 0 to 1 writes");
    STRICT.edge(&counted("110 count=@"), "0|1|2", "3", "there were 0 to 2 writes");
    // A write of which nobody knows may count.
    let unknown = after_fences("a write 100-110 #1; b write 105- #2 failed; r read 200-210 count=@");
    STRICT.edge(&unknown, "1|2", "3", "there were 1 to 2 writes");
}

#[test]
fn a_count_that_falls_is_caught() {
    // All four are pending for long enough for any count, but a read had found 3 when the last of them was invoked.
    let counts = "a write 100-190 #1 count=1; b write 100-190 #2 count=2; d write 100-190 #4; r read 110-120 count=3;";
    STRICT.edge(&after_fences(&format!("{counts} r read @-130 count=2")), "120", "121", "there were 3 to 3 writes");
}

#[test]
fn an_access_that_is_impossible_is_caught() {
    for (accesses, why) in [
        ("f write 100-110 #6", "nobody acquired this fence"),
        ("f write 100-110 #0 failed; a write 90-95 #1", "nobody acquired this fence"),
        ("e write 50-50 #5", "before the lock was acquired"),
        ("a write 100-110", "its fence is missing"),
        ("r read 100-110", "its count is missing"),
        ("r read 100- count=0", "not over"),
    ] {
        STRICT.bad(&after_fences(accesses), why);
    }
}
