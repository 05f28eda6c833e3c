//! Several permits: as locks of their own, and as numbers that each node counts for itself.

use redlock_model::counter::Counter;
use redlock_model::search;
use redlock_model::semaphore::Semaphore;

#[test]
fn a_slot_has_one_holder_and_what_is_gone_by_is_free_again() {
    let states = search(&Semaphore { keeps: false, are_alike: true }, |state| state.is_safe() && !state.is_stuck());
    let states = states.unwrap_or_else(|way| panic!("{way}"));
    println!("{states} states");
    assert!(states > 500_000, "{states}");
}

#[test]
fn what_a_client_keeps_that_goes_on_is_in_the_way_of_everybody() {
    let way = search(&Semaphore { keeps: true, are_alike: false }, |state| !state.is_stuck())
        .expect_err("nobody gets a permit");
    assert_eq!(
        way.lines().collect::<Vec<_>>(),
        [
            "A: asks for slot 0",
            "A: node 1 grants it",
            "A: goes on",
            "A: asks for slot 0",
            "A: node 2 grants it",
            "A: goes on",
            "B: asks for slot 1",
            "B: node 1 grants it",
            "B: goes on",
            "B: asks for slot 1",
            "B: node 2 grants it",
            "B: goes on",
        ]
    );
}

/// No node counts more than two.
#[test]
fn a_majority_that_counts_gives_three_clients_two_permits() {
    let way = search(&Counter { permits: 2, clients: 3 }, |state| state.holders() <= 2).expect_err("a third one");
    assert_eq!(
        way.lines().collect::<Vec<_>>(),
        [
            "A: node 1 counts it",
            "A: node 2 counts it",
            "A: has a permit",
            "B: node 1 counts it",
            "B: node 3 counts it",
            "B: has a permit",
            "C: node 2 counts it",
            "C: node 3 counts it",
            "C: has a permit",
        ]
    );
}

#[test]
fn one_permit_can_be_counted() {
    assert!(search(&Counter { permits: 1, clients: 4 }, |state| state.holders() <= 1).is_ok());
}
