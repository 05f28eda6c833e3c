//! The rules and how they are checked.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::record::{Kind, Record};
use crate::report::{Flaw, Hold, Report, Violation, Waits, ended_ns};

/// What a history has to obey beside unique fences, which are always asked for.
///
/// Faults that void a promise switch its rule off: exclusion where clocks jump, data is lost or nodes forget; order
/// where fence keys are lost; told late where holders are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// At most one holder of a name at a time.
    pub exclusion: bool,
    /// A holder hears of its loss no later than this after the end of its validity, and no extension succeeds later
    /// than that; `None` where losses are not recorded.
    pub told_late: Option<Duration>,
    /// Fences grow in real time.
    pub order: bool,
}

impl Default for Rules {
    /// Exclusion and order; no rule about losses, because it takes a driver that records them.
    fn default() -> Self {
        Self { exclusion: true, told_late: None, order: true }
    }
}

/// Judges a history; the order of its records means nothing.
#[must_use]
pub fn check(records: &[Record], rules: &Rules) -> Report {
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|record| {
        (&record.name, record.invoke_ns, record.return_ns, &record.client, record.kind, record.fence)
    });
    let mut violations = Vec::new();
    let won = acquisitions(&sorted, &mut violations);
    let slack_ns = rules.told_late.map(nanos);
    let holds = holds(&sorted, &won, slack_ns, &mut violations);
    unique(&won, &mut violations);
    if rules.order {
        order(&won, &mut violations);
    }
    if rules.exclusion {
        exclusion(&holds, &mut violations);
    }
    if let Some(slack_ns) = slack_ns {
        let end_ns = records.iter().map(Record::over_ns).max().unwrap_or(0);
        told_late(&holds, slack_ns, end_ns, &mut violations);
    }
    let denied = records.iter().filter(|record| record.kind == Kind::Acquire && !record.ok).count();
    Report {
        records: records.len(),
        names: records.iter().map(|record| &record.name).collect::<BTreeSet<_>>().len(),
        clients: records.iter().map(|record| &record.client).collect::<BTreeSet<_>>().len(),
        acquisitions: won.len(),
        denied,
        losses: records.iter().filter(|record| record.kind == Kind::Lost).count(),
        waits: Waits::new(won.iter().map(|won| won.record.over_ns() - won.record.invoke_ns).collect()),
        violations,
    }
}

/// A successful acquire and its fence.
#[derive(Clone, Copy)]
struct Won<'a> {
    record: &'a Record,
    fence: u64,
}

impl<'a> Won<'a> {
    fn name(&self) -> &'a str {
        &self.record.name
    }
}

/// An acquisition with everything that happened to it.
struct Held<'a> {
    acquired: &'a Record,
    /// Successful extensions as they were invoked.
    extensions: Vec<&'a Record>,
    /// Releases and losses.
    ends: Vec<&'a Record>,
    /// The extension that reached furthest, if any reached further than the acquire.
    furthest: Option<&'a Record>,
}

impl<'a> Held<'a> {
    fn new(acquired: &'a Record) -> Self {
        Self { acquired, extensions: Vec::new(), ends: Vec::new(), furthest: None }
    }

    /// Until when the holder could rely on the lock; without a known end, for ever.
    fn valid_until_ns(&self) -> u64 {
        self.furthest.unwrap_or(self.acquired).valid_until_ns.unwrap_or(u64::MAX)
    }

    fn start_ns(&self) -> u64 {
        self.acquired.over_ns()
    }

    fn end_ns(&self) -> u64 {
        self.ended().map_or(u64::MAX, ended_ns).min(self.valid_until_ns())
    }

    /// The release or loss that came first.
    fn ended(&self) -> Option<&'a Record> {
        self.ends.iter().copied().min_by_key(|end| (ended_ns(end), end.kind != Kind::Lost))
    }

    fn report(&self) -> Box<Hold> {
        Box::new(Hold {
            acquired: self.acquired.clone(),
            extended: self.furthest.cloned(),
            ended: self.ended().cloned(),
        })
    }
}

/// The successful acquires, sorted by name, fence and return; reports what is wrong with each record on its own.
fn acquisitions<'a>(records: &[&'a Record], violations: &mut Vec<Violation>) -> Vec<Won<'a>> {
    let mut won = Vec::new();
    for &record in records {
        if record.return_ns < record.invoke_ns {
            violations.push(Violation::Malformed { record: record.clone(), flaw: Flaw::Backwards });
        }
        match (record.kind, record.fence) {
            (Kind::Acquire, _) if !record.ok => {}
            (Kind::Acquire, Some(fence)) => won.push(Won { record, fence }),
            (_, Some(_)) => {}
            (_, None) => violations.push(Violation::Malformed { record: record.clone(), flaw: Flaw::NoFence }),
        }
    }
    won.sort_by_key(|won| (won.name(), won.fence, won.record.over_ns(), &won.record.client));
    won
}

/// Gives every extension, release and loss to its acquisition; `records` come sorted as they were invoked.
fn holds<'a>(
    records: &[&'a Record],
    won: &[Won<'a>],
    slack_ns: Option<u64>,
    violations: &mut Vec<Violation>,
) -> Vec<Held<'a>> {
    let mut holds: Vec<Held> = won.iter().map(|won| Held::new(won.record)).collect();
    for &record in records {
        let (Some(fence), false) = (record.fence, record.kind == Kind::Acquire) else { continue };
        match find(won, record, fence) {
            Ok(i) if record.kind != Kind::Extend => holds[i].ends.push(record),
            Ok(i) if record.ok => holds[i].extensions.push(record),
            Ok(_) => {}
            Err(flaw) => violations.push(Violation::Malformed { record: record.clone(), flaw }),
        }
    }
    for hold in &mut holds {
        extend(hold, slack_ns, violations);
    }
    holds
}

/// The acquisition that a record is about: the latest one of its name and fence that had returned by then, its own
/// client's first. There is more than one only where a fence was given twice.
fn find(won: &[Won], record: &Record, fence: u64) -> Result<usize, Flaw> {
    let key = (record.name.as_str(), fence);
    let first = won.partition_point(|won| (won.name(), won.fence) < key);
    let past = won.partition_point(|won| (won.name(), won.fence) <= key);
    if first == past {
        return Err(Flaw::NeverAcquired);
    }
    let since = if record.kind == Kind::Lost { record.over_ns() } else { record.invoke_ns };
    let returned = first + won[first..past].partition_point(|won| won.record.over_ns() <= since);
    if returned == first {
        // Told by another thread, a loss may be written down before its acquire is.
        return if record.kind == Kind::Lost { Ok(first) } else { Err(Flaw::BeforeAcquired) };
    }
    Ok((first..returned).rev().find(|&i| won[i].record.client == record.client).unwrap_or(returned - 1))
}

/// Lets the extensions of a hold count, those that came after its end excepted.
fn extend(hold: &mut Held, slack_ns: Option<u64>, violations: &mut Vec<Violation>) {
    // Nothing succeeds that was asked for after a release had returned or a loss had been told.
    let over_ns = hold.ends.iter().map(|end| end.over_ns()).min().unwrap_or(u64::MAX);
    for extension in std::mem::take(&mut hold.extensions) {
        let expired_ns = slack_ns.map_or(u64::MAX, |slack_ns| hold.valid_until_ns().saturating_add(slack_ns));
        if extension.invoke_ns > over_ns.min(expired_ns) {
            violations.push(Violation::Revived { hold: hold.report(), extended: extension.clone() });
        } else if extension.valid_until_ns.unwrap_or(u64::MAX) > hold.valid_until_ns() {
            hold.furthest = Some(extension);
        }
    }
}

fn unique(won: &[Won], violations: &mut Vec<Violation>) {
    for pair in won.windows(2) {
        if (pair[0].name(), pair[0].fence) == (pair[1].name(), pair[1].fence) {
            let (first, second) = (pair[0].record.clone(), pair[1].record.clone());
            violations.push(Violation::Duplicate { first, second });
        }
    }
}

/// Goes through the acquires of each name as they were invoked, with the largest fence returned until then in hand.
/// Equal fences are the business of [`unique`].
fn order(won: &[Won], violations: &mut Vec<Violation>) {
    let mut returned = won.to_vec();
    returned.sort_by_key(|won| (won.name(), won.record.over_ns()));
    let mut invoked = won.to_vec();
    invoked.sort_by_key(|won| (won.name(), won.record.invoke_ns));
    let mut returned = returned.into_iter().peekable();
    let mut largest: Option<Won> = None;
    for later in invoked {
        let before = |won: &Won| (won.name(), won.record.over_ns()) < (later.name(), later.record.invoke_ns);
        while let Some(won) = returned.next_if(before) {
            if largest.is_none_or(|largest| largest.name() != won.name() || largest.fence < won.fence) {
                largest = Some(won);
            }
        }
        if let Some(earlier) = largest.filter(|earlier| earlier.name() == later.name() && earlier.fence > later.fence) {
            let (earlier, later) = (earlier.record.clone(), later.record.clone());
            violations.push(Violation::OutOfOrder { earlier, later });
        }
    }
}

/// Goes through the holds of each name as they began, with the one in hand that ends last.
fn exclusion(holds: &[Held], violations: &mut Vec<Violation>) {
    // What was over before its acquire returned excludes nobody.
    let mut holds: Vec<&Held> = holds.iter().filter(|hold| hold.start_ns() < hold.end_ns()).collect();
    holds.sort_by_key(|hold| (hold.acquired.name.as_str(), hold.start_ns()));
    let mut last: Option<&Held> = None;
    for second in holds {
        let first = last.filter(|first| first.acquired.name == second.acquired.name);
        if let Some(first) = first.filter(|first| second.start_ns() < first.end_ns()) {
            violations.push(Violation::Overlap { first: first.report(), second: second.report() });
        }
        if first.is_none_or(|first| first.end_ns() < second.end_ns()) {
            last = Some(second);
        }
    }
}

fn told_late(holds: &[Held], slack_ns: u64, end_ns: u64, violations: &mut Vec<Violation>) {
    for hold in holds {
        let limit_ns = hold.valid_until_ns().saturating_add(slack_ns);
        match hold.ended() {
            Some(ended) if ended_ns(ended) <= limit_ns => {}
            Some(ended) if ended.kind == Kind::Lost => violations.push(Violation::ToldLate { hold: hold.report() }),
            None if end_ns <= limit_ns => {}
            _ => violations.push(Violation::NeverTold { hold: hold.report(), end_ns }),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
