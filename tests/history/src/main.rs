//! Reads a history as JSON lines from standard input and says what is wrong with it.
//!
//! Exit code 0: no violation. 1: there are violations, one line each. 2: the input is not a history, or an empty one,
//! which would prove nothing.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use redlock_history::{Rules, check, read};

/// Judge a recorded history of lock calls, read as JSON lines from standard input.
#[derive(Parser)]
#[command(name = "redlock-history", version)]
struct Options {
    /// Two may hold a name at once (clocks that jump, lost data, nodes that forget).
    #[arg(long)]
    no_exclusion: bool,
    /// Fences need not grow in real time (lost fence keys); they stay unique.
    #[arg(long)]
    no_order: bool,
    /// Losses must be told this many milliseconds after the end of the validity, at the latest.
    #[arg(long, value_name = "N")]
    told_late_ms: Option<u64>,
    /// A key may be seen this many milliseconds after its hold or its attempt was over, at the latest.
    #[arg(long, value_name = "N", default_value_t = 0)]
    settle_ms: u64,
    /// A call must come back within this many milliseconds, not counting outages.
    #[arg(long, value_name = "N")]
    limit_ms: Option<u64>,
    /// An acquire may wait this many milliseconds while nobody has the lock, not counting outages.
    #[arg(long, value_name = "N")]
    idle_ms: Option<u64>,
    /// This many nodes must have granted each acquire.
    #[arg(long, value_name = "N")]
    quorum: Option<usize>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let rules = Rules {
        exclusion: !options.no_exclusion,
        told_late: options.told_late_ms.map(Duration::from_millis),
        order: !options.no_order,
        settle: Duration::from_millis(options.settle_ms),
        limit: options.limit_ms.map(Duration::from_millis),
        idle: options.idle_ms.map(Duration::from_millis),
        quorum: options.quorum,
    };
    let records = match read(io::stdin().lock()) {
        Ok(records) => records,
        Err(error) => return refuse(&error.to_string()),
    };
    if records.is_empty() {
        return refuse("no record on standard input: an empty history proves nothing");
    }
    let report = check(&records, &rules);
    let mut output = io::stdout().lock();
    let printed = writeln!(output, "{report}")
        .and_then(|()| report.violations.iter().try_for_each(|violation| writeln!(output, "{violation}")));
    match printed {
        // A reader that closed the pipe has read enough; the exit code still counts.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => refuse(&format!("standard output: {error}")),
        _ if report.is_ok() => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    }
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("redlock-history: {why}");
    ExitCode::from(2)
}
