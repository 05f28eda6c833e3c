//! Clean-up: whatever a token may have created is deleted, whoever gave it up and however.
//!
//! A [`Claim`] is one token's right to its keys. It is made before the first create is sent and dropped when nothing of
//! the token is wanted any more: after a lost attempt, a cancelled call, a release, a loss. Dropping it never blocks:
//!
//! - where a create is unanswered, the release is queued at once on that same connection, right behind it;
//! - everything else, and every release that was not answered, is *owed* (`pending_releases`): the background sends it on a connection
//!   of its own, in its turn, until a reply says what came of it or one ttl has passed.
//!
//! What may interrupt it: the connection's runtime ends or is not driven (no answer within `node_timeout`, so it is
//! owed); the process forks (the child drops nothing, the parent still holds); the background cannot start (the keys
//! run out by themselves after one ttl).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fault::{Fault, planted};
use crate::net::connections::Connections;
use crate::net::footprint::{Footprint, Trace};
use crate::net::node::{Connection, Failure};
use crate::net::round::{Delivery, Event, Round};
use crate::process::Process;
use crate::process::nodes::NodeSet;
use crate::process::pending_releases::{self, Account};
use crate::protocol::backoff;
use crate::protocol::quorum::{KeyVote, NodeMask};
use crate::protocol::request::{Action, Keys, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::clock::Moment;

/// One token's right to the keys it may have created.
#[derive(Debug)]
pub(crate) struct Claim(Box<Slot>);

/// `None` once nothing is left for drop to do.
#[derive(Debug)]
struct Slot(Option<Inner>);

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
        Self(Box::new(Slot(Some(inner))))
    }

    fn inner(&self) -> &Inner {
        self.0.0.as_ref().expect("taken only by drop")
    }

    pub(crate) fn footprint(&self) -> &Arc<Footprint> {
        &self.inner().footprint
    }

    /// A number in [0, 1) that the token has drawn along: spares the hot path a second system call.
    pub(crate) fn unit(&self) -> f64 {
        self.inner().unit
    }

    /// Keys created from now on live for `ttl`.
    pub(crate) fn raise_ttl(&self, ttl: Duration) {
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
    /// Each node has `time` to answer. With `asks` it is the release of a lock that was held: asks whether others wait, and
    /// every vote counts.
    pub(crate) fn release_round(
        &self,
        connections: &Arc<Connections>,
        time: Duration,
        asks: bool,
    ) -> (Round, Vec<KeyVote>) {
        let inner = self.inner();
        let mut round = Round::new(connections, &inner.footprint, time, Moment::NEVER);
        if asks {
            round = round.urgent();
        }
        let mut votes = vec![KeyVote::Absent; connections.members.len()];
        for (node, trace) in inner.footprint.all().into_iter().enumerate() {
            let release = self.request(Action::Release { asks });
            match Route::from(trace) {
                Route::Nowhere => continue,
                Route::Anywhere => round.ask(node, release, None),
                Route::Behind(create) if inner.is_driven(connections, node, &create) => {
                    round.ask(node, release, Some(create));
                }
                Route::Behind(_) => round.ask_out_of_order(node, release),
            }
            votes[node] = KeyVote::Pending;
        }
        (round, votes)
    }

    /// Takes down a node's answer to a release.
    pub(crate) fn released(&self, node: usize, answer: &Result<Reply, Failure>, sent: Delivery) -> KeyVote {
        let inner = self.inner();
        pending_releases::tell_waiters(&inner.process, &inner.set.waiters, &inner.keys, answer);
        released(&inner.footprint, node, answer, sent)
    }

    /// Deletes what a lost attempt has left, on the caller's lane, and returns when all nodes that answer at all have
    /// answered, so that nothing of the attempt stays unwritten. Returns the nodes where there was something, which are
    /// free now. Cancel safe: what is left is owed.
    pub(crate) async fn release_all_now(self, connections: &Arc<Connections>) -> NodeMask {
        let (mut round, mut votes) = self.release_round(connections, self.inner().node_timeout, false);
        loop {
            let unresponsive = connections.members.health.unresponsive();
            let waiting = |(node, vote): (usize, &KeyVote)| *vote == KeyVote::Pending && !unresponsive.contains(node);
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
        let deleted = votes.iter().enumerate().filter(|(_, vote)| **vote == KeyVote::Ours);
        deleted.fold(NodeMask::NONE, |mask, (node, _)| mask.with(node))
    }

    /// Listens for the answers that a release round still misses, for as long as somebody drives the lane. What is
    /// unanswered when the nodes' time is over is owed, whether the lane was driven or not.
    pub(crate) fn finish_in_background(mut self, round: Round) {
        let inner = self.inner();
        if round.is_idle() && inner.footprint.is_clear() {
            // Nothing is left for drop to do, so that it need not look which process it is in.
            self.0.0 = None;
            return;
        }
        let (process, footprint) = (Arc::clone(&inner.process), Arc::clone(&inner.footprint));
        let time = round.node_timeout();
        let due = backoff::unheard(round.started().after(time), time);
        round.drain_in_background(footprint, |footprint, node, answer, sent| {
            released(footprint, node, answer, sent);
        });
        process.schedule.drop_at(self.0, due);
    }
}

/// How the release of a trace goes out.
enum Route {
    /// Not at all: there is nothing to release.
    Nowhere,
    /// Over any connection.
    Anywhere,
    /// Over the connection of an unanswered create, behind it.
    Behind(Connection),
}

impl From<Trace> for Route {
    fn from(trace: Trace) -> Self {
        match trace {
            Trace::Nothing => Self::Nowhere,
            Trace::Unanswered(..) if planted(Fault::UnansweredLeft) => Self::Nowhere,
            Trace::Unanswered(..) if planted(Fault::ReleaseElsewhere) => Self::Anywhere,
            Trace::Unanswered(connection, _) => Self::Behind(connection),
            Trace::Created => Self::Anywhere,
        }
    }
}

/// Takes down a node's answer to a release. What stays marked in the footprint stays owed.
fn released(footprint: &Footprint, node: usize, answer: &Result<Reply, Failure>, sent: Delivery) -> KeyVote {
    let vote = match answer {
        Ok(Reply::Deleted { .. }) => KeyVote::Ours,
        // The create may come yet: whether the lock was there, and will be, is not known.
        Ok(Reply::Absent) if sent == Delivery::OutOfOrder => return KeyVote::Failed,
        // The first one did it.
        Ok(Reply::Absent) if sent == Delivery::Retried => KeyVote::Ours,
        Ok(Reply::Absent) => KeyVote::Absent,
        // Sent again too: either the first release was executed and the lock taken after it, or the first one never
        // arrived (an idle connection that had ended) and the lock was taken before. The other's fence is larger in both
        // cases, and tells nothing of when. A loss that is told although there was none makes a caller look twice; one
        // that is not told lets it rely on work that another may have done at the same time.
        Ok(Reply::Foreign(_)) => KeyVote::Foreign,
        _ => return KeyVote::Failed,
    };
    // Behind a create only on the connection of the first time.
    let may_come_yet = match sent {
        Delivery::InOrder => false,
        Delivery::Retried => matches!(footprint.all()[node], Trace::Unanswered(..)),
        Delivery::OutOfOrder => true,
    };
    if !may_come_yet || matches!(answer, Ok(Reply::Deleted { .. })) {
        footprint.clear(node);
    }
    vote
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(inner) = self.0.take() else { return };
        if inner.process.is_foreign() {
            // The parent still holds the lock, and its sockets must not be touched.
            std::mem::forget(inner);
            return;
        }
        let traces = inner.footprint.all();
        if traces.iter().all(|trace| matches!(trace, Trace::Nothing)) {
            return;
        }
        let ttl = inner.ttl();
        let Inner { process, set, keys, token, node_timeout, .. } = inner;
        let account = Account { environment: process.environment(), set, keys, token, node_timeout, ttl };
        let queued = |(node, trace)| match Route::from(trace) {
            Route::Nowhere => None,
            Route::Anywhere => Some((node, None)),
            Route::Behind(create) => Some((node, Some(account.queue(create)))),
        };
        let releases = traces.into_iter().enumerate().filter_map(queued).collect();
        account.owe(releases);
    }
}

impl Inner {
    /// Whether somebody drives `connection` to `node` during a call on `connections`: that call, or a runtime that nobody
    /// leaves between two calls.
    fn is_driven(&self, connections: &Connections, node: usize, connection: &Connection) -> bool {
        connections.is_over(node, connection)
            || self
                .set
                .connections_over(node, connection)
                .is_some_and(|other| !self.process.pool.has_made(other.runtime_id()))
    }

    /// The ttl that the keys were given last.
    fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl.load(Ordering::Relaxed))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
