//! `redlock release`: deletes somebody else's lock, after it has shown whose it is; or releases the lock of a token.
//!
//! It *looks*, *shows*, *asks*, and *deletes* what it has shown, and nothing else. What may interrupt it: a signal, before
//! the answer without any effect; after it, what was sent is executed.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use redlock::bindings::operator::{self, Holding, PERMITS_MOST, Removal};
use tokio::sync::oneshot;

use crate::exit::{Exit, Failure};
use crate::signals::unstopped;
use crate::table::plain;
use crate::{acquire, nodes, say, status};

/// Release the lock of a token, or delete one that somebody else holds
///
/// With --token, releases what `redlock acquire` has acquired. Exit status: 0 if it was released, 76 if it is lost.
///
/// Without, shows the holder and what is on each node, asks, and deletes what it has shown: a new holder keeps the lock.
/// The previous holder notices at its next renewal, within a third of its ttl, and may keep working until then: make sure
/// first that it has stopped. Locks of other libraries can be deleted too.
///
/// Exit status: 0 if it was deleted, 1 if it was free, has changed, or the answer was no, 69 if too few nodes answer, 77
/// if they refuse this user.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the lock
    #[arg(value_name = "NAME", required_unless_present = "token")]
    name: Option<OsString>,

    /// Release the lock that `redlock acquire` has acquired, which has printed this
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["name", "force", "yes", "slot"])]
    token: Option<String>,

    /// Needed without --token: the lock is not yours to release
    #[arg(long)]
    force: bool,

    /// Do not ask; needed without a terminal
    #[arg(short, long)]
    yes: bool,

    /// The name is a semaphore: delete the holder of this slot, from 0
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..i64::from(PERMITS_MOST)))]
    slot: Option<u32>,

    #[command(flatten)]
    nodes: nodes::Args,
}

/// Runs the command.
///
/// # Errors
///
/// For wrong arguments, if too few nodes answer, if it has changed, and if what is there cannot be shown.
pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    if let Some(token) = &args.token {
        return acquire::release(&args.nodes.client(None)?, token).await;
    }
    let name = args.name.unwrap_or_default();
    if !args.force {
        let message = "release deletes a lock that somebody else may hold; look at it with `redlock status`, and then use \
                       --force";
        return Err(Failure::usage(message));
    }
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !args.yes && !can_ask {
        return Err(Failure::usage("there is no terminal to ask on; use --yes to release without a question"));
    }
    let redlock = args.nodes.client(None)?;
    let held = operator::holding(&redlock, name.as_bytes(), args.slot).await;
    let held = nodes::explained(&redlock, held).await?;
    say::out_unless_ended(status::block_of(&held.view, status::now())).await?;
    if !held.is_held() {
        return Ok(Exit::NO);
    }
    let title = plain(&status::title(&held.view));
    if let Some(why) = held.is_kept() {
        return Err(Failure::new(Exit::NO, format!("{title}: {why}; nothing was deleted")));
    }
    if !args.yes && !is_wanted().await? {
        return Err(Failure::new(Exit::NO, format!("{title}: nothing was deleted")));
    }
    told(&held, &nodes::explained(&redlock, held.release().await).await?).await
}

/// Says what became of it.
async fn told(held: &Holding, removal: &Removal) -> Result<Exit, Failure> {
    let title = plain(&status::title(&held.view));
    let all = held.view.nodes.len();
    let no = |rest: String| Err(Failure::new(Exit::NO, format!("{title}: {rest}")));
    match removal {
        Removal::Released { nodes, waiting, unanswered } => {
            let on = if all == 1 { String::new() } else { format!(" on {nodes} of {all} nodes") };
            let waiting = if *waiting == 0 { String::new() } else { format!("; waiting: {waiting}") };
            say::out_unless_ended(format!("{title}: released{on}{waiting}\n")).await?;
            for node in unanswered {
                let rest = "it may keep the lock until that expires";
                say::warning(&format!("{} did not answer: {}; {rest}", node.node, node.answer));
            }
            Ok(Exit::OK)
        }
        Removal::Gone => no("it was released or has expired meanwhile; nothing was deleted".to_owned()),
        Removal::Changed { nodes: 0 } => no("it has another owner by now; nothing was deleted".to_owned()),
        Removal::Changed { nodes } => no(format!(
            "it has another owner by now, who keeps it; what was left of the former one on {nodes} of {all} \
                        nodes is deleted"
        )),
    }
}

/// Asks on the terminal. The answer is read on a thread of its own, so that signals are seen meanwhile.
async fn is_wanted() -> Result<bool, Failure> {
    let question = "Delete this lock? Its holder may still be at work. [y/N] ";
    let asked = unstopped(|| io::stderr().lock().write_all(question.as_bytes()));
    asked.map_err(|error| Failure::new(Exit::OUTPUT, format!("cannot ask: {error}")))?;
    let (answered, answer) = oneshot::channel();
    let reader = std::thread::Builder::new().name("redlock-answer".to_owned()).spawn(move || {
        let mut line = String::new();
        // An end of the input, and bytes that are not text, are not a yes.
        let read = io::stdin().read_line(&mut line).unwrap_or(0);
        let ended = line.ends_with('\n');
        let is_yes = matches!(line.trim(), "y" | "Y" | "yes" | "Yes" | "YES");
        // A signal may have ended the wait for it.
        let _ = answered.send((is_yes, read > 0 && ended));
    });
    reader.map_err(|error| Failure::new(Exit::BUG, format!("cannot read the answer: {error}")))?;
    let (is_yes, is_line) = answer.await.unwrap_or_default();
    if !is_line {
        // The cursor still stands behind the question.
        drop(unstopped(|| io::stderr().lock().write_all(b"\n")));
    }
    Ok(is_yes)
}
