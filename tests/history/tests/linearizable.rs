//! On short random histories the checker agrees with a tester that tries every order in which the calls may have taken
//! effect, on three specifications of a few lines: a mutex whose fences grow, and stores that refuse stale fences, one of
//! which knows readers.

use proptest::collection::vec;
use proptest::prelude::*;
use redlock_history::{Kind, Record, Rules, check};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

/// An acquire is legal if no client holds the mutex and its fence is larger than the last.
#[derive(Clone, Default)]
struct FencedMutex {
    held: bool,
    last: u64,
}

#[derive(Clone, Debug)]
enum MutexOp {
    Acquire,
    Release,
}

impl SequentialSpec for FencedMutex {
    type Op = MutexOp;
    /// The fence of an acquire.
    type Ret = u64;

    fn invoke(&mut self, _: &MutexOp) -> u64 {
        unreachable!("every call has come back")
    }

    fn is_valid_step(&mut self, op: &MutexOp, fence: &u64) -> bool {
        let (was_held, last) = (self.held, self.last);
        match op {
            MutexOp::Acquire => {
                *self = Self { held: true, last: *fence };
                !was_held && *fence > last
            }
            MutexOp::Release => {
                self.held = false;
                was_held && *fence == last
            }
        }
    }
}

/// A write is accepted if no larger fence was accepted before it.
#[derive(Clone, Default)]
struct FencedStore {
    largest: u64,
}

impl SequentialSpec for FencedStore {
    /// The fence of the write.
    type Op = u64;
    /// Whether it is accepted.
    type Ret = bool;

    fn invoke(&mut self, fence: &u64) -> bool {
        let accepts = *fence >= self.largest;
        self.largest = self.largest.max(*fence);
        accepts
    }
}

/// A write is accepted if no larger fence was accepted before it; a reading, if none was of a write.
#[derive(Clone, Default)]
struct SharedStore {
    written: u64,
    seen: u64,
}

impl SequentialSpec for SharedStore {
    /// The fence of the access, and whether it only reads.
    type Op = (u64, bool);
    /// Whether it is accepted.
    type Ret = bool;

    fn invoke(&mut self, &(fence, reads): &(u64, bool)) -> bool {
        let accepts = fence >= if reads { self.written } else { self.seen };
        if accepts {
            self.seen = self.seen.max(fence);
            self.written = if reads { self.written } else { fence };
        }
        accepts
    }
}

fn record(kind: Kind, times: (u64, u64), fence: u64) -> Record {
    Record { fence: Some(fence), ..Record::new("a", kind, "foo", times) }
}

/// One of the two ends of a call; those that come back sort after those that are made at the same time.
type End = (u64, bool, usize);

fn ends(times: (u64, u64), i: usize) -> [End; 2] {
    [(times.0, false, i), (times.1, true, i)]
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
        let mut order = Vec::new();
        for (i, &(asked, [waited, held, took], released, fence)) in holds.iter().enumerate() {
            let acquire = (asked, asked + waited);
            let release = (acquire.1 + held, acquire.1 + held + took);
            records.push(record(Kind::Acquire, acquire, fence));
            order.extend(ends(acquire, i));
            if released {
                records.push(record(Kind::Release, release, fence));
                order.extend(ends(release, i));
            }
        }
        let report = check(&records, &Rules::default());
        order.sort_unstable();
        let mut tester = LinearizabilityTester::new(FencedMutex::default());
        let mut acquired = vec![false; holds.len()];
        for (_, back, i) in order {
            if back {
                tester.on_return(i, holds[i].3).expect("it was invoked");
                acquired[i] = true;
            } else {
                let op = if acquired[i] { MutexOp::Release } else { MutexOp::Acquire };
                tester.on_invoke(i, op).expect("one call at a time");
            }
        }
        prop_assert_eq!(report.is_ok(), tester.is_consistent(), "{:#?}", report.violations);
    }

    #[test]
    fn a_fenced_store(writes in vec((0..24_u64, 0..16_u64, 1..6_u64, 0..10_u8), 2..8)) {
        let mut records: Vec<Record> = (1..6).map(|fence| record(Kind::Acquire, (0, 0), fence)).collect();
        let mut order = Vec::new();
        for (i, &(asked, took, fence, outcome)) in writes.iter().enumerate() {
            let write = record(Kind::Write, (asked, asked + took), fence);
            records.push(match outcome {
                0 => Record { ok: false, return_ns: None, ..write },
                1..=4 => Record { ok: false, ..write },
                _ => write,
            });
            order.extend(ends((asked, asked + took), i));
        }
        let rules = Rules { exclusion: false, ..Rules::default() };
        let report = check(&records, &rules);
        order.sort_unstable();
        let mut tester = LinearizabilityTester::new(FencedStore::default());
        for (_, back, i) in order {
            let (_, _, fence, outcome) = writes[i];
            if !back {
                tester.on_invoke(i, fence).expect("one call each");
            } else if outcome > 0 {
                tester.on_return(i, outcome > 4).expect("it was invoked");
            }
        }
        prop_assert_eq!(report.is_ok(), tester.is_consistent(), "{:#?}", report.violations);
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
        let mut records: Vec<Record> = (1..6).map(|fence| record(Kind::Acquire, (0, 0), fence)).collect();
        let mut order = Vec::new();
        for (i, &(asked, took, fence, reads, outcome)) in accesses.iter().enumerate() {
            let access = Record { shared: reads, ..record(Kind::Write, (asked, asked + took), fence) };
            records.push(match outcome {
                0 => Record { ok: false, return_ns: None, ..access },
                1..=4 => Record { ok: false, ..access },
                _ => access,
            });
            order.extend(ends((asked, asked + took), i));
        }
        let report = check(&records, &Rules { exclusion: false, ..Rules::default() });
        order.sort_unstable();
        let mut tester = LinearizabilityTester::new(SharedStore::default());
        for (_, back, i) in order {
            let (_, _, fence, reads, outcome) = accesses[i];
            if !back {
                tester.on_invoke(i, (fence, reads)).expect("one call each");
            } else if outcome > 0 {
                tester.on_return(i, outcome > 4).expect("it was invoked");
            }
        }
        prop_assert!(report.is_ok() || !tester.is_consistent(), "{:#?}", report.violations);
        prop_assert!(overlap || report.is_ok() == tester.is_consistent(), "{:#?}", report.violations);
    }
}
