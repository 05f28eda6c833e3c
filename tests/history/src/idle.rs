//! Locks that no client has while some wait for them.

use crate::hold::Held;
use crate::period::Periods;
use crate::record::{Kind, LockId, Record};
use crate::violation::{At, IDLE, Violation};

/// A time in which no client had a lock.
struct Gap<'a> {
    lock: LockId<'a>,
    from_ns: u64,
    to_ns: u64,
}

/// No acquire waits longer than `idle_ns` while what it asks for is free: all of its names, or one slot of its permits all
/// the time. Outages and stops of the waiter do not count. `singles` are the records of single locks.
pub(crate) fn idle(
    (calls, singles): (&[&Record], &[&Record]),
    holds: &[Held],
    periods: &Periods,
    idle_ns: u64,
    violations: &mut Vec<Violation>,
) {
    let gaps = gaps(singles, holds, idle_ns);
    // It is unknown whether unreturned acquires still wait.
    for &call in calls.iter().filter(|record| record.kind == Kind::Acquire && record.return_ns.is_some()) {
        let is_late = |&(from_ns, to_ns): &(u64, u64)| to_ns > periods.serve_by_ns(call, from_ns, idle_ns);
        let of = |lock| during(&gaps, lock, call);
        let late = if let Some(permits) = call.permits {
            (0..permits).find_map(|slot| of((call.name.as_str(), Some(slot))).into_iter().find(is_late))
        } else {
            let mut names = call.single_names().iter().map(|name| of((name.as_str(), None)));
            let first = names.next().unwrap_or_default();
            names.fold(first, |all, one| both(&all, &one)).into_iter().find(is_late)
        };
        if let Some((since_ns, until_ns)) = late {
            let note = format!("nobody had it from {} until {}", At(since_ns), At(until_ns));
            violations.push(Violation::new(IDLE, [call], note));
        }
    }
}

/// The parts of a call in which a lock was free.
fn during(gaps: &[Gap], lock: LockId, call: &Record) -> Vec<(u64, u64)> {
    let first = gaps.partition_point(|gap| (gap.lock, gap.to_ns) <= (lock, call.invoke_ns));
    let met = gaps[first..].iter().take_while(|gap| gap.lock == lock && gap.from_ns < call.over_ns());
    met.map(|gap| (gap.from_ns.max(call.invoke_ns), gap.to_ns.min(call.over_ns()))).collect()
}

/// The times that belong to one of the first and to one of the second.
fn both(first: &[(u64, u64)], second: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let pairs = first.iter().flat_map(|one| second.iter().map(move |two| (one.0.max(two.0), one.1.min(two.1))));
    pairs.filter(|(from_ns, to_ns)| from_ns < to_ns).collect()
}

/// The gaps longer than `idle_ns`, sorted by lock and time. A client has the lock from the return of its acquire. An
/// acquire that has not returned may have a key all the time.
fn gaps<'a>(records: &[&'a Record], holds: &[Held<'a>], idle_ns: u64) -> Vec<Gap<'a>> {
    let held = holds.iter().map(|hold| (hold.lock(), hold.start_ns(), hold.gone_ns()));
    let other = records.iter().filter(|record| record.kind == Kind::Acquire && !record.ok).map(|call| {
        let (from_ns, gone_ns) = match call.return_ns {
            None => (call.invoke_ns, call.valid_until_ns.unwrap_or(u64::MAX)),
            // A name that was never acquired is free as well.
            Some(_) => (0, 0),
        };
        (call.lock(), from_ns, gone_ns)
    });
    let mut taken: Vec<(LockId, u64, u64)> = held.chain(other).collect();
    taken.sort_unstable();
    let mut gaps = Vec::new();
    let mut add = |lock, from_ns: u64, to_ns: u64| {
        if to_ns.saturating_sub(from_ns) > idle_ns {
            gaps.push(Gap { lock, from_ns, to_ns });
        }
    };
    for taken in taken.chunk_by(|one, next| one.0 == next.0) {
        let mut free_ns = 0;
        for (lock, from_ns, gone_ns) in taken {
            add(*lock, free_ns, *from_ns);
            free_ns = free_ns.max(*gone_ns);
        }
        add(taken[0].0, free_ns, u64::MAX);
    }
    gaps
}
