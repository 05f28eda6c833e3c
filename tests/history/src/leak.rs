//! Keys that should have been deleted.

use crate::hold::Held;
use crate::period::Periods;
use crate::record::{Kind, LockId, Record};
use crate::violation::{LEAKED, Violation};

/// An acquire whose keys may be on a node for some time.
struct Owner<'a> {
    lock: LockId<'a>,
    asked_ns: u64,
    gone_ns: u64,
}

/// Every key belongs to a pending acquire or to a hold that has not ended, or did until `settle_ns` ago. Its fence does
/// not identify which: on a node that did not decide the vote it may be smaller or larger than that of the lock.
///
/// If a client is killed in an outage, its releases may not reach a node. The keys then expire, released or not.
pub(crate) fn leaks(
    records: &[&Record],
    holds: &[Held],
    periods: &Periods,
    settle_ns: u64,
    violations: &mut Vec<Violation>,
) {
    let mut keys: Vec<&Record> = records.iter().copied().filter(|record| record.kind == Kind::Key).collect();
    keys.sort_by_key(|key| (key.lock(), key.over_ns()));
    let owners = owners(records, holds, periods);
    let mut owners = owners.iter().peekable();
    for keys in keys.chunk_by(|one, next| one.lock() == next.lock()) {
        // The time when the last key of all acquires invoked by then is deleted.
        let mut gone_ns: Option<u64> = None;
        for key in keys {
            while let Some(owner) = owners.next_if(|owner| (owner.lock, owner.asked_ns) <= (key.lock(), key.over_ns()))
            {
                if owner.lock == key.lock() {
                    gone_ns = gone_ns.max(Some(owner.gone_ns));
                }
            }
            if gone_ns.is_none_or(|gone_ns| gone_ns.saturating_add(settle_ns) < key.invoke_ns) {
                let fence = key.fence.unwrap_or(0);
                let hold = holds.partition_point(|hold| (hold.lock(), hold.fence) < (key.lock(), fence));
                let hold = holds.get(hold).filter(|hold| (hold.lock(), Some(hold.fence)) == (key.lock(), key.fence));
                let known = hold.into_iter().flat_map(Held::records);
                violations.push(Violation::new(LEAKED, [*key].into_iter().chain(known), String::new()));
            }
        }
    }
}

/// The acquires, sorted by lock and invocation.
fn owners<'a>(records: &[&'a Record], holds: &[Held<'a>], periods: &Periods) -> Vec<Owner<'a>> {
    let held = holds.iter().map(|hold| {
        let left = periods.is_killed_in_outage(&hold.acquired.client).then(|| hold.passed_ns());
        Owner { lock: hold.lock(), asked_ns: hold.acquired.invoke_ns, gone_ns: left.unwrap_or(0).max(hold.gone_ns()) }
    });
    let denied = records.iter().filter(|record| record.kind == Kind::Acquire && !record.ok).map(|record| Owner {
        lock: record.lock(),
        asked_ns: record.invoke_ns,
        gone_ns: if record.failed() && !periods.is_killed_in_outage(&record.client) {
            record.over_ns()
        } else {
            record.valid_until_ns.unwrap_or(u64::MAX)
        },
    });
    let mut owners: Vec<Owner> = held.chain(denied).collect();
    owners.sort_by_key(|owner| (owner.lock, owner.asked_ns));
    owners
}
