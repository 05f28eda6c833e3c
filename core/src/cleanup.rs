//! Clean-up: whatever a token may have created is deleted, whoever gave it up and however.
//!
//! A [`Claim`] is one token's right to its keys. It is made before the first create is sent and dropped when nothing of
//! the token is wanted any more: after a lost attempt, a cancelled call, a release, a loss. Dropping it never blocks:
//!
//! - where a create is unanswered, the release is queued at once on that same connection, right behind it;
//! - everything else, and every release that was not answered, is *owed*: the background sends it on a connection of
//!   its own, again after 50 ms, doubling up to 2 s or a sixteenth of the ttl, until a reply says deleted or one ttl
//!   has passed.
//!
//! What may interrupt it: the connection's runtime ends or is not driven (no answer within `node_timeout`, so it is
//! owed); the process forks (the child drops nothing, the parent still holds); the background cannot start (the keys
//! run out by themselves after one ttl).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::backoff;
use crate::clock::Moment;
use crate::farewell::Duty;
use crate::fault::{Fault, planted};
use crate::footprint::{Footprint, Trace};
use crate::lane::Lane;
use crate::node::{Connection, Failure};
use crate::process::{NodeSet, Process};
use crate::quorum::{Mask, Removal};
use crate::round::{Event, Round, Sent};
use crate::script::{Action, Keys, Reply, Request};
use crate::spawn::spawn;
use crate::token::Token;

/// One token's right to the keys it may have created.
#[derive(Debug)]
pub(crate) struct Claim(Option<Box<Inner>>);

#[derive(Debug)]
struct Inner {
    process: Arc<Process>,
    set: Arc<NodeSet>,
    keys: Arc<Keys>,
    token: Token,
    unit: f64,
    footprint: Arc<Footprint>,
    node_timeout: Duration,
    /// The ttl that the keys were given last, in nanoseconds.
    ttl: AtomicU64,
}

impl Claim {
    pub(crate) fn new(
        process: &Arc<Process>,
        set: &Arc<NodeSet>,
        keys: &Arc<Keys>,
        (ttl, node_timeout): (Duration, Duration),
    ) -> Self {
        let (token, unit) = Token::fresh_with_unit(&process.random);
        let inner = Inner {
            process: Arc::clone(process),
            set: Arc::clone(set),
            keys: Arc::clone(keys),
            token,
            unit,
            footprint: Arc::new(Footprint::new(set.members.len())),
            node_timeout,
            ttl: AtomicU64::new(nanos(ttl)),
        };
        Self(Some(Box::new(inner)))
    }

    fn inner(&self) -> &Inner {
        self.0.as_ref().expect("taken only by drop")
    }

    pub(crate) fn process(&self) -> Arc<Process> {
        Arc::clone(&self.inner().process)
    }

    pub(crate) fn footprint(&self) -> &Arc<Footprint> {
        &self.inner().footprint
    }

    /// A number in [0, 1) that the token has drawn along: spares the hot path a second system call.
    pub(crate) fn unit(&self) -> f64 {
        self.inner().unit
    }

    /// Keys created from now on live for `ttl`.
    pub(crate) fn prolong(&self, ttl: Duration) {
        self.inner().ttl.fetch_max(nanos(ttl), Ordering::Relaxed);
    }

    /// A request in this token's name.
    pub(crate) fn request(&self, action: Action) -> Request {
        let inner = self.inner();
        Request { keys: Arc::clone(&inner.keys), token: inner.token, action }
    }

    /// Asks every node that this token has marked to delete. Where a create is unanswered, behind it, on its connection;
    /// unless nobody may drive that one any more: then over this lane's, and what finds nothing there may have come too
    /// early, so that the release stays owed.
    /// `asks` whether others wait.
    pub(crate) fn release_round(&self, lane: &Arc<Lane>, limit: Moment, asks: bool) -> (Round, Vec<Removal>) {
        let inner = self.inner();
        let mut round = Round::new(lane, &inner.footprint, inner.node_timeout, limit);
        let mut votes = vec![Removal::Gone; lane.members.len()];
        for (node, trace) in inner.footprint.all().into_iter().enumerate() {
            let release = self.request(Action::Release { asks });
            match trace {
                Trace::Nothing => continue,
                Trace::Unanswered(..) if planted(Fault::UnansweredLeft) => continue,
                Trace::Unanswered(..) if planted(Fault::ReleaseElsewhere) => round.ask(node, release, None),
                Trace::Unanswered(connection, _) if inner.is_driven(lane, node, &connection) => {
                    round.ask(node, release, Some(connection));
                }
                Trace::Unanswered(..) => round.ask_ahead(node, release),
                Trace::Created => round.ask(node, release, None),
            }
            votes[node] = Removal::Pending;
        }
        (round, votes)
    }

    /// Takes down a node's answer to a release.
    pub(crate) fn released(&self, node: usize, answer: &Result<Reply, Failure>, sent: Sent) -> Removal {
        let inner = self.inner();
        inner.tell_gate(answer);
        released(&inner.footprint, node, answer, sent)
    }

    /// Deletes what a lost attempt has left, on the caller's lane, and returns when all nodes that answer at all have
    /// answered, so that nothing of the attempt stays unwritten. Returns the nodes where there was something, which are
    /// free now. Cancel safe: what is left is owed.
    pub(crate) async fn settle(self, lane: &Arc<Lane>) -> Mask {
        let (mut round, mut votes) = self.release_round(lane, Moment::NEVER, false);
        loop {
            let suspects = lane.members.health.suspects();
            let waiting = |(node, vote): (usize, &Removal)| *vote == Removal::Pending && !suspects.has(node);
            if !votes.iter().enumerate().any(waiting) {
                break;
            }
            match round.next().await {
                Some(Event::Vote(node, answer)) => votes[node] = self.released(node, &answer, round.sent(node)),
                Some(Event::TimeUp) | None => break,
            }
        }
        // Only nodes that do not answer are left. The drop of the claim queues what is missing now, and the background
        // listens.
        drop(round);
        drop(self);
        // Nobody may drive this lane after the call: lets its connections write what was queued.
        tokio::task::yield_now().await;
        let deleted = votes.iter().enumerate().filter(|(_, vote)| **vote == Removal::Deleted);
        deleted.fold(Mask::NONE, |mask, (node, _)| mask.with(node))
    }

    /// Listens for the answers that a release round still misses, for as long as somebody drives the lane. What is
    /// unanswered after `node_timeout` is owed, whether the lane was driven or not.
    pub(crate) fn leave(mut self, round: Round) {
        let inner = self.inner();
        if round.is_idle() && inner.footprint.is_clear() {
            // Nothing is left for drop to do, so that it need not look which process it is in.
            self.0 = None;
            return;
        }
        let (process, footprint) = (Arc::clone(&inner.process), Arc::clone(&inner.footprint));
        let due = backoff::unheard(round.started().after(inner.node_timeout), inner.node_timeout);
        round.leave(footprint, |footprint, node, answer, sent| {
            released(footprint, node, answer, sent);
        });
        process.renewal.drop_at(self, due);
    }
}

/// Takes down a node's answer to a release. What stays marked in the footprint stays owed.
fn released(footprint: &Footprint, node: usize, answer: &Result<Reply, Failure>, sent: Sent) -> Removal {
    let vote = match answer {
        Ok(Reply::Deleted { .. }) => Removal::Deleted,
        // The create may come yet: whether the lock was there, and will be, is not known.
        Ok(Reply::Absent) if sent == Sent::Ahead => return Removal::Failed,
        // The first one did it, and where the lock is another's, it was taken after that.
        Ok(Reply::Absent | Reply::Foreign(_)) if sent == Sent::Again => Removal::Deleted,
        Ok(Reply::Absent) => Removal::Gone,
        Ok(Reply::Foreign(_)) => Removal::Taken,
        _ => return Removal::Failed,
    };
    // Behind a create only on the connection of the first time.
    let may_come_yet = match sent {
        Sent::Once => false,
        Sent::Again => matches!(footprint.all()[node], Trace::Unanswered(..)),
        Sent::Ahead => true,
    };
    if !may_come_yet || matches!(answer, Ok(Reply::Deleted { .. })) {
        footprint.clear(node);
    }
    vote
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(inner) = self.0.take() else { return };
        if inner.process.is_foreign() {
            // The parent still holds the lock, and its sockets must not be touched.
            std::mem::forget(inner);
            return;
        }
        let debts: Vec<Debt> =
            inner.footprint.all().into_iter().enumerate().filter_map(|(node, trace)| inner.debt(node, trace)).collect();
        if !debts.is_empty() {
            let process = Arc::clone(&inner.process);
            let owed: Vec<_> = debts.into_iter().map(|debt| (debt, Duty::new(&process))).collect();
            if planted(Fault::CleanUpWithCaller)
                && let Ok(runtime) = Handle::try_current()
            {
                spawn(&runtime, async move { inner.pay(owed).await });
                return;
            }
            process.background.spawn(async move { inner.pay(owed).await });
        }
    }
}

/// A release on its way.
type Releasing = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

/// One node's release that nobody has seen answered.
struct Debt {
    node: usize,
    /// The release queued behind an unanswered create, on the same connection.
    behind: Option<Releasing>,
}

impl Inner {
    /// Whether somebody drives `connection` to `node` during a call on `lane`: that call, or a runtime that nobody
    /// leaves between two calls.
    fn is_driven(&self, lane: &Lane, node: usize, connection: &Connection) -> bool {
        lane.is_over(node, connection)
            || self.set.lane_over(node, connection).is_some_and(|other| !self.process.pool.has_made(other.runtime_id()))
    }

    /// The ttl that the keys were given last.
    fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl.load(Ordering::Relaxed))
    }

    fn release(&self) -> Request {
        Request { keys: Arc::clone(&self.keys), token: self.token, action: Action::Release { asks: true } }
    }

    /// Tells those of this process who wait, and leaves the lock to others if there are any.
    fn tell_gate(&self, answer: &Result<Reply, Failure>) {
        if let Ok(Reply::Deleted { waiting }) = answer {
            let unit = || self.process.random.unit();
            self.set.gates.released(&self.keys.lock, *waiting, self.process.clock.now(), unit);
        }
    }

    fn debt(&self, node: usize, trace: Trace) -> Option<Debt> {
        match trace {
            Trace::Nothing => None,
            Trace::Unanswered(..) if planted(Fault::UnansweredLeft) => None,
            Trace::Unanswered(..) if planted(Fault::ReleaseElsewhere) => Some(Debt { node, behind: None }),
            Trace::Created => Some(Debt { node, behind: None }),
            Trace::Unanswered(connection, _) => Some(Debt { node, behind: Some(queue(connection, self.release())) }),
        }
    }

    /// Pays all debts at once.
    async fn pay(self: Box<Self>, debts: Vec<(Debt, Duty)>) {
        let lane = self.set.lane(&Handle::current());
        let until = lane.clock.now().after(self.ttl());
        let mut payments: Vec<_> =
            debts.into_iter().map(|(debt, duty)| Some(Box::pin(self.pay_one(&lane, debt, duty, until)))).collect();
        poll_fn(|cx| {
            for payment in &mut payments {
                if payment.as_mut().is_some_and(|payment| payment.as_mut().poll(cx).is_ready()) {
                    *payment = None;
                }
            }
            if payments.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    async fn pay_one(&self, lane: &Arc<Lane>, debt: Debt, _duty: Duty, until: Moment) {
        let node = debt.node;
        if !lane.members.health.owe(node) {
            tracing::warn!(node = %lane.members.nodes[node].address, "too many releases are owed to the node; a key is left to its ttl");
            return;
        }
        let _owing = Owing { lane, node };
        let unanswered = debt.behind.is_some();
        if let Some(behind) = debt.behind
            && let Some(answer @ Ok(_)) = within(lane, self.node_timeout, behind).await
        {
            self.tell_gate(&answer);
            // Executed right behind the create, whatever it found: nothing of the token is left, or will be.
            lane.heard(node);
            return;
        }
        for attempt in 0.. {
            let ask = async {
                let connection = lane.ready(node).await?;
                let _watched = lane.watch(node);
                let answer = connection.call_known(&self.release()).await;
                if let Err(failure) = &answer
                    && failure.breaks_connection()
                {
                    lane.broken(node, &connection);
                }
                answer
            };
            let answer = within(lane, self.node_timeout, ask).await;
            if let Some(answer) = &answer {
                self.tell_gate(answer);
            }
            match answer {
                Some(Ok(Reply::Deleted { .. })) => return lane.heard(node),
                Some(Ok(_)) => {
                    lane.heard(node);
                    // Absent: final, unless a create may still be on its way over another connection.
                    if !unanswered {
                        return;
                    }
                }
                Some(Err(_)) => {}
                None => lane.missed(node),
            }
            let again = lane.clock.now().after(backoff::owed(attempt, self.ttl()));
            if again >= until {
                return;
            }
            lane.clock.sleep_until(again).await;
        }
    }
}

/// A place among a node's owed releases.
struct Owing<'a> {
    lane: &'a Arc<Lane>,
    node: usize,
}

impl Drop for Owing<'_> {
    fn drop(&mut self) {
        self.lane.members.health.settled(self.node);
    }
}

/// Queues `request` on `connection` now, and returns the future of its answer.
fn queue(connection: Connection, request: Request) -> Releasing {
    let mut asking: Releasing = Box::pin(async move { connection.call_known(&request).await });
    match asking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => asking,
        Poll::Ready(answer) => Box::pin(std::future::ready(answer)),
    }
}

/// Awaits `future` for at most `limit`.
async fn within<T>(lane: &Lane, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut timer = pin!(lane.clock.sleep(limit));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
    })
    .await
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
