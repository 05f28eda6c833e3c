//! One name, which every attempt asks for.

use redlock::testing::simulation::Fault;
use redlock_model::fencing::{
    DURABLE, Ends, Fencing, LIVE, MONO, Mutant, NO_BRIDGE, ONE_OWNER, OWN_ORDER, REAL_TIME, RESERVED, UNIQUE,
};

use super::{assert_breaks, assert_holds};

/// Two attempts on three nodes, and all that may happen without a loss of data.
type Two = Fencing<3, 2>;

#[test]
fn two_attempts() {
    assert_holds(&Two::default(), 70_000);
}

#[test]
#[ignore = "make test-all: more than half a million states"]
fn two_attempts_whose_acquires_arrive_twice() {
    assert_holds(&Two { proposals: vec![1], copies: 1, ..Two::default() }, 500_000);
}

#[test]
#[ignore = "make test-all: three million states"]
fn three_attempts() {
    let model = Fencing::<3, 3> { proposals: vec![1], first: vec![0], restores: false, ..Fencing::default() };
    assert_holds(&model, 2_000_000);
}

#[test]
#[ignore = "make test-all: more than a million states"]
fn two_attempts_on_five_nodes() {
    let model = Fencing::<5, 2> { proposals: vec![1], first: vec![0], restores: false, ..Fencing::default() };
    assert_holds(&model, 300_000);
}

#[test]
fn somebody_wins() {
    assert_holds(&Two { ends: Ends::Never, restores: false, ..Two::default() }, 200);
}

/// What three nodes may remember: more than any order of them needs.
fn memories() -> impl Iterator<Item = [u64; 3]> {
    (0..6).flat_map(|one| (0..6).flat_map(move |two| (0..6).map(move |three| [one, two, three])))
}

#[test]
fn no_state_is_a_dead_end() {
    assert!(memories().all(|fences| Two::default().is_open(fences)));
    let stuck = Two { mutant: Some(Mutant::WaitsForAll), ..Two::default() };
    assert!(!memories().any(|fences| stuck.is_open(fences)));
}

#[test]
#[ignore = "make test-all: more than a million states"]
fn one_loss_of_data_where_clocks_agree() {
    assert_holds(&Two { losses: 1, ..Two::default() }, 1_000_000);
}

#[test]
fn one_loss_of_data_where_clocks_do_not_agree() {
    // The resource cannot tell A from B, though B began long after A had won.
    let model = Two { proposals: vec![1], first: vec![0], losses: 1, clocks: false, ..Two::default() };
    assert_breaks(&model, &[UNIQUE, REAL_TIME, OWN_ORDER]);
}

/// A protocol with this rule broken, where it is told apart soonest.
fn with(mutant: Mutant) -> Two {
    let usual = Two { mutant: Some(mutant), ..Two::default() };
    match mutant {
        Mutant::ConfirmsAnyGrant => Two { copies: 1, proposals: vec![1], ..usual },
        Mutant::KeepsProposal => Two { proposals: vec![1], ..usual },
        Mutant::WaitsForAll => Two { ends: Ends::Never, restores: false, ..usual },
        _ => usual,
    }
}

#[test]
fn every_rule_is_needed() {
    for (mutant, names) in [
        (Mutant::ConfirmsForAnybody, &[UNIQUE, OWN_ORDER][..]),
        (Mutant::ConfirmsAnyGrant, &[UNIQUE, OWN_ORDER]),
        (Mutant::CountsOthers, &[UNIQUE, OWN_ORDER]),
        (Mutant::KeepsProposal, &[UNIQUE, REAL_TIME]),
        (Mutant::SkipsConfirm, &[UNIQUE, REAL_TIME, DURABLE]),
        (Mutant::AnyGranted, &[UNIQUE, REAL_TIME]),
        (Mutant::ReusesToken, &[UNIQUE, REAL_TIME, ONE_OWNER]),
        (Mutant::ExtendsByToken, &[NO_BRIDGE]),
        (Mutant::LevelsAlone, &[NO_BRIDGE, RESERVED]),
        (Mutant::Planted(Fault::NotRaised), &[NO_BRIDGE, RESERVED]),
        (Mutant::RestoresByName, &[NO_BRIDGE]),
        (Mutant::RestoresItsFence, &[MONO]),
        (Mutant::HalfQuorum, &[UNIQUE, REAL_TIME, ONE_OWNER]),
        (Mutant::WaitsForAll, &[LIVE]),
    ] {
        assert_breaks(&with(mutant), names);
    }
    let model = Fencing::<4, 2> { mutant: Some(Mutant::OtherNodes), ..Fencing::default() };
    assert_breaks(&model, &[UNIQUE, REAL_TIME, ONE_OWNER]);
}
