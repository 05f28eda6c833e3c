//! Several processes that want one lock over five nodes at the same moment.

use std::time::Duration;

use redlock_simulation::{FAR, NEAR, race};

const NODES: usize = 5;

const PROCESSES: usize = 5;

/// Far more than it takes, and far fewer than those who would meet again and again.
const ROUNDS_MOST: usize = 20;

/// Nobody may sleep until a backstop, which comes after 1.5 s at the earliest.
const TOOK_MOST: Duration = Duration::from_secs(1);

#[test]
fn everybody_gets_the_lock_within_a_few_rounds() {
    for seed in 0..100 {
        let race = race(seed, PROCESSES, NODES, NEAR);
        assert!(race.took_and_idle.is_some_and(|(took, _)| took < TOOK_MOST), "seed {seed}: {race:?}");
        assert!(race.rounds.iter().all(|rounds| (1..=ROUNDS_MOST).contains(rounds)), "seed {seed}: {race:?}");
    }
}

/// To connect, to ask, to release and to ask again, each script sent for the first time, are seven round trips. The
/// processes must not split the votes of several more rounds.
#[test]
fn far_away_nobody_splits_the_votes_again_and_again() {
    const PROCESSES: usize = 10;
    const IDLE_MOST: Duration = Duration::from_secs(3);
    for seed in 0..20 {
        let race = race(seed, PROCESSES, NODES, FAR);
        assert!(race.took_and_idle.is_some_and(|(_, idle)| idle < IDLE_MOST), "seed {seed}: {race:?}");
    }
}
