//! On short random histories the checker agrees with one that tries every order in which the calls may have taken
//! effect, on three specifications of a few lines: a mutex whose fences grow, and stores that refuse stale fences, one of
//! which knows readers.

use proptest::collection::vec;
use proptest::prelude::*;
use redlock_history::{Kind, Record, Report, Rules, check};

/// A call: when it was made, when it came back if it has, and what it does. A specification says whether it may do that.
type Call<Op> = (u64, Option<u64>, Op);

/// Whether some order explains these calls. Any of them may be the next one that was made before another had come back,
/// and those that have not come back may never take effect.
fn is_explained<S: Clone, Op>(state: &S, calls: &[&Call<Op>], may: &impl Fn(&mut S, &Op) -> bool) -> bool {
    let Some(first_back) = calls.iter().filter_map(|(_, back, _)| *back).min() else { return true };
    (0..calls.len()).filter(|next| calls[*next].0 <= first_back).any(|next| {
        let mut state = state.clone();
        let others = [&calls[..next], &calls[next + 1..]].concat();
        may(&mut state, &calls[next].2) && is_explained(&state, &others, may)
    })
}

/// The fence of an acquire, or of a release.
#[derive(Clone, Copy)]
enum Mutex {
    Acquire(u64),
    Release(u64),
}

/// An acquire may be if no client holds the mutex and its fence is larger than the last.
fn fenced_mutex((held, last): &mut (bool, u64), op: &Mutex) -> bool {
    let (was_held, before) = (*held, *last);
    match *op {
        Mutex::Acquire(fence) => {
            (*held, *last) = (true, fence);
            !was_held && fence > before
        }
        Mutex::Release(fence) => {
            *held = false;
            was_held && fence == before
        }
    }
}

/// An access to a store: its fence, whether it only reads, and whether it was accepted, if that is known.
type Access = (u64, bool, Option<bool>);

/// An access is accepted if no larger fence was accepted before it; a reading, if none was of a write.
fn fenced_store((written, seen): &mut (u64, u64), &(fence, reads, accepted): &Access) -> bool {
    let accepts = fence >= if reads { *written } else { *seen };
    if accepts {
        *seen = fence.max(*seen);
        *written = if reads { *written } else { fence };
    }
    accepted.is_none_or(|accepted| accepted == accepts)
}

fn record(kind: Kind, times: (u64, u64), fence: u64) -> Record {
    Record { fence: Some(fence), ..Record::new("a", kind, "foo", times) }
}

/// An access to a store, made at this time, which took so long and came to this: it may be lost, refused or accepted.
fn access((asked, took, fence, reads, outcome): (u64, u64, u64, bool, u8)) -> (Record, Call<Access>) {
    let access = Record { shared: reads, ok: outcome > 4, ..record(Kind::Write, (asked, asked + took), fence) };
    let is_lost = outcome == 0;
    let back = if is_lost { None } else { access.return_ns };
    (Record { return_ns: back, ..access }, (asked, back, (fence, reads, (!is_lost).then_some(outcome > 4))))
}

/// What the checker finds, and whether some order explains these accesses.
fn judge(accesses: impl Iterator<Item = (u64, u64, u64, bool, u8)>) -> (Report, bool) {
    let (made, calls): (Vec<Record>, Vec<Call<Access>>) = accesses.map(access).unzip();
    let records = (1..6).map(|fence| record(Kind::Acquire, (0, 0), fence)).chain(made).collect::<Vec<_>>();
    let report = check(&records, &Rules { exclusion: false, ..Rules::default() });
    (report, is_explained(&(0, 0), &calls.iter().collect::<Vec<_>>(), &fenced_store))
}

/// When an acquire and its release, which may be missing, were made and came back.
fn hold() -> impl Strategy<Value = (u64, [u64; 3], bool, u64)> {
    (0..24_u64, [0..6_u64, 1..6, 0..6], prop::bool::weighted(0.9), 1..7_u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_fenced_mutex(holds in vec(hold(), 1..6)) {
        let mut records = Vec::new();
        let mut calls = Vec::new();
        for &(asked, [waited, held, took], released, fence) in &holds {
            let acquire = (asked, asked + waited);
            let release = (acquire.1 + held, acquire.1 + held + took);
            records.push(record(Kind::Acquire, acquire, fence));
            calls.push((acquire.0, Some(acquire.1), Mutex::Acquire(fence)));
            if released {
                records.push(record(Kind::Release, release, fence));
                calls.push((release.0, Some(release.1), Mutex::Release(fence)));
            }
        }
        let report = check(&records, &Rules::default());
        let explained = is_explained(&(false, 0), &calls.iter().collect::<Vec<_>>(), &fenced_mutex);
        prop_assert_eq!(report.is_ok(), explained, "{:#?}", report.violations);
    }

    #[test]
    fn a_fenced_store(writes in vec((0..24_u64, 0..16_u64, 1..6_u64, Just(false), 0..10_u8), 2..8)) {
        let (report, explained) = judge(writes.into_iter());
        prop_assert_eq!(report.is_ok(), explained, "{:#?}", report.violations);
    }

    /// Where accesses overlap, the checker may overlook that no one order explains all of them: it looks at pairs.
    #[test]
    fn a_store_for_readers(
        mut accesses in vec((0..24_u64, 0..16_u64, 1..6_u64, any::<bool>(), 0..10_u8), 2..8),
        overlap in any::<bool>(),
    ) {
        if !overlap {
            for (asked, access) in (0..).step_by(20).zip(&mut accesses) {
                (access.0, access.4) = (asked, access.4.max(1));
            }
        }
        let (report, explained) = judge(accesses.into_iter());
        prop_assert!(report.is_ok() || !explained, "{:#?}", report.violations);
        prop_assert!(overlap || report.is_ok() == explained, "{:#?}", report.violations);
    }
}
