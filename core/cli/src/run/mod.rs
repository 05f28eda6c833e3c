//! `redlock run`: a command that runs only while its lock is held.
//!
//! # States
//!
//! 1. *Checked*: names, options, the command and what becomes the keeper are there. Nothing is sent yet.
//! 2. *Waiting* for the lock (`waiting`). There is no command and no keeper. The signals that end a program end this one
//!    at once: the acquire is dropped, and the library releases what it has sent. SIGTSTP stops it as any program.
//! 3. *Starting* (`session`): the lock is held and renewed by the library's own thread. The keeper is started, then the
//!    command in the keeper's group. A signal or a loss before the command is there ends this program without it.
//! 4. *Running*: the `machine` says what each event means.
//! 5. *Ending*: the command was asked to end because the lock is about to. There is no way back. Its whole group has to
//!    end, not the command alone.
//! 6. *Killed*: the group has got SIGKILL, and is waited for.
//! 7. *Over*: the keeper is ended by its number, so that what the command has left running goes on. Then the terminal is
//!    taken back, and then the lock released: in this order, because whoever waits begins as soon as it is.
//!
//! # What may interrupt each await
//!
//! There is one thread with one runtime, and each wait is for one of several things, in this order:
//!
//! | state | waits for | also ends by |
//! | --- | --- | --- |
//! | waiting | the acquire | a signal: dropped, which is cancel safe. Progress is looked up meanwhile, and dropped with it |
//! | starting | the keeper's `ready` | a signal, the loss: the keeper is dropped, which ends it |
//! | running, ending, killed | SIGCHLD; the loss; a signal; the time | nothing: each is cancel safe, and the loop goes on |
//! | over | the release | a signal, because nodes may be frozen: the library finishes it in the background |
//!
//! Whatever this thread does in between may not block, because it has a command to kill in time: notices are written by
//! a thread of their own, a terminal that is the command's is only written to with SIGTTOU blocked, and the shells that
//! are started on the way end at once. The one exception is wanted: when the command is stopped, this program stops
//! itself.
//!
//! If it is killed, or panics, or its machine stops for ever, the group is killed by its keeper, or dies with the machine.
//! If it is only stopped (SIGSTOP), nobody can kill the command in time: resources that check the fence are safe then.

pub(crate) mod args;
mod child;
pub(crate) mod group;
mod machine;
mod notices;
mod session;
mod terminal;
mod textfile;
mod waiting;

use crate::exit::{Exit, Failure};
use crate::run::args::Args;
use crate::run::group::SHELL;
use crate::run::session::Session;
use crate::run::textfile::Record;
use crate::signals::{ENDING, Ignored, Signals, USER};

/// Runs the command.
///
/// # Errors
///
/// For wrong arguments, and if there is no lock for it, or no longer one.
pub(crate) async fn run(args: Args, ignored: Ignored) -> Result<Exit, Failure> {
    let mut record = Record::begin();
    let result = recorded(&args, ignored, &mut record).await;
    if let Some(file) = &args.textfile {
        record.write(file, &args.names, &result);
    }
    result
}

async fn recorded(args: &Args, ignored: Ignored, record: &mut Record) -> Result<Exit, Failure> {
    let kill_after = args.kill_after()?;
    child::check(&args.command[0])?;
    if !group::can_keep() {
        return Err(Failure::new(
            Exit::BUG,
            format!("there is no {SHELL}, which would end the command if redlock died"),
        ));
    }
    let redlock = args.nodes.client(Some(args.ttl))?;
    let lock = args.lock(&redlock)?;
    let mut signals = Signals::listen(ENDING.into_iter().chain(USER), ignored)?;
    let guard = match waiting::wait(args, &redlock, &lock, &mut signals).await {
        Ok(guard) => guard,
        Err(ended) => return ended,
    };
    record.acquired();
    Session::new(args, kill_after, guard, signals, ignored)?.run().await
}
