//! Several permits, as locks of their own.

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
