//! The order of records.

use crate::hold::Held;
use crate::period::Periods;
use crate::record::{Kind, Record};
use crate::violation::{BRIDGED, OUT_OF_ORDER, Violation};

/// When a record began and ended, for the order in question; `None` if it is not part of it.
pub(crate) type Span = fn(&Record) -> Option<(u64, u64)>;

/// From the call to its return.
pub(crate) const TIME: Span = |record| Some((record.invoke_ns, record.over_ns()));

/// For each record the one with the largest `rank` of all that had ended before it began.
pub(crate) fn largest_before<'a>(
    records: &[&'a Record],
    span: Span,
    rank: fn(&Record) -> Option<u64>,
) -> Vec<Option<&'a Record>> {
    let times: Vec<_> = records.iter().map(|record| span(record)).collect();
    let sorted = |time: fn((u64, u64)) -> u64| {
        let mut sorted: Vec<_> = (0..times.len()).filter_map(|i| Some((time(times[i]?), i))).collect();
        sorted.sort_unstable();
        sorted
    };
    let mut ended = sorted(|(_, end)| end).into_iter().peekable();
    let mut before = vec![None; records.len()];
    let mut largest: Option<&Record> = None;
    for (began, i) in sorted(|(began, _)| began) {
        while let Some((_, j)) = ended.next_if(|&(end, _)| end < began) {
            if largest.is_none_or(|largest| rank(largest) < rank(records[j])) {
                largest = Some(records[j]);
            }
        }
        before[i] = largest;
    }
    before
}

/// A call that was invoked after an acquire had returned does not have a smaller fence: neither another acquire nor an
/// extension, which would span the time in which another client held. Equal fences are found elsewhere.
///
/// An extension by a reader spans the time in which other readers held, but not that of a writer.
///
/// Two servers that grant for themselves explain it if the acquire returned, and the call was invoked, in that time.
pub(crate) fn order(holds: &[Held], periods: &Periods, violations: &mut Vec<Violation>) {
    for holds in holds.chunk_by(|one, next| one.lock() == next.lock()) {
        let acquires = holds.iter().map(|hold| hold.acquired);
        let calls: Vec<&Record> =
            acquires.chain(holds.iter().flat_map(|hold| hold.extensions.iter().copied())).collect();
        let of_all = largest_before(&calls, TIME, |call| call.fence);
        let of_writers = largest_before(&calls, TIME, |call| call.fence.filter(|_| !call.shared));
        for ((&later, of_all), of_writers) in calls.iter().zip(of_all).zip(of_writers) {
            let earlier = if later.shared && later.kind == Kind::Extend {
                of_writers.filter(|earlier| !earlier.shared)
            } else {
                of_all
            };
            let is_wrong = |earlier: &&Record| {
                earlier.fence > later.fence && !periods.are_divided(later.lock(), earlier.over_ns(), later.invoke_ns)
            };
            if let Some(earlier) = earlier.filter(is_wrong) {
                let rule = if later.kind == Kind::Extend { BRIDGED } else { OUT_OF_ORDER };
                violations.push(Violation::new(rule, [earlier, later], String::new()));
            }
        }
    }
}
