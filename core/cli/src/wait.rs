//! `redlock wait`: until locks are free, without taking them.
//!
//! It looks at all names together, waits for the first that is held, and ends with a look that finds all of them free. What
//! may interrupt it: a signal, or the end of its time; it leaves nothing behind.

use std::ffi::OsString;
use std::time::Duration;

use redlock::bindings::clock::{Clock, Moment};
use redlock::bindings::operator::{AWAY_MOST, join_all, wait_free};
use redlock::{Error, ErrorKind, LockView, Redlock};

use crate::exit::{Exit, Failure};
use crate::{around, duration, nodes, progress, waiting};

/// The pause before the next look while no quorum of nodes answers.
const PAUSE: Duration = Duration::from_millis(250);

/// How often a person at a terminal sees who holds it.
const LOOK: Duration = Duration::from_secs(1);

/// Wait until locks are free, without taking them
///
/// With several names, until all of them are free at the same time. Somebody else may take them a moment later: use
/// `redlock run` to have a lock while a command runs. A lock that others wait for may pass from one to the next without
/// being seen free.
///
/// Exit status: 0 if they are free, 75 if one is still held at the end of --wait, 69 if too few nodes answer to know, 77
/// if they refuse this user.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of locks
    #[arg(required = true, value_name = "NAME")]
    names: Vec<OsString>,

    /// The names are semaphores with this many permits: until one of them is free
    #[arg(long, value_name = "N")]
    permits: Option<u32>,

    /// Longest wait; 0 looks once [default: forever]
    #[arg(short, long, visible_alias = "timeout", value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,

    /// Say nothing if a lock is still held at the end
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    nodes: nodes::Args,
}

/// Runs the command.
///
/// # Errors
///
/// For wrong arguments, at the end of the wait, and if too few nodes answer.
pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let redlock = args.nodes.client(None)?;
    // Only who waits for a slot is counted.
    let is_counted = |view: &LockView| view.slot.is_some();
    let holder = async || waiting::look(&redlock, &args.names, args.permits, is_counted).await;
    tokio::select! {
        biased;
        ended = until_free(&redlock, &args) => ended,
        () = progress::show(!args.quiet, LOOK, holder) => unreachable!("it never ends"),
        () = around::warn(&redlock, &args.names, false), if !args.quiet && args.permits.is_none() => {
            unreachable!("it never ends")
        }
    }
}

/// Looks until all are free.
async fn until_free(redlock: &Redlock, args: &Args) -> Result<Exit, Failure> {
    let clock = Clock::System;
    let end = args.wait.map_or(Moment::NEVER, |wait| clock.now().after(wait));
    // One look takes its time.
    let looks_until = if args.wait == Some(Duration::ZERO) { Moment::NEVER } else { end };
    // The first look has to be answered.
    let mut away_until = clock.now();
    loop {
        let looked = tokio::select! {
            biased;
            looked = held(redlock, args) => looked,
            () = clock.sleep_until(looks_until) => {
                let name = args.names[0].to_string_lossy();
                let message = format!("lock {name:?}: no quorum of nodes answered before the end of --wait");
                return Err(Failure::new(Exit::UNAVAILABLE, message));
            }
        };
        let waited = match looked {
            Ok(None) => return Ok(Exit::OK),
            Ok(Some(name)) => {
                away_until = clock.now().after(AWAY_MOST);
                let left = args.wait.map(|_| end.since(clock.now()));
                let lock = nodes::one(redlock, name, args.permits);
                wait_free(redlock, &lock, left).await.map(|is_free| (!is_free).then_some(name))
            }
            Err(error) => Err(error),
        };
        match waited {
            Ok(None) => {}
            Ok(Some(name)) => return Err(failure(name, args)),
            Err(error) if error.kind() == ErrorKind::Unavailable && clock.now() < away_until.min(end) => {
                clock.sleep_until(clock.now().after(PAUSE).min(end)).await;
            }
            Err(error) => return Err(nodes::failure(redlock, error).await),
        }
    }
}

/// Returns a name that is held; `None` if none is.
async fn held<'a>(redlock: &Redlock, args: &'a Args) -> Result<Option<&'a OsString>, Error> {
    let looks = args.names.iter().map(|name| async { nodes::one(redlock, name, args.permits).is_locked().await });
    let mut found = None;
    for (name, held) in args.names.iter().zip(join_all(looks.collect()).await) {
        found = found.or(held?.then_some(name));
    }
    Ok(found)
}

/// Returns the failure of a wait that ended too soon for this name.
fn failure(name: &OsString, args: &Args) -> Failure {
    if args.quiet {
        return Failure::quiet(Exit::HELD);
    }
    let after = args.wait.filter(|wait| !wait.is_zero()).map(|wait| format!(" after {}", duration::shown(wait)));
    let still = if after.is_some() { "still held" } else { "held" };
    Failure::new(Exit::HELD, format!("lock {:?}: {still}{}", name.to_string_lossy(), after.unwrap_or_default()))
}
