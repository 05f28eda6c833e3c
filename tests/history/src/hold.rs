//! Acquisitions and what happened to them.

use crate::record::{Kind, LockId, Record};
use crate::violation::{MALFORMED, REVIVED, Violation, ended_ns};

/// A successful acquire and its fence.
#[derive(Clone, Copy)]
pub(crate) struct Won<'a> {
    pub(crate) record: &'a Record,
    pub(crate) fence: u64,
}

impl<'a> Won<'a> {
    pub(crate) fn lock(&self) -> LockId<'a> {
        self.record.lock()
    }
}

/// An acquisition with everything that happened to it.
pub(crate) struct Held<'a> {
    pub(crate) acquired: &'a Record,
    pub(crate) fence: u64,
    /// Successful extensions as they were invoked.
    pub(crate) extensions: Vec<&'a Record>,
    /// Releases and losses.
    pub(crate) ends: Vec<&'a Record>,
    /// The extension that reached furthest, if any reached further than the acquire.
    furthest: Option<&'a Record>,
}

impl<'a> Held<'a> {
    fn new(won: &Won<'a>) -> Self {
        let Won { record: acquired, fence } = *won;
        Self { acquired, fence, extensions: Vec::new(), ends: Vec::new(), furthest: None }
    }

    pub(crate) fn lock(&self) -> LockId<'a> {
        self.acquired.lock()
    }

    /// Whether the holder is a reader.
    pub(crate) fn is_shared(&self) -> bool {
        self.acquired.shared
    }

    /// Until when the holder could rely on the lock; for ever if no end is known.
    pub(crate) fn valid_until_ns(&self) -> u64 {
        self.furthest.unwrap_or(self.acquired).valid_until_ns.unwrap_or(u64::MAX)
    }

    pub(crate) fn start_ns(&self) -> u64 {
        self.acquired.over_ns()
    }

    pub(crate) fn end_ns(&self) -> u64 {
        self.ended().map_or(u64::MAX, ended_ns).min(self.valid_until_ns())
    }

    /// The first release or loss.
    pub(crate) fn ended(&self) -> Option<&'a Record> {
        self.ends.iter().copied().min_by_key(|end| (ended_ns(end), end.kind != Kind::Lost))
    }

    /// When its keys had been released or had expired.
    pub(crate) fn gone_ns(&self) -> u64 {
        // A release that failed may not have reached any node.
        let given_back = self.ends.iter().filter(|end| end.ok).map(|end| self.freed_ns(end)).min();
        given_back.unwrap_or(self.passed_ns())
    }

    /// When its keys had been released after this release or loss.
    fn freed_ns(&self, end: &Record) -> u64 {
        if end.is_loss_by_time() && self.acquired.margin_ns.is_some() {
            end.over_ns().max(self.passed_ns())
        } else if end.kind == Kind::Release {
            end.over_ns().max(self.acquired.least_until_ns.unwrap_or(0))
        } else {
            end.over_ns()
        }
    }

    /// When its validity had ended, and the margin had passed.
    pub(crate) fn passed_ns(&self) -> u64 {
        self.valid_until_ns().saturating_add(self.acquired.margin_ns.unwrap_or(0))
    }

    /// The acquire, what moved its end furthest, and what ended it.
    pub(crate) fn records(&self) -> impl Iterator<Item = &'a Record> + use<'a> {
        [Some(self.acquired), self.furthest, self.ended()].into_iter().flatten()
    }
}

/// The successful acquires, sorted by lock, fence and return.
pub(crate) fn acquisitions<'a>(records: &[&'a Record]) -> Vec<Won<'a>> {
    let won = |&record: &&'a Record| match record {
        Record { kind: Kind::Acquire, ok: true, fence: Some(fence), .. } => Some(Won { record, fence: *fence }),
        _ => None,
    };
    let mut won: Vec<Won> = records.iter().filter_map(won).collect();
    won.sort_by_key(|won| (won.lock(), won.fence, won.record.over_ns(), &won.record.client));
    won
}

/// Assigns the records under a fence to its acquisition; `records` are sorted by invocation.
pub(crate) fn holds<'a>(
    records: &[&'a Record],
    won: &[Won<'a>],
    slack_ns: Option<u64>,
    violations: &mut Vec<Violation>,
) -> Vec<Held<'a>> {
    let mut holds: Vec<Held> = won.iter().map(Held::new).collect();
    for &record in records.iter().filter(|record| record.kind.is_call() && record.kind != Kind::Acquire) {
        let Some(fence) = record.fence else { continue };
        match find(won, record, fence) {
            Ok(i) => match record.kind {
                Kind::Release | Kind::Lost => holds[i].ends.push(record),
                Kind::Extend if record.ok => holds[i].extensions.push(record),
                _ => {}
            },
            Err(flaw) => violations.push(Violation::new(MALFORMED, [record], flaw.to_owned())),
        }
    }
    for hold in &mut holds {
        extend(hold, slack_ns, violations);
    }
    holds
}

/// The acquisition that a record is about: the latest one of its lock and fence that had returned by then, its own
/// client's first. There is more than one only where a fence was given twice.
fn find(won: &[Won], record: &Record, fence: u64) -> Result<usize, &'static str> {
    let key = (record.lock(), fence);
    let first = won.partition_point(|won| (won.lock(), won.fence) < key);
    let past = won.partition_point(|won| (won.lock(), won.fence) <= key);
    if first == past {
        return Err("nobody acquired this fence");
    }
    let since = if record.kind == Kind::Lost { record.over_ns() } else { record.invoke_ns };
    let returned = first + won[first..past].partition_point(|won| won.record.over_ns() <= since);
    if returned == first {
        // Another thread may record a loss before the acquire is recorded.
        return if record.kind == Kind::Lost { Ok(first) } else { Err("it was invoked before the lock was acquired") };
    }
    Ok((first..returned).rev().find(|&i| won[i].record.client == record.client).unwrap_or(returned - 1))
}

/// Counts the extensions of a hold, except those after its end.
fn extend(hold: &mut Held, slack_ns: Option<u64>, violations: &mut Vec<Violation>) {
    // No call succeeds that was invoked after a release had returned or a loss had been reported.
    let over_ns = hold.ends.iter().map(|end| end.over_ns()).min().unwrap_or(u64::MAX);
    for extension in std::mem::take(&mut hold.extensions) {
        let expired_ns = slack_ns.map_or(u64::MAX, |slack_ns| hold.valid_until_ns().saturating_add(slack_ns));
        if extension.invoke_ns > over_ns.min(expired_ns) {
            violations.push(Violation::new(REVIVED, hold.records().chain([extension]), String::new()));
            continue;
        }
        if extension.valid_until_ns.unwrap_or(u64::MAX) > hold.valid_until_ns() {
            hold.furthest = Some(extension);
        }
        hold.extensions.push(extension);
    }
}
