//! What the fencing protocol promises, that every rule of it is needed, and what a loss of data does to it.
//!
//! `--nocapture` shows how many states there are. Whatever is found is shown as the steps that lead there.

mod handing_over;
mod one_name;
mod several_names;
mod sharing;

use std::collections::BTreeMap;

use redlock_model::fencing::{Fencing, tell};
use stateright::{Checker, HasDiscoveries, Model};

/// Looks at every state, those that differ by the order of the nodes alone as one.
#[track_caller]
fn assert_holds<const S: usize, const A: usize, const K: usize>(model: &Fencing<S, A, K>, at_least: usize) {
    let checker = model.clone().checker().symmetry().finish_when(HasDiscoveries::Any).spawn_dfs().join();
    let found: Vec<String> =
        checker.discoveries().into_iter().map(|(name, path)| format!("not {name}:\n{}", tell(model, path))).collect();
    assert!(found.is_empty(), "{model:?}\n{}", found.join("\n"));
    let states = checker.unique_state_count();
    println!("{states} states, up to {} steps: {S} nodes, {A} attempts, {model:?}", checker.max_depth() - 1);
    assert!(states >= at_least, "{model:?} has only {states} states");
}

/// The properties among `names` that do not hold, each with a short way there, and how many states were looked at.
fn broken<const S: usize, const A: usize, const K: usize>(
    model: &Fencing<S, A, K>,
    names: &[&'static str],
    depth: usize,
) -> (BTreeMap<&'static str, String>, usize) {
    let when = HasDiscoveries::AllOf(names.iter().copied().collect());
    let checker = model.clone().checker().target_max_depth(depth).finish_when(when).spawn_bfs().join();
    let found = checker.discoveries().into_iter().map(|(name, path)| (name, tell(model, path))).collect();
    (found, checker.unique_state_count())
}

#[track_caller]
fn assert_breaks<const S: usize, const A: usize, const K: usize>(model: &Fencing<S, A, K>, names: &[&'static str]) {
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
fn assert_shortest<const S: usize, const A: usize, const K: usize>(
    model: &Fencing<S, A, K>,
    name: &'static str,
    way: &[&str],
) {
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
