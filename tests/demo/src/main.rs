//! Processes fight for one lock while its nodes freeze and die.
//!
//! Five servers and four worker processes, two with the async and two with the blocking face. The lock protects a
//! file with a counter that each holder reads and writes back increased, so that two holders at once lose an update.
//! Meanwhile one node is frozen and another one killed and restarted empty. A report at the end says what became of
//! it; the exit status is 0 only if every promise held.

mod clock;
mod counter;
mod faults;
mod line;
mod report;
mod stage;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Watch processes fight for one lock while its nodes freeze and die.
#[derive(Parser)]
struct Args {
    /// How long the fight lasts.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(4..=3600))]
    seconds: u64,
    /// How many processes fight.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=32))]
    workers: u64,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// What the demo starts several times.
    #[command(hide = true)]
    Worker(worker::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.role {
        Some(Role::Worker(args)) => {
            worker::run(&args);
            ExitCode::SUCCESS
        }
        None if stage::run(args.workers, Duration::from_secs(args.seconds)) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    }
}
