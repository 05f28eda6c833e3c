//! The rules and how they are checked.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::exclusion::exclusion;
use crate::hold::{Held, Won, acquisitions, holds};
use crate::idle::idle;
use crate::leak::leaks;
use crate::order::order;
use crate::period::Periods;
use crate::record::{Kind, Record};
use crate::report::{Report, Waits};
use crate::store::stores;
use crate::violation::{Flaw, Violation, ended_ns};

/// What a history has to obey beside unique fences, a store that refuses stale ones, and keys that go, which are always
/// asked for.
///
/// Faults that void a promise from then on, or at times that nobody knows, switch its rule off: exclusion where nodes
/// forget; order where fence keys are lost. Those that have a beginning and an end are records of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// At most one holder of a name at a time.
    pub exclusion: bool,
    /// A holder hears of its loss no later than this after the end of its validity, and no extension succeeds later
    /// than that; `None` where losses are not recorded.
    pub told_late: Option<Duration>,
    /// Fences grow in real time.
    pub order: bool,
    /// How long a key may still be seen after its hold was given back or its attempt had failed, and after the end of a
    /// validity: the drift, and what the attempt took, come on top of that.
    pub settle: Duration,
    /// How long an acquire, an extension or a release may take where no outage holds it up; `None` for as long as it
    /// likes.
    pub limit: Option<Duration>,
    /// How long an acquire may go on while nobody has the lock and no outage holds it up; `None` for as long as it likes.
    pub idle: Option<Duration>,
    /// How many nodes have to grant an acquire; `None` where grants are not recorded.
    pub quorum: Option<usize>,
}

impl Default for Rules {
    /// Exclusion and order, and keys that go at once; no rule that takes a driver of its own to record what it needs.
    fn default() -> Self {
        Self {
            exclusion: true,
            told_late: None,
            order: true,
            settle: Duration::ZERO,
            limit: None,
            idle: None,
            quorum: None,
        }
    }
}

/// Judges a history; the order of its records means nothing.
#[must_use]
pub fn check(records: &[Record], rules: &Rules) -> Report {
    let mut violations = Vec::new();
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_unstable();
    sorted.retain(|record| is_sound(record, &mut violations));
    let sorted = &sorted[..];
    let won = acquisitions(sorted);
    let slack_ns = rules.told_late.map(nanos);
    let holds = holds(sorted, &won, slack_ns, &mut violations);
    let periods = Periods::new(sorted);
    let end_ns = sorted.iter().filter(|record| !record.kind.is_period()).map(|record| record.last_ns()).max();
    let end_ns = end_ns.unwrap_or(0);
    unique(&won, &mut violations);
    if rules.order {
        order(&holds, &mut violations);
    }
    let excused = if rules.exclusion { exclusion(&holds, &periods, &mut violations) } else { 0 };
    stores(sorted, &mut violations);
    if let Some(slack_ns) = slack_ns {
        told_late(&holds, &periods, slack_ns, end_ns, &mut violations);
    }
    leaks(sorted, &holds, &periods, nanos(rules.settle), &mut violations);
    if let Some(limit) = rules.limit {
        stuck(sorted, &periods, nanos(limit), end_ns, &mut violations);
    }
    if let Some(limit) = rules.idle {
        idle(sorted, &holds, &periods, nanos(limit), &mut violations);
    }
    if let Some(quorum) = rules.quorum {
        granted(sorted, &won, quorum, &mut violations);
    }
    let calls = || records.iter().filter(|record| record.kind.is_call());
    Report {
        records: records.len(),
        names: calls().map(|record| &record.name).collect::<BTreeSet<_>>().len(),
        clients: calls().map(|record| &record.client).collect::<BTreeSet<_>>().len(),
        acquisitions: won.len(),
        denied: calls().filter(|record| record.kind == Kind::Acquire && record.failed()).count(),
        losses: calls().filter(|record| record.kind == Kind::Lost).count(),
        writes: calls().filter(|record| record.kind == Kind::Write && record.ok).count(),
        excused,
        waits: Waits::new(won.iter().map(|won| won.record.over_ns() - won.record.invoke_ns).collect()),
        violations,
    }
}

/// Whether a record says what is needed to judge it; reports what is wrong with it on its own.
fn is_sound(record: &Record, violations: &mut Vec<Violation>) -> bool {
    let Record { kind, ok, .. } = *record;
    if record.return_ns.is_some_and(|return_ns| return_ns < record.invoke_ns) {
        violations.push(Violation::Malformed { record: record.clone(), flaw: Flaw::Backwards });
    }
    let may_be_open = match kind {
        Kind::Acquire | Kind::Extend | Kind::Release | Kind::Write => !ok,
        Kind::Lost | Kind::Read | Kind::Key | Kind::Granted => false,
        Kind::Lapse | Kind::Outage | Kind::Stopped => true,
    };
    let needs_fence = match kind {
        Kind::Acquire => ok,
        Kind::Extend | Kind::Release | Kind::Lost | Kind::Write | Kind::Granted => true,
        Kind::Read | Kind::Key | Kind::Lapse | Kind::Outage | Kind::Stopped => false,
    };
    let flaw = if record.return_ns.is_none() && !may_be_open {
        Flaw::NotOver
    } else if record.fence.is_none() && needs_fence {
        Flaw::NoFence
    } else if record.count.is_none() && kind == Kind::Read {
        Flaw::NoCount
    } else {
        return true;
    };
    violations.push(Violation::Malformed { record: record.clone(), flaw });
    false
}

fn unique(won: &[Won], violations: &mut Vec<Violation>) {
    for pair in won.windows(2) {
        if (pair[0].name(), pair[0].fence) == (pair[1].name(), pair[1].fence) {
            let (first, second) = (pair[0].record.clone(), pair[1].record.clone());
            violations.push(Violation::Duplicate { first, second });
        }
    }
}

fn told_late(holds: &[Held], periods: &Periods, slack_ns: u64, end_ns: u64, violations: &mut Vec<Violation>) {
    for hold in holds {
        let limit_ns = periods.tell_by_ns(&hold.acquired.client, hold.valid_until_ns(), slack_ns);
        match hold.ended() {
            Some(ended) if ended_ns(ended) <= limit_ns => {}
            Some(ended) if ended.kind == Kind::Lost => violations.push(Violation::ToldLate { hold: hold.report() }),
            None if end_ns <= limit_ns => {}
            _ => violations.push(Violation::NeverTold { hold: hold.report(), end_ns }),
        }
    }
}

fn stuck(records: &[&Record], periods: &Periods, limit_ns: u64, end_ns: u64, violations: &mut Vec<Violation>) {
    for &call in records {
        if matches!(call.kind, Kind::Acquire | Kind::Extend | Kind::Release) {
            let deadline_ns = periods.come_back_by_ns(call, limit_ns);
            if call.over_ns().min(end_ns) > deadline_ns {
                violations.push(Violation::Stuck { call: call.clone(), deadline_ns });
            }
        }
    }
}

/// Counts the nodes that granted each acquire its fence while it was going on.
fn granted(records: &[&Record], won: &[Won], quorum: usize, violations: &mut Vec<Violation>) {
    let mut grants: Vec<&Record> = records.iter().copied().filter(|record| record.kind == Kind::Granted).collect();
    grants.sort_by_key(|grant| (&grant.name, grant.fence, &grant.token, &grant.client));
    for won in won {
        let key = (&won.record.name, Some(won.fence));
        let first = grants.partition_point(|grant| (&grant.name, grant.fence) < key);
        let past = grants.partition_point(|grant| (&grant.name, grant.fence) <= key);
        let nodes = |grants: &[&Record]| {
            let during =
                |grant: &&&Record| grant.invoke_ns <= won.record.over_ns() && won.record.invoke_ns <= grant.over_ns();
            grants.iter().filter(during).map(|grant| &grant.client).collect::<BTreeSet<_>>().len()
        };
        // Grants under different tokens are of different attempts.
        let granted = grants[first..past].chunk_by(|one, next| one.token == next.token).map(nodes).max().unwrap_or(0);
        if granted < quorum {
            violations.push(Violation::NoQuorum { acquired: won.record.clone(), granted });
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
