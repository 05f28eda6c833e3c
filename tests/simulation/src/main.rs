//! Looks for seeds that fail, and shows what happened there.
//!
//! Exit code 0: nothing is wrong. 1: a seed fails.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use redlock_simulation::run;

/// Play seeds until one fails; then print what happened there and how to play it again.
#[derive(Parser)]
#[command(name = "simulate", version)]
struct Options {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds, one after the other.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Go on after a seed that fails, and print no trace.
    #[arg(long)]
    all: bool,
    /// Print the trace of every seed.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match play(&options, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        // Whoever closed the pipe has read enough.
        _ => ExitCode::from(1),
    }
}

/// Whether no seed failed.
fn play(options: &Options, output: &mut impl Write) -> io::Result<bool> {
    let mut failed = 0;
    for seed in options.seed..options.seed.saturating_add(options.seeds) {
        let mut played = run(seed, options.trace);
        let fails = !played.outcome.flaws.is_empty();
        if fails && !options.all && !options.trace {
            // The same again, and this time everything is written down.
            played = run(seed, true);
        }
        for line in &played.trace {
            writeln!(output, "{line}")?;
        }
        if fails || options.seeds == 1 || options.trace {
            writeln!(output, "seed {seed}: {:?}\n{}", played.plan, played.outcome)?;
        }
        for flaw in &played.outcome.flaws {
            writeln!(output, "seed {seed}: {flaw}")?;
        }
        if fails {
            failed += 1;
            writeln!(output, "again: cargo run -p redlock-simulation --bin simulate -- --trace --seed {seed}")?;
            if !options.all {
                return Ok(false);
            }
        }
    }
    writeln!(output, "{failed} of {} seeds failed", options.seeds)?;
    Ok(failed == 0)
}
