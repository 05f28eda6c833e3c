//! What the fencing protocol promises, that every rule of it is needed, and what a loss of data does to it.
//!
//! `--nocapture` shows how many states there are. Whatever is found is shown as the steps that lead there.

use std::collections::BTreeMap;

use redlock_model::fencing::{
    DURABLE, Fencing, LIVE, MONO, Mutant, NO_BRIDGE, ONE_OWNER, OWN_ORDER, REAL_TIME, UNIQUE, tell,
};
use stateright::{Checker, HasDiscoveries, Model};

/// Two attempts on three nodes, and all that may happen without a loss of data.
type Two = Fencing<3, 2>;

/// Looks at every state, those that differ by the order of the nodes alone as one.
#[track_caller]
fn assert_holds<const S: usize, const A: usize>(model: &Fencing<S, A>, at_least: usize) {
    let checker = model.clone().checker().symmetry().finish_when(HasDiscoveries::Any).spawn_dfs().join();
    let found: Vec<String> =
        checker.discoveries().into_iter().map(|(name, path)| format!("not {name}:\n{}", tell(path))).collect();
    assert!(found.is_empty(), "{model:?}\n{}", found.join("\n"));
    let states = checker.unique_state_count();
    println!("{states} states, up to {} steps: {S} nodes, {A} attempts, {model:?}", checker.max_depth() - 1);
    assert!(states >= at_least, "{model:?} has only {states} states");
}

/// The properties among `names` that do not hold, each with a short way there, and how many states were looked at.
fn broken<const S: usize, const A: usize>(
    model: &Fencing<S, A>,
    names: &[&'static str],
    depth: usize,
) -> (BTreeMap<&'static str, String>, usize) {
    let when = HasDiscoveries::AllOf(names.iter().copied().collect());
    let checker = model.clone().checker().target_max_depth(depth).finish_when(when).spawn_bfs().join();
    let found = checker.discoveries().into_iter().map(|(name, path)| (name, tell(path))).collect();
    (found, checker.unique_state_count())
}

#[track_caller]
fn assert_breaks<const S: usize, const A: usize>(model: &Fencing<S, A>, names: &[&'static str]) {
    let (found, states) = broken(model, names, usize::MAX);
    let told: Vec<String> = found.iter().map(|(name, way)| format!("not {name}:\n{way}")).collect();
    let told = told.join("\n");
    println!("{:?}, in {states} states:\n{told}", model.mutant);
    for name in names {
        assert!(found.contains_key(name), "{name} holds in all {states} states of {model:?}\n{told}");
    }
}

/// The shortest way there is.
#[track_caller]
fn assert_shortest<const S: usize, const A: usize>(model: &Fencing<S, A>, name: &'static str, way: &[&str]) {
    let mut shortest = None;
    let mut depth = usize::MAX;
    while let Some(found) = broken(model, &[name], depth).0.remove(name) {
        // As many lines as states: the first one tells how it begins.
        depth = found.lines().count();
        shortest = Some(found);
    }
    let shortest = shortest.unwrap_or_else(|| panic!("{name} holds in {model:?}"));
    assert_eq!(shortest.lines().collect::<Vec<_>>(), way, "the shortest way is\n{shortest}");
}

#[test]
fn two_attempts() {
    assert_holds(&Two::default(), 70_000);
}

#[test]
fn two_attempts_whose_acquires_arrive_twice() {
    assert_holds(&Two { proposals: vec![1], copies: 1, ..Two::default() }, 500_000);
}

#[test]
fn three_attempts() {
    let model = Fencing::<3, 3> { proposals: vec![1], first: vec![0], restores: false, ..Fencing::default() };
    assert_holds(&model, 2_000_000);
}

#[test]
fn two_attempts_on_five_nodes() {
    let model = Fencing::<5, 2> { proposals: vec![1], first: vec![0], restores: false, ..Fencing::default() };
    assert_holds(&model, 300_000);
}

#[test]
fn somebody_wins() {
    assert_holds(&Two { ends: false, restores: false, ..Two::default() }, 200);
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
fn one_loss_of_data_where_clocks_agree() {
    assert_holds(&Two { losses: 1, ..Two::default() }, 1_000_000);
}

#[test]
fn one_loss_of_data_where_clocks_do_not_agree() {
    // The resource cannot tell A from B, though B began long after A had won.
    let model = Two { proposals: vec![1], first: vec![0], losses: 1, clocks: false, ..Two::default() };
    assert_breaks(&model, &[UNIQUE, REAL_TIME, OWN_ORDER]);
    assert_shortest(
        &model,
        REAL_TIME,
        &[
            "-- the nodes remember [0, 0, 0]",
            "A: begins",
            "A: node 2 grants 1",
            "A: node 3 grants 1",
            "A: wins with 1",
            "B: begins",
            "B: node 1 grants 1",
            "-- node 3 loses its data, and remembers 0",
            "B: node 3 grants 1",
            "B: wins with 1",
        ],
    );
}

/// A protocol with this rule broken, where it is told apart soonest.
fn with(mutant: Mutant) -> Two {
    let usual = Two { mutant: Some(mutant), ..Two::default() };
    match mutant {
        Mutant::ConfirmsAnyGrant => Two { copies: 1, proposals: vec![1], ..usual },
        Mutant::KeepsProposal => Two { proposals: vec![1], ..usual },
        Mutant::WaitsForAll => Two { ends: false, restores: false, ..usual },
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
