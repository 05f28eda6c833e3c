//! Violations of the rules.

use std::fmt;
use std::time::Duration;

use crate::record::{Kind, Record};

/// A record that is impossible.
pub const MALFORMED: &str = "malformed";
/// Two acquisitions of one name have the same fence.
pub const DUPLICATE: &str = "one fence was given twice";
/// An acquire was invoked after another had returned and yet has the smaller fence.
pub const OUT_OF_ORDER: &str = "who asked later got the smaller fence";
/// Two held one name at the same time.
pub const OVERLAP: &str = "two holders at once";
/// The loss was told later than the end of the validity plus the slack.
pub const TOLD_LATE: &str = "told late";
/// The validity and the slack passed without notifying the holder, though the history continues.
pub const NEVER_TOLD: &str = "never told";
/// An extension succeeded although the hold had ended: lost is final.
pub const REVIVED: &str = "revived";
/// An extension succeeded that was invoked after an acquire with a larger fence had returned: another client held the lock
/// in the meantime.
pub const BRIDGED: &str = "bridged";
/// An acquire returned a valid lock after one with a larger fence had been acquired and released. The larger fence came
/// later, so the keys of the other lock were gone.
pub const SUPERSEDED: &str = "won when it was over";
/// A client got a lock that was still reserved: for its least time, or for the margin of a holder whose time had run out.
pub const TOO_SOON: &str = "too soon";
/// A write was accepted after one with a larger fence.
pub const STALE_WRITE: &str = "stale write";
/// A write was refused though no larger fence can have been accepted by then.
pub const REFUSED: &str = "refused";
/// Two writes were accepted under one count: one of them is lost.
pub const COUNTED_TWICE: &str = "lost update";
/// The count of a read or an accepted write is impossible.
pub const MISCOUNTED: &str = "miscounted";
/// A key was on a node though no client was left that may have one.
pub const LEAKED: &str = "leaked";
/// A call returned too late, or not at all.
pub const STUCK: &str = "stuck";
/// An acquire waited for too long while no client had the lock.
pub const IDLE: &str = "idle";
/// An acquire succeeded without a quorum of grants.
pub const NO_QUORUM: &str = "no quorum";

/// A violation. `Display` is one line for the person who has to find the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// One of the rules above, in words.
    pub rule: &'static str,
    /// The records that show it, all about one lock. Of two calls or holds, the later one comes last.
    pub records: Vec<Record>,
    /// What would have been right; empty if the rule says it.
    pub note: String,
}

impl Violation {
    pub(crate) fn new<'a>(rule: &'static str, records: impl IntoIterator<Item = &'a Record>, note: String) -> Self {
        Self { rule, records: records.into_iter().cloned().collect(), note }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { name, slot, .. } = &self.records[0];
        write!(f, "lock {name:?}")?;
        if let Some(slot) = slot {
            write!(f, ", slot {slot}")?;
        }
        let mut parts: Vec<String> = self.records.iter().map(told).collect();
        parts.extend((!self.note.is_empty()).then(|| self.note.clone()));
        write!(f, ": {}: {}", self.rule, parts.join("; "))
    }
}

/// Who did what when, and what came of it. Times of the history alone are numbers that stand by themselves: who looks for the
/// place in a trace finds it by them.
fn told(record: &Record) -> String {
    let Record { client, kind, ok, .. } = record;
    let from = At(record.invoke_ns);
    let to = record.return_ns.map_or("the end".to_owned(), |return_ns| At(return_ns).to_string());
    let failed = if *ok { "" } else { ", in vain" };
    let fence = record.fence.map(|fence| format!(" (fence {fence})")).unwrap_or_default();
    let count = record.count.map(|count| format!(" (number {count})")).unwrap_or_default();
    let left = record.valid_until_ns.map(|until_ns| Duration::from_nanos(until_ns.saturating_sub(record.over_ns())));
    let valid = left.map(|left| format!(", valid for {left:?}")).unwrap_or_default();
    format!("{kind} of {client:?}{fence}{count} from {from} to {to}{failed}{valid}")
}

/// When a release or a loss ends a hold.
pub(crate) fn ended_ns(record: &Record) -> u64 {
    if record.kind == Kind::Lost { record.over_ns() } else { record.invoke_ns }
}

/// A time in seconds, with every digit that was recorded.
pub(crate) struct At(pub(crate) u64);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
