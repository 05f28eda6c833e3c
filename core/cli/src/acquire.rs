//! `redlock acquire`, and `redlock extend` and `redlock release` with `--token`: one lock over several commands, as in the
//! steps of a pipeline. The lock is detached between them, so that nobody renews it.
//!
//! What may interrupt them: a signal. An acquire leaves no key then, and the others leave the lock as it was, or have done
//! what they were asked for.

use std::ffi::OsString;
use std::time::Duration;

use redlock::Redlock;
use redlock::bindings::operator;

use crate::exit::{Exit, Failure};
use crate::{around, duration, nodes, say};

/// Acquire a lock that later commands release, and print its token
///
/// For the steps of a pipeline. The lock is not renewed: choose a ttl that is longer than the work,
/// or extend the lock meanwhile. If one command does all of the work, use `redlock run`, which
/// renews the lock and ends the command if it is lost. Keep the token secret: it releases the lock.
///
/// Exit status: 0 if it was acquired, 75 if others hold it until the end of --wait, 69 if no quorum
/// of nodes answers, 77 if nodes refuse this user.
///
/// Example:
///   token=$(redlock acquire deploy --ttl 20m --wait 10m)
///   redlock extend --token "$token"
///   redlock release --token "$token"
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Name of the lock; of several names, all are locked at once
    #[arg(required = true, value_name = "NAME")]
    names: Vec<OsString>,

    /// Longest wait for the lock, such as 30s, 500ms, 2m; 0 is one try [default: forever]
    #[arg(short, long, visible_alias = "timeout", value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,

    /// One try: exit with 75 if others hold the lock, or ask several nodes at the same moment
    #[arg(short, long, conflicts_with = "wait")]
    no_wait: bool,

    /// How long nodes keep the lock unless it is extended or released
    #[arg(short, long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    ttl: Duration,

    /// A semaphore: at most N holders at once
    #[arg(long, value_name = "N")]
    permits: Option<u32>,

    #[command(flatten)]
    nodes: nodes::Args,
}

/// Give a lock that `redlock acquire` has acquired more time
///
/// The token stays the same.
///
/// Exit status: 0 if it was extended, 76 if the lock is lost, 69 if no quorum of nodes answers, 77 if nodes refuse this
/// user.
#[derive(Debug, clap::Args)]
pub(crate) struct ExtendArgs {
    /// What `redlock acquire` has printed
    #[arg(long, value_name = "TEXT")]
    token: String,

    /// How long nodes keep the lock from now on, at least; never shortens it [default: that of the acquire]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,

    #[command(flatten)]
    nodes: nodes::Args,
}

/// Runs `redlock acquire`.
///
/// # Errors
///
/// For wrong arguments, if others hold the lock, and if too few nodes answer.
pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    if say::out_is_closed() {
        return Err(Failure::new(Exit::OUTPUT, "standard output is closed, so the token would be lost"));
    }
    let redlock = args.nodes.client(Some(args.ttl))?;
    let lock = nodes::lock(&redlock, &args.names, args.permits)?.ttl(args.ttl).auto_renew(false);
    let lock = nodes::waiting(lock, args.no_wait, args.wait);
    let acquired = async { lock.acquire().await?.detach().await };
    let acquired = tokio::select! {
        biased;
        acquired = acquired => acquired,
        () = around::warn(&redlock, &args.names, false), if args.permits.is_none() => unreachable!("it never ends"),
    };
    let detached = nodes::explained(&redlock, acquired).await?;
    let said = say::out(&format!("{}\n", detached.as_str()));
    if said.is_err() {
        // Nobody else has the token.
        drop(release(&redlock, detached.as_str()).await);
    }
    said.map(|()| Exit::OK)
}

/// Runs `redlock extend`.
///
/// # Errors
///
/// For wrong arguments, if the lock is lost, and if too few nodes answer.
pub(crate) async fn extend(args: ExtendArgs) -> Result<Exit, Failure> {
    let redlock = args.nodes.client(args.ttl)?;
    let lock = operator::attach_again(&redlock, &args.token).auto_renew(false);
    let lock = if let Some(ttl) = args.ttl { lock.ttl(ttl) } else { lock };
    let extended = async { lock.acquire().await?.detach().await };
    // The text that was printed is as good as this one.
    nodes::explained(&redlock, extended.await).await.map(|_| Exit::OK)
}

/// Runs `redlock release --token`.
///
/// # Errors
///
/// For a wrong token, if the lock is lost, and if too few nodes answer.
pub(crate) async fn release(redlock: &Redlock, token: &str) -> Result<Exit, Failure> {
    let released = async { redlock.attach(token).auto_renew(false).acquire().await?.release().await };
    nodes::explained(redlock, released.await).await.map(|()| Exit::OK)
}
