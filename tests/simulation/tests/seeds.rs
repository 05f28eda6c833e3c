//! Seeds that must hold.

use redlock_simulation::run;

/// Calls to the library that every run makes, at least.
const OPERATIONS_LEAST: usize = 200;

/// Plays seeds one after the other and fails with everything that was wrong.
fn play(seeds: impl IntoIterator<Item = u64>) {
    let mut flaws = Vec::new();
    for seed in seeds {
        let played = run(seed, false);
        assert!(played.outcome.operations >= OPERATIONS_LEAST, "seed {seed}: {}", played.outcome);
        flaws.extend(played.outcome.flaws.into_iter().map(|flaw| format!("seed {seed}: {flaw}")));
    }
    assert!(
        flaws.is_empty(),
        "see `cargo run --release -p redlock-simulation --bin simulate -- --trace --seed N`\n{}",
        flaws.join("\n")
    );
}

// Two tests for two cores.

#[test]
fn every_second_of_the_first_seeds_holds() {
    play((0..60).step_by(2));
}

#[test]
fn every_other_of_the_first_seeds_holds() {
    play((1..60).step_by(2));
}

#[test]
#[ignore = "make test-all: a thousand seeds"]
fn the_first_thousand_seeds_hold() {
    play(0..1_000);
}

#[test]
#[ignore = "make test-all: a thousand seeds"]
fn the_second_thousand_seeds_hold() {
    play(1_000..2_000);
}

#[test]
fn a_seed_repeats_its_run() {
    for seed in 0..3 {
        let (first, second) = (run(seed, true), run(seed, true));
        assert!(first.trace.len() > 100, "seed {seed} has a trace");
        if let Some(line) = (0..first.trace.len()).find(|line| first.trace.get(*line) != second.trace.get(*line)) {
            panic!("seed {seed} differs in line {line}: {:?}, {:?}", first.trace.get(line), second.trace.get(line));
        }
        assert_eq!(first.trace.len(), second.trace.len(), "seed {seed}");
    }
}
