//! A Rust worker of the benchmark, for any library: `tests/bench/README.md` has the protocol. It never judges.
//!
//! A library takes part by implementing [`Subject`]; what a workload asks for is written once.

mod subject;
mod tally;
mod worker;

use std::io::{self, BufRead, Write};
use std::time::Duration;

use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

pub use subject::{RUNTIME, Subject, Wait, run_blocking, spawn_async};
pub use tally::{Tally, Until};

use worker::Worker;

/// The reason for a failure.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The command line of every worker.
#[derive(Debug, Parser)]
pub struct Args {
    /// The subject whose lock to use.
    pub subject: String,
    /// The nodes.
    #[arg(required = true)]
    pub urls: Vec<String>,
    /// For how long the server keeps a lock, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    pub ttl_ms: u64,
}

/// `CLOCK_MONOTONIC`, which all processes of a machine share.
#[must_use]
pub fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Processor time of this process, all its threads together.
#[must_use]
pub fn cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

#[expect(clippy::cast_sign_loss, reason = "neither clock is ever negative")]
fn nanoseconds(clock: ClockId) -> u64 {
    let at = clock_gettime(clock);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Answers the requests of standard input until its end.
///
/// # Errors
///
/// Standard input and output.
pub fn serve<S: Subject>(args: &Args) -> Result<(), Failure> {
    let mut worker = Worker::<S>::open(&args.urls, Duration::from_millis(args.ttl_ms))?;
    answer_each(&json!({"ready": {"version": S::version()}}), |request| worker.perform(request))
}

/// Says `ready`, then answers each request of standard input.
///
/// # Errors
///
/// Standard input and output.
pub fn answer_each(ready: &Value, mut perform: impl FnMut(&Value) -> Result<Value, Failure>) -> Result<(), Failure> {
    say(ready)?;
    for line in io::stdin().lock().lines() {
        let answer = serde_json::from_str(&line?).map_err(Failure::from).and_then(|request| perform(&request));
        say(&answer.unwrap_or_else(|error| json!({"error": error.to_string()})))?;
    }
    Ok(())
}

fn say(value: &Value) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    writeln!(output, "{value}")?;
    Ok(output.flush()?)
}
