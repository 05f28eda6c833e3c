//! The wait for the lock: what ends it, and what a person at a terminal sees meanwhile.

use std::time::Duration;

use redlock::bindings::clock::Clock;
use redlock::bindings::operator::AWAY_MOST;
use redlock::{ErrorKind, Fixed, Guard, Lock, LockState, LockView, Redlock};

use crate::exit::{Exit, Failure, spelled};
use crate::run::args::Args;
use crate::run::group;
use crate::signals::{self, Signals};
use crate::{around, nodes, progress, say, waiting};

/// How often the nodes are asked who holds the lock. A shorter wait shows nothing: a line that comes and goes is noise.
const LOOK: Duration = Duration::from_secs(1);

/// Waits for the lock.
///
/// # Errors
///
/// How the program ends: early by a signal, with nothing left behind, or because there is no lock for it.
pub(super) async fn wait(
    args: &Args,
    redlock: &Redlock,
    lock: &Lock<Fixed>,
    signals: &mut Signals,
) -> Result<Guard, Result<Exit, Failure>> {
    let acquired = async { nodes::explained(redlock, lock.acquire().await).await };
    // This program is one of those that wait, unless it stands behind a writer as a reader among readers.
    let is_counted = |view: &LockView| !args.shared || view.state != LockState::Shared;
    let holder = async || waiting::look(redlock, &args.names, args.permits, is_counted).await;
    tokio::select! {
        biased;
        acquired = acquired => acquired.map_err(|failure| Err(args.denied(failure))),
        signal = signals.next() => Err(Ok(signals::exit(signal))),
        () = reap() => unreachable!("it never ends"),
        () = progress::show(!args.quiet, LOOK, holder) => unreachable!("it never ends"),
        () = tell_of_outages(lock), if !args.quiet && args.wait.is_some() => unreachable!("it never ends"),
        () = around::warn(redlock, &args.names, args.shared), if !args.quiet && args.permits.is_none() => {
            unreachable!("it never ends")
        }
    }
}

/// Takes in children, which the first process of a container is given. Never ends.
async fn reap() {
    let Ok(mut ended) = signals::children() else { return std::future::pending().await };
    loop {
        ended.next().await;
        group::reap();
    }
}

/// Warns of each outage in which a wait without `--wait` would have ended. Never ends.
async fn tell_of_outages(lock: &Lock<Fixed>) {
    let mut is_away = false;
    loop {
        Clock::System.sleep(AWAY_MOST).await;
        let away = lock.is_locked().await.err().filter(|error| error.kind() == ErrorKind::Unavailable);
        if let (Some(error), false) = (&away, is_away) {
            say::warning(&format!("{}; waiting on", spelled(error)));
        }
        is_away = away.is_some();
    }
}
