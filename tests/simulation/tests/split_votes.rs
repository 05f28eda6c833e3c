//! Five processes that want one lock over five nodes at the same moment.

use std::time::Duration;

use redlock_simulation::race;

const PROCESSES: usize = 5;

/// Far more than it takes, and far fewer than those who would meet again and again.
const ROUNDS_MOST: usize = 20;

/// Nobody may sleep until a backstop, which comes after 1.5 s at the earliest.
const TOOK_MOST: Duration = Duration::from_secs(1);

#[test]
fn everybody_gets_the_lock_within_a_few_rounds() {
    for seed in 0..500 {
        let race = race(seed, PROCESSES, 5);
        assert!(race.took.is_some_and(|took| took < TOOK_MOST), "seed {seed}: {race:?}");
        assert!(race.rounds.iter().all(|rounds| (1..=ROUNDS_MOST).contains(rounds)), "seed {seed}: {race:?}");
    }
}
