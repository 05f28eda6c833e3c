//! What the fencing protocol promises, that every rule of it is needed, and what a loss of data does to it.
//!
//! `--nocapture` shows how many states there are. Whatever is found is shown as the steps that lead there.

mod handing_over;
mod one_name;
mod several_names;
mod sharing;

use redlock_model::fencing::{Fencing, tell};

/// Looks at every state, those that differ by the order of the nodes alone as one.
#[track_caller]
fn assert_holds<const S: usize, const A: usize, const K: usize>(model: &Fencing<S, A, K>, at_least: usize) {
    let model = Fencing { are_alike: true, ..model.clone() };
    let (broken, states) = redlock_model::broken(&model, model.properties(), 1);
    if let Some((name, way)) = broken.into_iter().next() {
        panic!("{model:?}\nnot {name}:\n{}", tell(&way));
    }
    println!("{states} states: {S} nodes, {A} attempts, {model:?}");
    assert!(states >= at_least, "{model:?} has only {states} states");
}

/// The shortest way to where each of these properties is broken.
#[track_caller]
fn assert_breaks<const S: usize, const A: usize, const K: usize>(model: &Fencing<S, A, K>, names: &[&str]) {
    let asked = model.properties().into_iter().filter(|(name, _)| names.contains(name)).collect();
    let (broken, states) = redlock_model::broken(model, asked, names.len());
    let ways: Vec<String> = broken.iter().map(|(name, way)| format!("not {name}:\n{}", tell(way))).collect();
    println!("{:?}, in {states} states:\n{}", model.mutant, ways.join("\n"));
    for name in names {
        assert!(broken.iter().any(|(broken, _)| broken == name), "{name} holds in all {states} states of {model:?}");
    }
}
