//! Faults planted in the engine and in the nodes: the seeds find every one, and for its own reason.

use redlock::simulation::{Fault, plant};
use redlock_history::Violation;
use redlock_simulation::run;

/// The seeds of `make test`.
const SEEDS: u64 = 2_000;

/// Whether a violation is what a fault has to show as.
type Shows = fn(&Violation) -> bool;

/// Fences come twice, fall, or are no quorum's.
fn shows_fences(violation: &Violation) -> bool {
    matches!(violation, Violation::Duplicate { .. } | Violation::OutOfOrder { .. } | Violation::NoQuorum { .. })
}

/// Two have one lock.
fn shows_overlap(violation: &Violation) -> bool {
    matches!(violation, Violation::Overlap { .. })
}

/// A key is left.
fn shows_leak(violation: &Violation) -> bool {
    matches!(violation, Violation::Leaked { .. })
}

/// A loss is told late, or never.
fn shows_untold(violation: &Violation) -> bool {
    matches!(violation, Violation::ToldLate { .. } | Violation::NeverTold { .. })
}

/// Somebody waits for what nobody has.
fn shows_idle(violation: &Violation) -> bool {
    matches!(violation, Violation::Idle { .. })
}

/// What each fault shows as.
fn shows(fault: Fault) -> Shows {
    match fault {
        Fault::FirstFence | Fault::NoConfirm | Fault::FenceForgotten => shows_fences,
        Fault::NoCleanUp
        | Fault::ReleaseElsewhere
        | Fault::UnansweredLeft
        | Fault::CleanUpWithCaller
        | Fault::ExtendCreates
        | Fault::RenewedUntaken => shows_leak,
        Fault::LossUntold => shows_untold,
        Fault::ChangeMissed => shows_idle,
        Fault::HalfIsQuorum
        | Fault::NoDrift
        | Fault::ValidFromAnswer
        | Fault::SameToken
        | Fault::NoBars
        | Fault::RestoreCounts
        | Fault::AcquireTakes
        | Fault::ReleaseBlindly
        | Fault::SetnxTakes => shows_overlap,
    }
}

/// The first seed that finds `fault`.
fn found(fault: Fault) -> Option<u64> {
    plant(Some(fault));
    let seed = (0..SEEDS).find(|seed| run(*seed, false).outcome.violations.iter().any(shows(fault)));
    plant(None);
    seed
}

/// Every second fault, so that two tests share them.
fn find(which: usize) {
    let missed: Vec<Fault> = Fault::ALL
        .into_iter()
        .skip(which)
        .step_by(2)
        .filter(|fault| {
            let seed = found(*fault);
            println!("{fault:?} is found by seed {seed:?}");
            seed.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "no seed below {SEEDS} finds {missed:?}");
}

#[test]
fn every_fault_is_found() {
    find(0);
}

#[test]
fn every_other_fault_is_found() {
    find(1);
}
