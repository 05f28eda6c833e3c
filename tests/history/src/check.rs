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
use crate::reserve::too_soon;
use crate::single::{is_first, singles};
use crate::store::stores;
use crate::violation::{At, DUPLICATE, MALFORMED, NEVER_TOLD, NO_QUORUM, STUCK, TOLD_LATE, Violation, ended_ns};

/// The rules that a history must obey, beside those that always apply: unique fences, a store that rejects stale ones,
/// and keys that are gone in time.
///
/// If a fault voids a promise from then on, or at unknown times, switch its rule off: exclusion where nodes forget,
/// order where fence keys are lost. Faults with a beginning and an end are records of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// At most one holder of a name at a time, or readers alone.
    pub exclusion: bool,
    /// The longest time after the end of the validity within which a holder is notified of its loss. No extension may
    /// succeed later than that. `None` if losses are not recorded.
    pub told_late: Option<Duration>,
    /// Fences grow in real time.
    pub order: bool,
    /// How long a key may still be seen after the release of its hold, after its failed attempt, and after the end of a
    /// validity. The drift and the duration of the attempt come on top.
    pub settle: Duration,
    /// How long an acquire, an extension or a release may take without an outage; `None` for no limit.
    pub limit: Option<Duration>,
    /// How long an acquire may continue while no client has the lock and without an outage; `None` for no limit.
    pub idle: Option<Duration>,
    /// How many nodes must grant an acquire; `None` if grants are not recorded.
    pub quorum: Option<usize>,
}

impl Default for Rules {
    /// Exclusion, order, and keys that are deleted at once, but no rule that needs special records of a driver.
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

/// Judges a history. The order of its records does not matter.
#[must_use]
pub fn check(records: &[Record], rules: &Rules) -> Report {
    let mut violations = Vec::new();
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_unstable();
    sorted.retain(|record| is_sound(record, &mut violations));
    let calls = &sorted[..];
    let singles = singles(calls);
    let mut sorted: Vec<&Record> = singles.iter().map(|single| &**single).collect();
    sorted.sort_unstable();
    let sorted = &sorted[..];
    let won = acquisitions(sorted);
    let slack_ns = rules.told_late.map(nanos);
    let holds = holds(sorted, &won, slack_ns, &mut violations);
    let periods = Periods::new(sorted);
    let end_ns = sorted.iter().filter(|record| !record.kind.is_period()).map(|record| record.last_ns()).max();
    let end_ns = end_ns.unwrap_or(0);
    unique(&won, &mut violations);
    if rules.order {
        order(&holds, &periods, &mut violations);
    }
    let excused = if rules.exclusion { exclusion(&holds, &periods, &mut violations) } else { 0 };
    if rules.exclusion {
        too_soon(&holds, &periods, &mut violations);
    }
    stores(sorted, &mut violations);
    if let Some(slack_ns) = slack_ns {
        told_late(&holds, &periods, slack_ns, end_ns, &mut violations);
    }
    leaks(sorted, &holds, &periods, nanos(rules.settle), &mut violations);
    if let Some(limit) = rules.limit {
        stuck(calls, &periods, nanos(limit), end_ns, &mut violations);
    }
    if let Some(limit) = rules.idle {
        idle((calls, sorted), &holds, &periods, nanos(limit), &mut violations);
    }
    if let Some(quorum) = rules.quorum {
        granted(sorted, &won, quorum, &mut violations);
    }
    Report { excused, violations, ..counted(records, calls) }
}

/// What the records and, of those, the sound `calls` come to.
fn counted(records: &[Record], calls: &[&Record]) -> Report {
    let of = |kind| records.iter().filter(move |record| record.kind == kind);
    let told = || records.iter().filter(|record| record.kind.is_call());
    let won: Vec<u64> = calls
        .iter()
        .filter(|call| call.kind == Kind::Acquire && call.ok)
        .map(|call| call.over_ns() - call.invoke_ns)
        .collect();
    Report {
        records: records.len(),
        names: told().flat_map(Record::single_names).collect::<BTreeSet<_>>().len(),
        clients: told().map(|record| &record.client).collect::<BTreeSet<_>>().len(),
        acquisitions: won.len(),
        denied: of(Kind::Acquire).filter(|record| record.failed()).count(),
        losses: of(Kind::Lost).count(),
        writes: of(Kind::Write).filter(|record| record.ok).count(),
        waits: Waits::new(won),
        ..Report::default()
    }
}

/// Whether a record has what is needed to judge it; reports its own faults.
fn is_sound(record: &Record, violations: &mut Vec<Violation>) -> bool {
    let Record { kind, ok, .. } = *record;
    if record.return_ns.is_some_and(|return_ns| return_ns < record.invoke_ns) {
        violations.push(Violation::new(MALFORMED, [record], "it returned before it was invoked".to_owned()));
    }
    let may_be_open = match kind {
        Kind::Acquire | Kind::Extend | Kind::Release | Kind::Write => !ok,
        Kind::Lost | Kind::Read | Kind::Key | Kind::Granted => false,
        Kind::Lapse | Kind::Divided | Kind::Outage | Kind::Stopped => true,
    };
    let needs_fence = match kind {
        Kind::Acquire => ok,
        Kind::Extend | Kind::Release | Kind::Lost | Kind::Write | Kind::Granted => true,
        Kind::Read | Kind::Key | Kind::Lapse | Kind::Divided | Kind::Outage | Kind::Stopped => false,
    };
    let is_won = kind == Kind::Acquire && ok;
    let flaw = if record.return_ns.is_none() && !may_be_open {
        "it has happened and is not over"
    } else if record.fence.is_none() && needs_fence {
        "its fence is missing"
    } else if record.count.is_none() && kind == Kind::Read {
        "its count is missing"
    } else if is_won && record.permits.is_some_and(|permits| record.slot.is_none_or(|slot| slot >= permits)) {
        "its slot is not below its permits"
    } else if is_won && record.term.is_some_and(|term| record.fence != Some(term)) {
        "its term is not its fence"
    } else {
        return true;
    };
    violations.push(Violation::new(MALFORMED, [record], flaw.to_owned()));
    false
}

/// No two have one fence. Readers may, unless one had returned before the other was invoked.
fn unique(won: &[Won], violations: &mut Vec<Violation>) {
    for won in won.chunk_by(|one, next| (one.lock(), one.fence) == (next.lock(), next.fence)) {
        // The one that returned first, for it comes first.
        let first = won[0].record;
        for pair in won.windows(2) {
            let (one, next) = (pair[0].record, pair[1].record);
            let are_readers = one.shared && next.shared && first.shared;
            let before = if are_readers { first } else { one };
            if !are_readers || before.over_ns() < next.invoke_ns {
                violations.push(Violation::new(DUPLICATE, [before, next], String::new()));
            }
        }
    }
}

fn told_late(holds: &[Held], periods: &Periods, slack_ns: u64, end_ns: u64, violations: &mut Vec<Violation>) {
    for hold in holds.iter().filter(|hold| is_first(hold.acquired)) {
        let limit_ns = periods.tell_by_ns(&hold.acquired.client, hold.valid_until_ns(), slack_ns);
        let ended = hold.ended();
        if ended.map_or(end_ns, ended_ns) > limit_ns {
            let rule = if ended.is_some_and(|ended| ended.kind == Kind::Lost) { TOLD_LATE } else { NEVER_TOLD };
            let note = format!("its loss had to be told by {}", At(limit_ns));
            violations.push(Violation::new(rule, hold.records(), note));
        }
    }
}

fn stuck(records: &[&Record], periods: &Periods, limit_ns: u64, end_ns: u64, violations: &mut Vec<Violation>) {
    for &call in records {
        if matches!(call.kind, Kind::Acquire | Kind::Extend | Kind::Release) {
            let deadline_ns = periods.come_back_by_ns(call, limit_ns);
            if call.over_ns().min(end_ns) > deadline_ns {
                let note = format!("it had to come back by {}", At(deadline_ns));
                violations.push(Violation::new(STUCK, [call], note));
            }
        }
    }
}

/// Counts the nodes that granted each acquire its fence while it was pending.
fn granted(records: &[&Record], won: &[Won], quorum: usize, violations: &mut Vec<Violation>) {
    let mut grants: Vec<&Record> = records.iter().copied().filter(|record| record.kind == Kind::Granted).collect();
    grants.sort_by_key(|grant| (grant.lock(), grant.fence, &grant.token, &grant.client));
    for won in won {
        let key = (won.lock(), Some(won.fence));
        let first = grants.partition_point(|grant| (grant.lock(), grant.fence) < key);
        let past = grants.partition_point(|grant| (grant.lock(), grant.fence) <= key);
        let nodes = |grants: &[&Record]| {
            let during =
                |grant: &&&Record| grant.invoke_ns <= won.record.over_ns() && won.record.invoke_ns <= grant.over_ns();
            grants.iter().filter(during).map(|grant| &grant.client).collect::<BTreeSet<_>>().len()
        };
        // Grants under different tokens belong to different attempts.
        let granted = grants[first..past].chunk_by(|one, next| one.token == next.token).map(nodes).max().unwrap_or(0);
        if granted < quorum {
            let note = format!("it has the grants of {granted} nodes only");
            violations.push(Violation::new(NO_QUORUM, [won.record], note));
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
