//! The wait for the lock: what ends it, and what a person at a terminal sees meanwhile.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use redlock::bindings::clock::Clock;
use redlock::bindings::operator::AWAY_MOST;
use redlock::{Error, ErrorKind, Fixed, Guard, Lock, LockState, LockView, NodeView, Redlock};

use crate::around;
use crate::duration::shown;
use crate::exit::{Failure, spelled};
use crate::nodes;
use crate::progress::Progress;
use crate::run::args::Args;
use crate::run::group;
use crate::say;
use crate::signals::{self, Signals};
use crate::status;

/// How often the nodes are asked who holds the lock. A shorter wait shows nothing: a line that comes and goes is noise.
const LOOK: Duration = Duration::from_secs(1);

/// How the wait ended.
#[derive(Debug)]
pub(super) enum Waited {
    Acquired(Guard),
    Failed(Failure),
    /// A signal ends the program.
    Ended(Signal),
}

/// Waits for the lock. Ends early for a signal, with nothing left behind.
pub(super) async fn wait(args: &Args, redlock: &Redlock, lock: &Lock<Fixed>, signals: &mut Signals) -> Waited {
    let acquired = async {
        match lock.acquire().await {
            Ok(guard) => Waited::Acquired(guard),
            Err(error) => Waited::Failed(nodes::failure(redlock, error).await),
        }
    };
    tokio::select! {
        biased;
        waited = acquired => waited,
        signal = signals.next() => Waited::Ended(signal),
        () = reap() => unreachable!("it never ends"),
        () = show(args, redlock) => unreachable!("it never ends"),
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

/// Shows who has the lock, again and again. Never ends.
async fn show(args: &Args, redlock: &Redlock) {
    let mut progress = Progress::new(!args.quiet);
    if !progress.is_wanted() {
        return std::future::pending().await;
    }
    let clock = Clock::System;
    loop {
        clock.sleep(LOOK).await;
        if let Ok(views) = look(args, redlock).await
            && let Some(text) = describe(&views, args.shared, status::now())
        {
            progress.show(&format!("redlock: {text}"));
        }
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

/// Asks the nodes about each name, or about each slot of a semaphore.
async fn look(args: &Args, redlock: &Redlock) -> Result<Vec<LockView>, Error> {
    if let (Some(permits), [name]) = (args.permits, &args.names[..]) {
        return redlock.inspect_semaphore(name.as_bytes(), permits).await;
    }
    let mut views = Vec::new();
    for name in &args.names {
        views.push(redlock.inspect(name.as_bytes()).await?);
    }
    Ok(views)
}

/// Returns what a waiter wants to know, who may be a reader; `None` if the lock looks free and is about to be acquired.
fn describe(views: &[LockView], is_reader: bool, now: SystemTime) -> Option<String> {
    let taken: Vec<_> = views.iter().filter(|view| view.state != LockState::Free).collect();
    let first = taken.first()?;
    // This program is one of those that are counted, unless it stands behind a writer as a reader among readers.
    let own = u32::from(!is_reader || first.state != LockState::Shared);
    let others = first.waiting.map_or(0, |waiting| waiting.saturating_sub(own));
    let waiting = if others == 0 { String::new() } else { format!("; {others} more waiting") };
    if first.slot.is_some() {
        let all = taken.len() == views.len();
        return all.then(|| format!("waiting for {:?}: all {} permits are held{waiting}", first.name, views.len()));
    }
    let since = first.since.and_then(|since| now.duration_since(since).ok());
    let since = since.map(|since| since.as_secs()).filter(|seconds| *seconds > 0);
    let since = since.map_or_else(String::new, |seconds| format!(" for {}", shown(Duration::from_secs(seconds))));
    let holder = match (&first.label, first.state) {
        (Some(label), _) => format!("held by {label}{since}"),
        (None, LockState::Held) => format!("held{since}"),
        (None, LockState::Shared) => format!("shared by {} readers{since}", first.readers.unwrap_or_default()),
        (None, LockState::Foreign) => "held by a program that uses another library".to_owned(),
        (None, _) => {
            let error = |node: &NodeView| Some(format!("{}: {}", node.node, node.state.values().1.error?));
            let away: Vec<_> = first.nodes.iter().filter_map(error).collect();
            if first.nodes.len() - away.len() < first.quorum {
                format!("no quorum of nodes answers [{}]", away.join("; "))
            } else {
                "the nodes do not agree whose it is".to_owned()
            }
        }
    };
    Some(format!("waiting for {:?}: {holder}{waiting}", first.name))
}

#[cfg(test)]
mod tests {
    use redlock::NodeState;

    use super::*;
    use crate::sample::{self, changed};

    fn view(state: LockState, label: Option<&str>, slot: Option<u32>) -> LockView {
        sample::view(|view| {
            (view.state, view.label, view.slot) = (state, label.map(str::to_owned), slot);
            (view.since, view.waiting) = (Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60)), Some(3));
        })
    }

    #[test]
    fn a_waiter_sees_who_has_the_lock() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(260);
        let free = view(LockState::Free, None, None);
        let held = view(LockState::Held, Some("web1:17"), None);
        assert_eq!(describe(std::slice::from_ref(&free), false, now), None);
        let expected = "waiting for \"job\": held by web1:17 for 3 min 20 s; 2 more waiting";
        assert_eq!(describe(&[free, held], false, now).as_deref(), Some(expected));
        let shared = changed(view(LockState::Shared, None, None), |view| view.readers = Some(7));
        let expected = "waiting for \"job\": shared by 7 readers for 3 min 20 s; 2 more waiting";
        assert_eq!(describe(std::slice::from_ref(&shared), false, now).as_deref(), Some(expected));
        let expected = "waiting for \"job\": shared by 7 readers for 3 min 20 s; 3 more waiting";
        assert_eq!(describe(&[shared], true, now).as_deref(), Some(expected));
        let foreign = changed(view(LockState::Foreign, None, None), |view| view.waiting = Some(1));
        let expected = "waiting for \"job\": held by a program that uses another library";
        assert_eq!(describe(&[foreign], false, now).as_deref(), Some(expected));
        let unknown = |error: &str| {
            let down = NodeState::Unavailable { error: error.to_owned() };
            let nodes = sample::nodes([NodeState::Free, down.clone(), down]);
            changed(view(LockState::Unknown, None, None), |view| (view.nodes, view.quorum) = (nodes, 2))
        };
        let away = describe(&[unknown("is down")], false, now).unwrap();
        assert!(away.contains("job\": no quorum of nodes answers [redis://10.0.0.2:6379: is down; "), "{away}");
        let split = changed(unknown("is down"), |view| view.quorum = 1);
        assert!(describe(&[split], false, now).unwrap().contains("do not agree"));
    }

    #[test]
    fn a_waiter_sees_that_no_permit_is_left() {
        let slots = [0, 1].map(|slot| view(LockState::Held, Some("web1:17"), Some(slot)));
        let expected = "waiting for \"job\": all 2 permits are held; 2 more waiting";
        assert_eq!(describe(&slots, false, SystemTime::UNIX_EPOCH).as_deref(), Some(expected));
        let [held, _] = slots;
        assert_eq!(describe(&[held, view(LockState::Free, None, Some(1))], false, SystemTime::UNIX_EPOCH), None);
    }
}
