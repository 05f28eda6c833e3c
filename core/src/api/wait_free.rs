//! Waiting until a lock is free, without taking it: for those who only need what its holder does.
//!
//! States: *looking* (the nodes are asked over connections on which they report the next change; of several callers in a
//! process, one asks for all) → *free*, or *asleep* until a node reports a change, or the backstop of a waiter →
//! *looking*. It changes nothing, and is not counted as a waiter. A wait for a slot of a semaphore is, because nodes tell
//! of a free slot only those. What may interrupt it:
//!
//! - fewer nodes than a quorum report: it polls, with growing pauses;
//! - no quorum answers: the first look fails, later ones for [`AWAY_MOST`] do not;
//! - a cluster gives the name's slot to another server: it goes on there;
//! - the timeout: it was not seen free;
//! - the client is closed, or redlock is shut down: `closed`;
//! - dropped: the background drops it, and another caller looks.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::acquire::wakeup::Wakeup;
use crate::acquire::{end_of, own_hold};
use crate::api::client::Redlock;
use crate::api::inspect;
use crate::error::{AnswerKind, Error, ErrorKind};
use crate::net::connections::Connections;
use crate::net::tracking::Look;
use crate::options::Options;
use crate::process::context::LockContext;
use crate::protocol::positions::{Positions, Sought};
use crate::protocol::quorum;
use crate::sys::clock::Moment;
use crate::sys::future::while_awaited;

/// How long nodes may be away after a look that they answered: a restart takes less.
pub const AWAY_MOST: Duration = Duration::from_secs(10);

impl Redlock {
    /// Waits until the lock with this name is free, without taking it; `None` waits for ever, and zero looks once. Returns
    /// whether it was seen free before the end of the `timeout`. No queue and no polling: the nodes report a release.
    ///
    /// For work that one caller does and others only need, such as filling a cache: who does not get the lock waits, and
    /// then uses what is there. Somebody else may have the lock a moment later, so this says nothing about who may work.
    /// A lock that others wait to acquire may pass from one to the next without being seen free.
    ///
    /// # Errors
    ///
    /// `unavailable` or `forbidden` if too few nodes answer to know, at first or for 10 s later on, without the time for which
    /// nodes have no vote after a restart; `invalid_argument` for a wrong name, and in the protocol setnx; `closed` if the
    /// client is closed or redlock is shut down.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// # let redlock = redlock::Redlock::new("memory://wait-free-example")?;
    /// # let read_cache = async || "page";
    /// if let Some(guard) = redlock.lock("page").try_acquire().await? {
    ///     // fill the cache
    ///     guard.release().await?;
    /// } else {
    ///     redlock.wait_free("page", Some(Duration::from_secs(5))).await?;
    /// }
    /// let page = read_cache().await;
    /// # assert!(redlock.wait_free("page", None).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_free(&self, name: impl AsRef<[u8]>, timeout: Option<Duration>) -> Result<bool, Error> {
        wait_free(self.session().context(&name.as_ref().into(), &Options::default())?, timeout).await
    }
}

/// Waits until an acquire would not have to wait, or until the timeout; see
/// [`Redlock::wait_free`](crate::Redlock::wait_free). In the background, which has the connections for it.
pub(crate) async fn wait_free(context: LockContext, timeout: Option<Duration>) -> Result<bool, Error> {
    let allowed = context.spec.settings.protocol.allows_is_locked();
    allowed.map_err(|error| error.with_name(context.spec.name.bytes()))?;
    let process = Arc::clone(&context.process);
    let began = process.clock.now();
    let limit = timeout.map_or(Moment::NEVER, |timeout| began.after(timeout));
    // One look takes its time.
    let looks_until = if timeout.is_some_and(|timeout| timeout.is_zero()) { Moment::NEVER } else { limit };
    let (task, free) = while_awaited(async move {
        tokio::select! {
            biased;
            error = end_of(&context) => Err(error),
            free = until_free(&context, began, limit, looks_until) => free,
            never = own_hold::warn(&context, began) => match never {},
        }
    });
    process.background.start()?.spawn_boxed(task);
    free.await.ok_or_else(Error::panicked)?
}

async fn until_free(context: &LockContext, began: Moment, limit: Moment, looks_until: Moment) -> Result<bool, Error> {
    let clock = &context.process.clock;
    // The first look has to be answered.
    let (mut away_until, mut unknown) = (began, None);
    let mut is_known = false;
    loop {
        let mut watch = FreeWatch::new(context);
        while !context.has_moved(&watch.connections) {
            let Some(look) = clock.timeout_at(looks_until, pin!(watch.look())).await else {
                // The timeout has cut it short.
                let why = || unknown.unwrap_or_else(|| inspect::unanswered(context, limit.since(began)));
                return if is_known { Ok(false) } else { Err(why()) };
            };
            is_known = look.is_ok();
            let (mut ttl_left, mut counts_at) = (None, None);
            match look {
                Ok((false, _)) => return Ok(true),
                Ok((true, left)) => {
                    away_until = clock.now().after(AWAY_MOST);
                    ttl_left = left;
                }
                Err(error) => {
                    counts_at = quarantined_for(&error).map(|left| clock.now().after(left));
                    let answered_by = counts_at.map(|at| at.after(context.spec.settings.node_timeout));
                    away_until = away_until.max(answered_by.unwrap_or_default());
                    if error.kind() != ErrorKind::Unavailable || away_until.min(limit) <= clock.now() {
                        return Err(error);
                    }
                    unknown = Some(error);
                }
            }
            if is_known && clock.now() >= limit {
                return Ok(false);
            }
            match counts_at {
                Some(at) => watch.wakeup.sleep(at.min(limit)).await,
                None => watch.sleep(is_known, ttl_left, limit).await,
            }
            if is_known && clock.now() >= limit {
                return Ok(false);
            }
        }
    }
}

/// Returns for how long quarantines alone prevent a quorum, as the nodes' answers show it.
fn quarantined_for(error: &Error) -> Option<Duration> {
    let kinds = || error.nodes().iter().map(|node| &node.kind);
    let answers = kinds().filter(|kind| matches!(kind, AnswerKind::Held | AnswerKind::Free)).count();
    let left = |kind: &AnswerKind| if let AnswerKind::Quarantined(left) = kind { Some(*left) } else { None };
    let missing = quorum::quorum(error.nodes().len()).saturating_sub(answers);
    quorum::quarantined_for(missing, kinds().filter_map(left))
}

/// A caller's watch over a lock, on one set of nodes.
struct FreeWatch<'a> {
    context: &'a LockContext,
    connections: Arc<Connections>,
    wakeup: Wakeup,
    /// Of one who waits for a slot.
    positions: Arc<Positions>,
    polls: u32,
}

impl<'a> FreeWatch<'a> {
    fn new(context: &'a LockContext) -> Self {
        let set = context.set().into_owned();
        let connections = set.waiting_connections(&Handle::current());
        let wakeup = Wakeup::new(context.clone(), &set, Arc::clone(&connections));
        let positions = Arc::new(Positions::new(connections.members.len(), Sought::Slot));
        // What others ask for slots must not ring for those who wait for reports.
        let is_slot = context.spec.names.permits().is_some();
        let connections = if is_slot { set.connections(&Handle::current()) } else { connections };
        Self { context, connections, wakeup, positions, polls: 0 }
    }

    /// Asks whether it is taken, and how long the first key to expire is kept, unless another caller has just asked.
    async fn look(&mut self) -> Result<(bool, Option<Duration>), Error> {
        self.wakeup.note();
        if self.context.spec.names.permits().is_some() {
            return Ok((inspect::is_locked(self.context.clone()).await?, None));
        }
        let clock = &self.context.process.clock;
        let since = clock.now();
        let mut last = self.wakeup.key_watch.last_look().lock().await;
        if let Some(look) = last.as_ref().filter(|look| look.began > since) {
            return look.shared();
        }
        let began = clock.now();
        let seen = inspect::is_taken_on(self.context, &self.connections).await;
        last.insert(Look { began, seen }).shared()
    }

    /// Sleeps until it may be free. If it is not known whether it is taken, only for a pause.
    async fn sleep(&mut self, is_known: bool, ttl_left: Option<Duration>, limit: Moment) {
        if !is_known {
            self.wakeup.poll(self.polls, None, limit).await;
        } else if self.context.spec.names.permits().is_some() {
            drop(self.wakeup.wait_for_slot(&self.connections, Duration::ZERO, &self.positions, limit).await);
        } else {
            self.wakeup.wait_for_change(self.polls, ttl_left, limit).await;
        }
        self.polls = if is_known && self.wakeup.is_told() { 0 } else { self.polls.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodeAnswer;

    #[test]
    fn quarantines_are_waited_for_if_they_alone_prevent_a_quorum() {
        let restarted = |seconds| AnswerKind::Quarantined(Duration::from_secs(seconds));
        let cases = [
            (vec![restarted(9)], Some(9)),
            (vec![restarted(9), AnswerKind::Free, AnswerKind::Silent], Some(9)),
            (vec![restarted(9), restarted(5), AnswerKind::Unreachable], Some(9)),
            (vec![restarted(9), restarted(5), AnswerKind::Free], Some(5)),
            (vec![restarted(9), AnswerKind::Silent, AnswerKind::Unreachable], None),
            (vec![AnswerKind::Silent, AnswerKind::Free, AnswerKind::Unreachable], None),
        ];
        for (kinds, seconds) in cases {
            let answer = |kind| NodeAnswer { node: String::new(), kind, answer: String::new() };
            let nodes = kinds.iter().cloned().map(answer).collect();
            let error = Error::new(ErrorKind::Unavailable, "unknown").with_nodes(nodes);
            assert_eq!(quarantined_for(&error), seconds.map(Duration::from_secs), "{kinds:?}");
        }
    }
}
