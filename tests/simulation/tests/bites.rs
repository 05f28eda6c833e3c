//! Faults planted in the engine and in the nodes: the seeds find every one, and for its own reason. Those that they meet
//! too rarely have stories of their own, in `plants.rs` and `failovers.rs`.

use redlock::testing::simulation::{Fault, plant};
use redlock_history::Violation;
use redlock_simulation::{Plan, Topology, run};

/// How many seeds look for a fault.
const SEEDS: usize = 2_000;

/// Faults that seeds meet too rarely: stories find them. The last six are found by the model, and by the comparison of nodes
/// in memory with servers: no key here comes from a server with another clock, nobody has a sorted set under a lock's name,
/// it takes four deliveries in one order until a fence that was not remembered is used, and no lock is handed over here.
const TOLD: [Fault; 22] = [
    Fault::LateExtension,
    Fault::BlindConfirm,
    Fault::ExtendByToken,
    Fault::RestoreBlindly,
    Fault::WaiterStays,
    Fault::PromotedCounts,
    Fault::ReturnedCounts,
    Fault::NamedCounts,
    Fault::OldEpoch,
    Fault::RestoreFirst,
    Fault::OneEndForAll,
    Fault::ExtendWithoutPeriod,
    Fault::ConfirmWithoutPeriod,
    Fault::RestoreWithoutFence,
    Fault::NoIntent,
    Fault::AheadCounts,
    Fault::NotRaised,
    Fault::EndsByTime,
    Fault::DropsForeign,
    Fault::RekeyKeepsToken,
    Fault::RekeyByToken,
    Fault::RekeyOfAny,
];

/// Faults of what is done in clusters alone: as many seeds with clusters, which are one in nine, look for them.
const IN_CLUSTERS: [Fault; 4] =
    [Fault::AskRemembered, Fault::TryAgainLoses, Fault::CreateFollowed, Fault::ReleaseStays];

/// Faults that the first seeds find, one for each way to show.
const OF_EACH_KIND: [Fault; 7] = [
    Fault::NoConfirm,
    Fault::NoQuarantine,
    Fault::NoCleanUp,
    Fault::NoMargin,
    Fault::LossUntold,
    Fault::ChangeMissed,
    Fault::LateGrant,
];

/// Whether a violation is what a fault has to show as.
type Shows = fn(&Violation) -> bool;

/// What a caller notices by itself when it gets a lock too late.
const NOT_HELD: &str = "acquire returned a lock that is not held";

/// What a server notices of a key that was left for its least time.
const LENGTHENED: &str = "was left for its least time, and is kept for longer";

/// What a holder notices by itself when it is told of a loss that is none.
const NOT_LOST: &str = "a lock whose keys are there was told lost";

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

/// A lock is extended that another one has had meanwhile.
fn shows_bridged(violation: &Violation) -> bool {
    matches!(violation, Violation::Bridged { .. })
}

/// Somebody gets a lock that is not free yet.
fn shows_too_soon(violation: &Violation) -> bool {
    matches!(violation, Violation::TooSoon { .. })
}

/// A loss is told late, or never.
fn shows_untold(violation: &Violation) -> bool {
    matches!(violation, Violation::ToldLate { .. } | Violation::NeverTold { .. })
}

/// Somebody waits for what nobody has.
fn shows_idle(violation: &Violation) -> bool {
    matches!(violation, Violation::Idle { .. })
}

/// No call of the history shows it.
fn shows_nothing(_: &Violation) -> bool {
    false
}

/// What each fault shows as.
fn shows(fault: Fault) -> Shows {
    match fault {
        Fault::LateGrant
        | Fault::LateExtension
        | Fault::BlindConfirm
        | Fault::ExtendByToken
        | Fault::NotRaised
        | Fault::AheadCounts
        | Fault::RestoreBlindly
        | Fault::RekeyKeepsToken
        | Fault::RekeyByToken
        | Fault::RekeyOfAny
        | Fault::AskRemembered
        | Fault::TryAgainLoses
        | Fault::WaiterStays
        | Fault::PromotedCounts
        | Fault::ReturnedCounts
        | Fault::NamedCounts
        | Fault::OldEpoch
        | Fault::RestoreFirst
        | Fault::LeaveForgotten
        | Fault::LeaveLengthens
        | Fault::OneEndForAll
        | Fault::EndsByTime
        | Fault::ExtendWithoutPeriod
        | Fault::ConfirmWithoutPeriod
        | Fault::RestoreWithoutFence
        | Fault::NoIntent
        | Fault::DropsForeign => shows_nothing,
        Fault::FirstFence
        | Fault::NoConfirm
        | Fault::FenceForgotten
        | Fault::FloorOfFirst
        | Fault::ConfirmFirst
        | Fault::ReaderForgotten
        | Fault::JoinsWithCurrent => shows_fences,
        Fault::ExtendAny => shows_bridged,
        Fault::NoMargin => shows_too_soon,
        Fault::NoCleanUp
        | Fault::ReleaseElsewhere
        | Fault::UnansweredLeft
        | Fault::CleanUpWithCaller
        | Fault::ExtendCreates
        | Fault::RenewedUntaken
        | Fault::CreateFollowed
        | Fault::ReleaseStays
        | Fault::ReleaseFirst
        | Fault::SlotKept => shows_leak,
        Fault::LossUntold => shows_untold,
        Fault::ChangeMissed => shows_idle,
        Fault::HalfIsQuorum
        | Fault::NoDrift
        | Fault::ValidFromAnswer
        | Fault::SameToken
        | Fault::NoQuarantine
        | Fault::RestoreCounts
        | Fault::AcquireTakes
        | Fault::ReleaseBlindly
        | Fault::SetnxTakes
        | Fault::TakesFree
        | Fault::EndOfLast
        | Fault::ReleaseForAll => shows_overlap,
    }
}

/// The first seed that finds `fault`.
fn found(fault: Fault) -> Option<u64> {
    plant(Some(fault));
    let is_cluster = |seed: &u64| Plan::of(*seed).unusual.topology == Topology::Cluster;
    let is_meant = |seed: &u64| !IN_CLUSTERS.contains(&fault) || is_cluster(seed);
    let seed = (0..).filter(is_meant).take(SEEDS).find(|seed| {
        let outcome = run(*seed, false).outcome;
        let is_flaw = |flaw: &String| match fault {
            Fault::LateGrant => flaw.ends_with(NOT_HELD),
            Fault::LeaveForgotten | Fault::LeaveLengthens => flaw.ends_with(LENGTHENED),
            Fault::AskRemembered | Fault::TryAgainLoses => flaw.contains(NOT_LOST),
            _ => false,
        };
        outcome.violations.iter().any(shows(fault)) || outcome.flaws.iter().any(is_flaw)
    });
    plant(None);
    seed
}

/// Every second fault, so that two tests share them.
fn find(which: usize) {
    let missed: Vec<Fault> = Fault::ALL
        .into_iter()
        .filter(|fault| !TOLD.contains(fault))
        .skip(which)
        .step_by(2)
        .filter(|fault| {
            let seed = found(*fault);
            println!("{fault:?} is found by seed {seed:?}");
            seed.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "none of the first {SEEDS} seeds finds {missed:?}");
}

#[test]
fn a_fault_of_each_kind_is_found() {
    for fault in OF_EACH_KIND {
        let seed = found(fault);
        println!("{fault:?} is found by seed {seed:?}");
        assert!(seed.is_some(), "none of the first {SEEDS} seeds finds {fault:?}");
    }
}

#[test]
#[ignore = "make test-all: thousands of seeds"]
fn every_fault_is_found() {
    find(0);
}

#[test]
#[ignore = "make test-all: thousands of seeds"]
fn every_other_fault_is_found() {
    find(1);
}
