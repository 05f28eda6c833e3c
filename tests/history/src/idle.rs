//! Locks that no client has while some wait for them.

use crate::hold::Held;
use crate::period::Periods;
use crate::record::{Kind, Record};
use crate::violation::Violation;

/// A time in which no client had a lock.
struct Gap<'a> {
    name: &'a str,
    from_ns: u64,
    to_ns: u64,
}

/// No acquire waits longer than `idle_ns` while the lock is free. Outages and stops of the waiter do not count.
pub(crate) fn idle(
    records: &[&Record],
    holds: &[Held],
    periods: &Periods,
    idle_ns: u64,
    violations: &mut Vec<Violation>,
) {
    let gaps = gaps(records, holds, idle_ns);
    // It is unknown whether unreturned acquires still wait.
    for &call in records.iter().filter(|record| record.kind == Kind::Acquire && record.return_ns.is_some()) {
        let first = gaps.partition_point(|gap| (gap.name, gap.to_ns) <= (call.name.as_str(), call.invoke_ns));
        let during = |gap: &&Gap| gap.name == call.name && gap.from_ns < call.over_ns();
        for gap in gaps[first..].iter().take_while(during) {
            let since_ns = gap.from_ns.max(call.invoke_ns);
            let until_ns = call.over_ns().min(gap.to_ns);
            if until_ns > periods.serve_by_ns(call, since_ns, idle_ns) {
                violations.push(Violation::Idle { call: call.clone(), since_ns, until_ns });
                break;
            }
        }
    }
}

/// The gaps longer than `idle_ns`, sorted by name and time. A client has the lock from the return of its acquire. An
/// acquire that has not returned may have a key all the time.
fn gaps<'a>(records: &[&'a Record], holds: &[Held<'a>], idle_ns: u64) -> Vec<Gap<'a>> {
    let held = holds.iter().map(|hold| (hold.name(), hold.start_ns(), hold.gone_ns()));
    let other = records.iter().filter(|record| record.kind == Kind::Acquire && !record.ok).map(|call| {
        let (from_ns, gone_ns) = match call.return_ns {
            None => (call.invoke_ns, call.valid_until_ns.unwrap_or(u64::MAX)),
            // A name that was never acquired is free as well.
            Some(_) => (0, 0),
        };
        (call.name.as_str(), from_ns, gone_ns)
    });
    let mut taken: Vec<(&str, u64, u64)> = held.chain(other).collect();
    taken.sort_unstable();
    let mut gaps = Vec::new();
    let mut add = |name, from_ns: u64, to_ns: u64| {
        if to_ns.saturating_sub(from_ns) > idle_ns {
            gaps.push(Gap { name, from_ns, to_ns });
        }
    };
    for taken in taken.chunk_by(|one, next| one.0 == next.0) {
        let mut free_ns = 0;
        for (name, from_ns, gone_ns) in taken {
            add(name, free_ns, *from_ns);
            free_ns = free_ns.max(*gone_ns);
        }
        add(taken[0].0, free_ns, u64::MAX);
    }
    gaps
}
