//! What the lock protects: it accepts a write only if no larger fence was accepted before, a reading under a fence only if
//! no larger fence wrote before, and may count them. A reading is a write that is `shared`.
//!
//! Each write takes effect at some time between its invocation and its return; one whose outcome nobody knows at some
//! time after its invocation, or never. A history is good if there are such times that explain every answer.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included};

use crate::order::{Span, TIME, largest_before};
use crate::record::{Kind, Record};
use crate::violation::{COUNTED_TWICE, MISCOUNTED, REFUSED, STALE_WRITE, Violation};

/// The accesses to one store.
struct Store<'a> {
    accepted: Vec<&'a Record>,
    /// Accepted writes and those with an unknown result, sorted by invocation.
    possible: Vec<&'a Record>,
    refused: Vec<&'a Record>,
    /// Reads and accepted writes that contain the number of accepted ones.
    counted: Vec<&'a Record>,
}

/// Judges every store, one for each lock; `records` come sorted by lock and as they were invoked.
pub(crate) fn stores(records: &[&Record], violations: &mut Vec<Violation>) {
    for records in records.chunk_by(|one, next| one.lock() == next.lock()) {
        let writes = || records.iter().copied().filter(|record| record.kind == Kind::Write);
        let counted = |record: &&&Record| record.count.is_some() && (record.kind == Kind::Read || is_accepted(record));
        let store = Store {
            accepted: writes().filter(|write| write.ok).collect(),
            possible: writes().filter(|write| !write.failed()).collect(),
            refused: writes().filter(|write| write.failed()).collect(),
            counted: records.iter().filter(counted).copied().collect(),
        };
        store.stale(violations);
        store.refusals(violations);
        store.counts(violations);
    }
}

fn is_accepted(record: &Record) -> bool {
    record.kind == Kind::Write && record.ok
}

impl Store<'_> {
    /// Accepted fences never fall: not in time where one write returned before the other was invoked, and not where the
    /// store's own count says which came first.
    fn stale(&self, violations: &mut Vec<Violation>) {
        const COUNT: Span = |record| record.count.map(|count| (count, count));
        let before = |span| largest_before(&self.accepted, span, |write| write.fence);
        let written = |span| largest_before(&self.accepted, span, |write| write.fence.filter(|_| !write.shared));
        let (all, written) = ([before(TIME), before(COUNT)], [written(TIME), written(COUNT)]);
        for (i, later) in self.accepted.iter().enumerate() {
            let before = if later.shared { &written } else { &all };
            if let Some(earlier) = before
                .iter()
                .filter_map(|before| before[i].filter(|earlier| !later.shared || !earlier.shared))
                .max_by_key(|earlier| earlier.fence)
                .filter(|earlier| earlier.fence > later.fence)
            {
                violations.push(Violation::new(STALE_WRITE, [earlier, later], String::new()));
            }
        }
    }

    /// For each accepted access of these, the smallest fence of it and those invoked after it; the last is that of none.
    fn smallest_from(&self, counts: fn(&Record) -> bool) -> Vec<u64> {
        let fence = |write: &Record| write.fence.filter(|_| counts(write)).unwrap_or(u64::MAX);
        let mut smallest: Vec<u64> = self.accepted.iter().map(|write| fence(write)).chain([u64::MAX]).collect();
        for i in (1..smallest.len()).rev() {
            smallest[i - 1] = smallest[i - 1].min(smallest[i]);
        }
        smallest
    }

    /// A rejected write came after a larger fence. That may be any fence that was invoked by then, except one that is
    /// larger than a fence accepted only afterwards. Those that only read reject no other reading, before and after them.
    fn refusals(&self, violations: &mut Vec<Violation>) {
        let mut refused = self.refused.clone();
        refused.sort_by_key(|write| write.over_ns());
        let (smallest, smallest_written) = (self.smallest_from(|_| true), self.smallest_from(|write| !write.shared));
        let mut possible = self.possible.iter().peekable();
        let (mut written, mut read) = (BTreeSet::new(), BTreeSet::new());
        for write in refused {
            while let Some(other) = possible.next_if(|other| other.invoke_ns <= write.over_ns()) {
                if other.shared { &mut read } else { &mut written }.extend(other.fence);
            }
            let invoked = self.accepted.partition_point(|other| other.invoke_ns <= write.over_ns());
            let fence = write.fence.unwrap_or(0);
            let is_between = |fences: &BTreeSet<u64>, largest: u64| {
                largest > fence && fences.range((Excluded(fence), Included(largest))).next().is_some()
            };
            let by_reading = !write.shared && is_between(&read, smallest_written[invoked]);
            if !by_reading && !is_between(&written, smallest[invoked]) {
                violations.push(Violation::new(REFUSED, [write], String::new()));
            }
        }
    }

    /// The store counts each accepted write once, and never backwards.
    fn counts(&self, violations: &mut Vec<Violation>) {
        let mut returned: Vec<u64> = self.accepted.iter().map(|write| write.over_ns()).collect();
        returned.sort_unstable();
        let largest = largest_before(&self.counted, TIME, |record| record.count);
        let mut counted: Vec<_> = self.counted.iter().copied().zip(largest).collect();
        counted.sort_by_key(|(record, _)| record.count);
        let mut write: Option<&Record> = None;
        for (record, largest) in counted {
            let count = record.count.unwrap_or(0);
            let before = returned.partition_point(|&returned_ns| returned_ns < record.invoke_ns) as u64;
            let before = before.max(largest.and_then(|largest| largest.count).unwrap_or(0));
            let least = before + u64::from(is_accepted(record));
            let most = self.possible.partition_point(|write| write.invoke_ns <= record.over_ns()) as u64;
            if let Some(first) = write.filter(|first| is_accepted(record) && first.count == record.count) {
                violations.push(Violation::new(COUNTED_TWICE, [first, record], String::new()));
            } else if !(least..=most).contains(&count) {
                let note = format!("there were {least} to {most} writes");
                violations.push(Violation::new(MISCOUNTED, [record], note));
            }
            if is_accepted(record) {
                write = Some(record);
            }
        }
    }
}
