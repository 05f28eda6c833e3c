//! Times in which a lock is nobody's: its holder has it no more, and no other client may get it yet.

use crate::hold::Held;
use crate::period::Periods;
use crate::record::{Kind, Record};
use crate::violation::{At, TOO_SOON, Violation};

/// Until when no other client may get the lock that was held, if that is later than the end of the hold.
///
/// Released in its validity, it stays reserved for its least time. If nobody released it, and time ran out, it stays
/// reserved for its margin. A process that was killed may have sent its release, or not.
fn reserved_ns(hold: &Held) -> Option<u64> {
    let end = hold.ended();
    let reserved_ns = match end {
        Some(Record { kind: Kind::Release, ok: true, .. }) => {
            let released_ns = end.map_or(0, Record::over_ns);
            hold.acquired.least_until_ns.filter(|_| released_ns <= hold.valid_until_ns())?
        }
        Some(lost) if lost.is_loss_by_time() => margin_ns(hold)?,
        Some(_) => return None,
        None => margin_ns(hold)?,
    };
    (reserved_ns > hold.end_ns()).then_some(reserved_ns)
}

/// When the margin has passed, or the holder has released its lock before.
fn margin_ns(hold: &Held) -> Option<u64> {
    hold.acquired.margin_ns?;
    let released = hold.ends.iter().filter(|end| end.kind == Kind::Release).map(|end| end.invoke_ns).min();
    Some(hold.passed_ns().min(released.unwrap_or(u64::MAX)))
}

/// No client gets a lock that is still reserved. Its acquire returned after the hold had ended, or the two overlap. Readers
/// reserve it against writers alone.
///
/// A lapse excuses it if the keys may have got lost: it touches the time from the earlier invocation of the two acquires to
/// the return of the later one.
pub(crate) fn too_soon(holds: &[Held], periods: &Periods, violations: &mut Vec<Violation>) {
    for holds in holds.chunk_by(|one, next| one.lock() == next.lock()) {
        let mut by_start: Vec<&Held> = holds.iter().collect();
        by_start.sort_by_key(|hold| hold.start_ns());
        for first in holds {
            let Some(reserved_ns) = reserved_ns(first) else { continue };
            let from = by_start.partition_point(|hold| hold.start_ns() < first.end_ns());
            let during = by_start[from..].iter().take_while(|hold| hold.start_ns() < reserved_ns);
            let is_excused = |second: &Held| {
                let asked_ns = first.acquired.invoke_ns.min(second.acquired.invoke_ns);
                periods.lapsed_ns(second.lock(), second.start_ns()) >= Some(asked_ns)
            };
            let excludes = |second: &Held| !first.is_shared() || !second.is_shared();
            // One that was over when the first began may have come before it.
            let is_after = |second: &Held| second.end_ns() > first.start_ns() || second.start_ns() > first.start_ns();
            let mut others = during.filter(|second| {
                !std::ptr::eq(first, **second) && excludes(second) && is_after(second) && !is_excused(second)
            });
            if let Some(second) = others.next() {
                let note = format!("it was kept from others until {}", At(reserved_ns));
                violations.push(Violation::new(TOO_SOON, first.records().chain(second.records()), note));
            }
        }
    }
}
