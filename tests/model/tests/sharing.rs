//! How long owners share a lock on one node, and that each rule about it is needed.

use redlock::testing::simulation::Fault;
use redlock_model::search;
use redlock_model::sharing::{Sharing, State};

#[test]
fn each_owner_has_its_own_time_on_whatever_clock() {
    let states = search(&Sharing::default(), |state| state.is_safe() && state.is_punctual());
    let states = states.unwrap_or_else(|way| panic!("{way}"));
    println!("{states} states");
    assert!(states > 300_000, "{states}");
}

#[test]
fn a_sorted_set_of_somebody_else_stays_as_it_is() {
    let states = search(&Sharing { another: true, ..Sharing::default() }, State::is_safe);
    states.unwrap_or_else(|way| panic!("{way}"));
}

/// Returns the shortest way on which this fault shows.
#[track_caller]
fn way_with(fault: Fault, another: bool) -> String {
    let model = Sharing { another, fault: Some(fault) };
    search(&model, |state| state.is_safe() && (another || state.is_punctual())).expect_err("it shows")
}

#[test]
fn every_rule_about_time_is_needed() {
    let cases: [(Fault, bool, &[&str]); 7] = [
        (Fault::EndOfLast, false, &["B: joins for 2 s", "A: joins for 1 s", "-- a second passes"]),
        (Fault::OneEndForAll, false, &["A: joins for 1 s", "B: joins for 2 s", "-- a second passes", "B: releases"]),
        (
            Fault::EndsByTime,
            false,
            &["A: joins for 1 s", "-- the keys move to a node whose clock differs by 2 s", "A: releases"],
        ),
        (Fault::ReleaseForAll, false, &["A: joins for 1 s", "B: joins for 2 s", "A: releases"]),
        (Fault::NoIntent, false, &["A: joins for 1 s", "W: asks", "B: joins for 2 s"]),
        (Fault::AcquireTakes, false, &["A: joins for 1 s", "W: asks"]),
        (Fault::DropsForeign, true, &["A: joins for 1 s"]),
    ];
    for (fault, another, way) in cases {
        let found = way_with(fault, another);
        assert_eq!(found.lines().collect::<Vec<_>>(), way, "{fault:?}");
    }
}
