//! A Rust worker of the benchmark, for any library: `tests/bench/README.md` has the protocol. It never judges.
//!
//! A library takes part by implementing [`Subject`]; what a workload asks for is written once.

mod clock;
mod subject;
mod tally;
mod worker;

use std::io::{self, BufRead, Write};
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};

pub use clock::{cpu_ns, now_ns, wall_us};
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
    /// Acquire once, report when, and end.
    #[arg(long)]
    pub cold: bool,
}

impl Args {
    /// For how long the server keeps a lock.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// Answers the requests of standard input until its end, or does what `cold` asks for.
///
/// # Errors
///
/// Standard input and output, and a cold start that fails.
pub fn serve<S: Subject>(args: &Args, begun_ns: u64) -> Result<(), Failure> {
    let mut worker = Worker::<S>::open(&args.urls, args.ttl())?;
    if args.cold {
        worker.perform(&json!({"op": "acquire", "name": "bench:cold"}))?;
        cold(begun_ns)?;
        return worker.perform(&json!({"op": "release"})).map(drop);
    }
    answer_each(&json!({"ready": {"version": S::version()}}), |request| worker.perform(request))
}

/// Reports a cold start that has just come to its acquire.
///
/// # Errors
///
/// Standard output.
pub fn cold(begun_ns: u64) -> Result<(), Failure> {
    // There is nothing to import.
    say(&json!({"begun_ns": begun_ns, "imported_ns": begun_ns, "acquired_ns": now_ns(), "cpu_ns": cpu_ns()}))
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
