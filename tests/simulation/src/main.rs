//! Looks for seeds that fail, and shows what happened there.
//!
//! Exit code 0: nothing is wrong. 1: a seed fails.

use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Parser;
use redlock::testing::simulation::{Fault, plant};
use redlock_simulation::{Run, run};
use signal_hook::{consts::SIGINT, flag};

/// How often the progress is told.
const TELL: Duration = Duration::from_secs(1);
/// The same where nobody looks at the screen.
const TELL_RARELY: Duration = Duration::from_secs(60);

/// Lines of a trace that are shown before the flaw.
const BEFORE: usize = 300;

/// Play seeds until one fails; then print what happened there and how to play it again.
#[derive(Clone, Parser)]
#[command(name = "simulate", version)]
struct Options {
    /// The first seed; by default one that is made of the time.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds, one after the other; by default without end, or one with --trace.
    #[arg(long)]
    seeds: Option<u64>,
    /// Go on after a seed that fails, and print no trace.
    #[arg(long)]
    all: bool,
    /// Print the whole trace of every seed.
    #[arg(long)]
    trace: bool,
    /// Plant a fault in the servers, by its name.
    #[arg(long, value_parser = fault)]
    fault: Option<Fault>,
}

fn fault(name: &str) -> Result<Fault, String> {
    let named = Fault::ALL.iter().copied().find(|fault| format!("{fault:?}") == name);
    named.ok_or_else(|| format!("there is none of this name, but {:?}", Fault::ALL))
}

fn main() -> ExitCode {
    let options = Options::parse();
    match play(&options, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        // Whoever closed the pipe has read enough.
        _ => ExitCode::from(1),
    }
}

/// The seeds that are still to be played.
struct Seeds {
    next: AtomicU64,
    end: u64,
    over: Arc<AtomicBool>,
}

impl Seeds {
    fn next(&self) -> Option<u64> {
        let seed = self.next.fetch_add(1, Ordering::Relaxed);
        (seed < self.end && !self.over.load(Ordering::Relaxed)).then_some(seed)
    }
}

/// Whether no seed failed.
fn play(options: &Options, output: &mut impl Write) -> io::Result<bool> {
    let first = options.seed.unwrap_or_else(of_time);
    let seeds = options.seeds.unwrap_or(if options.trace { 1 } else { u64::MAX });
    let seeds = Seeds { next: AtomicU64::new(first), end: first.saturating_add(seeds), over: Arc::default() };
    let seeds = Arc::new(seeds);
    // The runs that are going on come to their end.
    flag::register(SIGINT, Arc::clone(&seeds.over))?;
    let cores = if options.trace { NonZero::<usize>::MIN } else { thread::available_parallelism()? };
    let (told, runs) = mpsc::sync_channel(cores.get());
    for _ in 0..cores.get() {
        let (seeds, told, options) = (Arc::clone(&seeds), told.clone(), options.clone());
        thread::spawn(move || {
            plant(options.fault);
            while let Some(seed) = seeds.next() {
                if told.send(run(seed, options.trace)).is_err() {
                    return;
                }
            }
        });
    }
    drop(told);
    let mut progress = Progress::new();
    for played in runs {
        progress.played += 1;
        let fails = !played.outcome.flaws.is_empty();
        progress.failed += u64::from(fails);
        if fails || options.trace {
            show(options, played, output)?;
        }
        if fails && !options.all {
            seeds.over.store(true, Ordering::Relaxed);
        }
        progress.tell();
    }
    let Progress { played, failed, began, .. } = progress;
    writeln!(output, "{failed} of {played} seeds from {first} on failed, in {:.0?}", began.elapsed())?;
    Ok(failed == 0)
}

/// A seed that nobody has played a moment ago.
fn of_time() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() * 1_000_000
}

/// What is told while seeds are played.
struct Progress {
    played: u64,
    failed: u64,
    began: Instant,
    told: Instant,
}

impl Progress {
    fn new() -> Self {
        let now = Instant::now();
        Self { played: 0, failed: 0, began: now, told: now }
    }

    fn tell(&mut self) {
        let on_screen = io::stderr().is_terminal();
        if self.told.elapsed() < if on_screen { TELL } else { TELL_RARELY } {
            return;
        }
        self.told = Instant::now();
        let (took, played, failed) = (self.began.elapsed(), self.played, self.failed);
        let per_minute = u128::from(played) * 60_000 / took.as_millis().max(1);
        let (start, end) = if on_screen { ("\r", "") } else { ("", "\n") };
        eprint!("{start}{played} seeds in {took:.0?}, {per_minute} a minute, {failed} failed{end}");
    }
}

/// Prints what was wrong in a run, and what came before it.
fn show(options: &Options, mut played: Run, output: &mut impl Write) -> io::Result<()> {
    let seed = played.seed;
    if !options.trace && !options.all {
        // The same again, and this time everything is written down.
        plant(options.fault);
        played = run(seed, true);
    }
    let shown = if options.trace { &played.trace[..] } else { before(&played) };
    for line in shown {
        writeln!(output, "{line}")?;
    }
    writeln!(output, "seed {seed}: {:?}\n{}", played.plan, played.outcome)?;
    for flaw in &played.outcome.flaws {
        writeln!(output, "seed {seed}: {flaw}")?;
    }
    if !played.outcome.flaws.is_empty() {
        let fault = options.fault.map(|fault| format!(" --fault {fault:?}")).unwrap_or_default();
        writeln!(
            output,
            "again: cargo run --release -p redlock-simulation --bin simulate -- --trace --seed {seed}{fault}"
        )?;
    }
    Ok(())
}

/// The last lines before the latest time that the first flaw speaks of.
fn before(played: &Run) -> &[String] {
    let seconds = |text: &str| text.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).fold(0.0, f64::max);
    let flawed = played.outcome.flaws.first().map_or(0.0, |flaw| seconds(flaw));
    let is_before = |line: &String| line.split_whitespace().next().is_some_and(|time| seconds(time) <= flawed);
    let end = if flawed > 0.0 { played.trace.partition_point(is_before) } else { played.trace.len() };
    &played.trace[end.saturating_sub(BEFORE)..end]
}
