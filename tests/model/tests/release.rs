//! The release without a script deletes no other owner's key and tells who waits, and each of its rules is needed.

use redlock_model::release::{Mutant, Release, State};
use redlock_model::search;

#[test]
fn a_release_in_two_commands_is_that_of_the_script() {
    for has_other_fence in [false, true] {
        let states = search(&Release { has_other_fence, mutant: None }, State::is_right);
        let states = states.unwrap_or_else(|way| panic!("{way}"));
        println!("{states} states");
        assert!(states > 30, "{states}");
    }
}

#[test]
fn every_rule_of_it_is_needed() {
    let cases: [(Mutant, bool, &[&str]); 4] = [
        (Mutant::DeletesBlindly, false, &["-- A's time ends", "B: acquires", "A: deletes"]),
        (Mutant::KeepsCount, false, &["W: waits", "A: deletes", "A: ends the count"]),
        (Mutant::ForgetsCount, true, &["W: waits", "A: deletes", "A: ends the count", "A: asks the script"]),
        (Mutant::TrustsZero, true, &["A: deletes", "A: ends the count"]),
    ];
    for (mutant, has_other_fence, way) in cases {
        let model = Release { has_other_fence, mutant: Some(mutant) };
        let found = search(&model, State::is_right).expect_err("it shows");
        assert_eq!(found.lines().collect::<Vec<_>>(), way, "{mutant:?}");
    }
}
