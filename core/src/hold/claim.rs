//! Clean-up: deletes every key that a token may have created, however the token was given up.
//!
//! A [`Claim`] is one token's right to its keys. It is made before the first create is sent. It is dropped when the
//! token is not needed any more: after a lost attempt, a cancelled call, a release or a loss. Dropping it never blocks:
//!
//! - where a create is unanswered, the release is queued at once on that same connection, right behind it;
//! - every other release, and every unanswered one, becomes *pending* (`pending_releases`). The background sends it on
//!   its own connection, in order, until a reply is final or one ttl has passed.
//!
//! Where the attach of a lock did not reach a node, or left it some of several names' keys, those of the former token are
//! deleted, too.
//!
//! The next call of this process for the name begins behind these releases, which may be on their way over another
//! connection ([`Leaving`](crate::process::waiters::Leaving)).
//!
//! What may interrupt it:
//!
//! - the connection's runtime ends or is not driven: without an answer within `node_timeout`, the release becomes
//!   pending;
//! - the process forks: the child drops nothing, the parent still holds the lock;
//! - the background cannot start: the keys expire after one ttl.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::net::connections::{Connections, Via};
use crate::net::footprint::{Footprint, Trace};
use crate::net::round::{Delivery, Round};
use crate::node::Connection;
use crate::process::Process;
use crate::process::nodes::NodeSet;
use crate::process::pending_releases::{self, Account};
use crate::protocol::backoff;
use crate::protocol::quorum::{KeyVote, NodeMask};
use crate::protocol::request::{Action, Keys, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::clock::{Moment, SharedMoment};
use crate::sys::future::give_way;
use crate::transport::failure::Failure;

/// One token's right to the keys it may have created.
#[derive(Debug)]
pub(crate) struct Claim(Box<Slot>);

/// Drop's work, `None` once it has none.
#[derive(Debug)]
struct Slot(Option<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    process: Arc<Process>,
    listed: Arc<NodeSet>,
    keys: Arc<Keys>,
    pub(super) token: Token,
    /// A number in [0, 1), drawn with the token to save the hot path a second system call.
    pub(crate) unit: f64,
    pub(crate) footprint: Arc<Footprint>,
    node_timeout: Duration,
    /// The longest ttl that the keys were given, in nanoseconds.
    ttl: AtomicU64,
    /// The end of the least time, before which a released lock is not free; the origin if it has none.
    kept_until: SharedMoment,
    /// Whether the next call of this process begins behind the releases of a drop: not if the nodes had their time.
    keeps_others_back: bool,
    /// What is sent in place of each release: it gives the keys back to whom they are from.
    pub(super) key_back: Option<Request>,
    /// The token in place of which this one was attached, and the nodes that may still have its keys. They are released,
    /// too, if this one's are not given back: a request of this token finds nothing behind that.
    pub(super) former: Option<(Token, NodeMask)>,
    /// Whether the lock has reached its user.
    is_in_use: bool,
}

impl Deref for Claim {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        self.0.0.as_ref().expect("taken only by drop")
    }
}

impl DerefMut for Claim {
    fn deref_mut(&mut self) -> &mut Inner {
        self.0.0.as_mut().expect("taken only by drop")
    }
}

impl Claim {
    pub(crate) fn new(
        process: &Arc<Process>,
        listed: &Arc<NodeSet>,
        keys: Arc<Keys>,
        (ttl, node_timeout): (Duration, Duration),
    ) -> Self {
        let (token, unit) = Token::fresh_with_unit(&process.random);
        let inner = Inner {
            process: Arc::clone(process),
            listed: Arc::clone(listed),
            keys,
            token,
            unit,
            footprint: Arc::new(Footprint::new(listed.members.len())),
            node_timeout,
            ttl: AtomicU64::new(nanos(ttl)),
            kept_until: SharedMoment::default(),
            keeps_others_back: true,
            key_back: None,
            former: None,
            is_in_use: false,
        };
        Self(Box::new(Slot(Some(inner))))
    }

    /// Records that the lock has reached its user: if it was attached, its keys are not given back any more.
    pub(super) fn begin_use(&mut self) {
        self.is_in_use = true;
        if self.former.is_some() {
            self.key_back = None;
        }
    }

    /// Gives up the right to the keys, which stay as they are, because somebody else has it. Keys that nodes may yet make are
    /// released: those of nodes that had none, and have not answered.
    pub(crate) fn hand_over(mut self) {
        if let Some((former, nodes)) = self.former {
            // Its request to attach may only be late. A release that overtook it would delete the key.
            let lacking = nodes.nodes().filter(|node| self.footprint.has_nothing(*node));
            self.former = Some((former, lacking.fold(NodeMask::NONE, NodeMask::with)));
        }
        self.footprint.keep_possible();
        // Releases what is left.
        drop(self);
    }

    /// Raises the recorded ttl to at least `ttl`.
    pub(crate) fn raise_ttl(&self, ttl: Duration) {
        self.ttl.fetch_max(nanos(ttl), Ordering::Relaxed);
    }

    /// Keeps the key until then, also after a release: nobody has the lock in that time. Not if it has not reached its user.
    pub(crate) fn keep_until(&self, moment: Moment) {
        if self.is_in_use {
            self.kept_until.set(moment);
        }
    }

    /// Makes the request that deletes the keys of the token in place of which this one was attached.
    pub(crate) fn release_of_former(&self) -> Option<Request> {
        let (token, _) = self.former?;
        Some(Request { token, ..self.request(Action::give_up(&self.keys, false, None)) })
    }

    /// Makes a request with this token.
    pub(crate) fn request(&self, action: Action) -> Request {
        Request { keys: Arc::clone(&self.keys), token: self.token, action }
    }

    /// Asks every node where this token may have left a key to delete it. Each node has `time` to answer.
    ///
    /// Behind an unanswered create, the request uses the create's connection. If that may not be driven any more, it
    /// uses `connections`: the request may then come too early, so the release of an absent key stays pending.
    ///
    /// The release of a held lock with this label has a `connect_by`: it asks whether others wait, and every vote counts,
    /// also that of a node whose connection is replaced until then.
    pub(crate) fn release_round(
        &self,
        connections: &Arc<Connections>,
        time: Duration,
        held: Option<(Moment, &Arc<str>)>,
    ) -> (Round, Vec<KeyVote>) {
        let round = Round::new(connections, &self.footprint, time, Moment::NEVER);
        // The promised end of a call leaves its clean-up this time, and not more for scripts that a node forgot.
        let mut round = match held {
            Some((connect_by, _)) => round.urgent(connect_by),
            None => round.strict(),
        };
        let mut votes = vec![KeyVote::Absent; connections.members.len()];
        let rest = self.kept_until().map(|until| until.since(connections.clock.now()));
        for (node, trace) in self.footprint.all().into_iter().enumerate() {
            if matches!(trace, Trace::Nothing) {
                continue;
            }
            let mut action = Action::give_up(&self.keys, held.is_some(), rest);
            if let (Some((_, label)), Action::Release { granted, .. }) = (held, &mut action) {
                *granted = trace.granted().map(|fence| (fence, Arc::clone(label)));
            }
            let release = self.key_back.clone().unwrap_or_else(|| self.request(action));
            match trace {
                Trace::Unanswered { connection, .. } => match self.driven(connections, node, connection) {
                    Some(via) => round.ask(node, release, Some(via)),
                    None => round.ask_out_of_order(node, release),
                },
                _ => round.ask(node, release, None),
            }
            votes[node] = KeyVote::Pending;
        }
        (round, votes)
    }

    /// Records a node's answer to a release.
    pub(crate) fn released(&self, node: usize, answer: &Result<Reply, Failure>, sent: Delivery) -> KeyVote {
        pending_releases::tell_waiters(&self.process, &self.listed.waiters, &self.keys, answer);
        released(&self.footprint, node, answer, sent)
    }

    /// Deletes the keys of a lost attempt over the caller's connections, or gives them back. Waits for all responsive nodes,
    /// so that no request of the attempt stays unwritten, until `end` at most. Returns the nodes that had a key until then.
    /// Cancel safe: missing releases become pending.
    pub(crate) async fn release_all_now(mut self, connections: &Arc<Connections>, end: Moment) -> NodeMask {
        let (round, mut votes) = self.release_round(connections, self.node_timeout, None);
        let mut round = round.until(end);
        // Where a key may have this token, or be given it by a late request.
        let is_open = |node: &usize| votes[*node] == KeyVote::Pending;
        let mut open = (0..votes.len()).filter(is_open).fold(NodeMask::NONE, NodeMask::with);
        loop {
            let unresponsive = connections.members.health.unresponsive();
            if !(0..votes.len()).any(|node| votes[node] == KeyVote::Pending && !unresponsive.contains(node)) {
                break;
            }
            let Some((node, answer)) = round.next().await else { break };
            votes[node] = self.released(node, &answer, round.sent(node));
            if answer.is_ok_and(|reply| reply != Reply::Already) {
                open = open.without(node);
            }
        }
        // Dropping the claim queues the missing releases now, and the background waits for the answers.
        drop(round);
        self.keeps_others_back = self.key_back.is_some() && !open.is_empty();
        drop(self);
        // The caller may not drive its connections again: lets them write what was queued.
        give_way().await;
        (0..votes.len()).filter(|node| votes[*node] == KeyVote::Ours).fold(NodeMask::NONE, NodeMask::with)
    }

    /// Receives the missing answers of a release round while the connections' runtime is driven. Releases without an
    /// answer when the nodes' time is over become pending, even if the runtime was not driven.
    pub(crate) fn finish_in_background(mut self, round: Round) {
        self.keeps_others_back = false;
        if round.is_idle() && self.footprint.is_clear() && self.former.is_none() {
            // Drop has no work left, so it need not check for a fork.
            self.0.0 = None;
            return;
        }
        let (process, footprint) = (Arc::clone(&self.process), Arc::clone(&self.footprint));
        let time = round.node_timeout;
        let due = backoff::unheard(round.started.after(time), time);
        round.drain_in_background(footprint, |footprint, node, answer, sent| {
            released(footprint, node, answer, sent);
        });
        process.schedule.drop_at(self.0, due);
    }
}

/// Records a node's answer to a release, which stays pending while the footprint marks the node.
fn released(footprint: &Footprint, node: usize, answer: &Result<Reply, Failure>, sent: Delivery) -> KeyVote {
    let vote = match answer {
        Ok(reply) if reply.has_given_up() => KeyVote::Ours,
        Ok(Reply::Absent | Reply::Already) => match sent {
            // The create may still arrive: whether the lock was there, or will be, is unknown.
            Delivery::OutOfOrder => return KeyVote::Failed,
            // The first release deleted it.
            Delivery::Retried => KeyVote::Ours,
            Delivery::InOrder => KeyVote::Absent,
        },
        // This counts for a retried release too. Either the first release was executed and the lock taken after it, or
        // it never arrived (an idle connection had ended) and the lock was taken before. The other owner's fence is
        // larger in both cases and does not show which. A false loss makes a caller check twice. An unreported loss
        // lets it rely on work that another owner may have done at the same time.
        Ok(Reply::Foreign(_)) => KeyVote::Foreign,
        _ => return KeyVote::Failed,
    };
    // Only the first connection executes it behind the create.
    let may_come_yet = match sent {
        Delivery::InOrder => false,
        Delivery::Retried => matches!(footprint.all()[node], Trace::Unanswered { .. }),
        Delivery::OutOfOrder => true,
    };
    if !may_come_yet {
        footprint.clear(node);
    } else if answer.as_ref().is_ok_and(Reply::has_given_up) {
        footprint.deleted(node);
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
        let is_nothing = |trace: &Trace| matches!(trace, Trace::Nothing);
        let former = inner.former.filter(|_| inner.key_back.is_none());
        let (former, missed) = former.unwrap_or((inner.token, NodeMask::NONE));
        let of_former: Vec<_> = missed.nodes().map(|node| (node, None)).collect();
        if of_former.is_empty() && traces.iter().all(is_nothing) {
            return;
        }
        let (ttl, kept_until) = (inner.ttl(), inner.kept_until());
        let leaving = inner.keeps_others_back.then(|| inner.listed.waiters.leave(&inner.keys));
        let Inner { process, listed, keys, token, node_timeout, key_back, .. } = inner;
        let set = listed.of_key(&keys.lock).into_owned();
        let account = Account {
            environment: Arc::clone(&process.environment),
            set,
            listed,
            keys,
            token,
            node_timeout,
            ttl,
            kept_until,
            key_back,
        };
        let queued = |(node, trace)| match trace {
            Trace::Nothing => None,
            Trace::Created { .. } => Some((node, None)),
            Trace::Unanswered { connection, over_key, .. } => Some((node, Some((account.queue(connection), over_key)))),
        };
        let releases = traces.into_iter().enumerate().filter_map(queued).collect();
        if !of_former.is_empty() {
            Account { token: former, ..account.clone() }.add_pending(of_former, None);
        }
        account.add_pending(releases, leaving);
    }
}

impl Inner {
    /// Returns the way over `connection` to `node` if it is driven during a call on `connections`: by that call, or by a
    /// runtime driven between calls too.
    fn driven(&self, connections: &Connections, node: usize, connection: Connection) -> Option<Via> {
        let is_driven = |other: &Arc<Connections>| !self.process.pool.has_made(other.runtime.id());
        connections.via_current(node, &connection).or_else(|| {
            let over = self.listed.of_key(&self.keys.lock).connections_over(node, &connection).filter(is_driven);
            over.map(|_| Via::unwatched(connection))
        })
    }

    fn kept_until(&self) -> Option<Moment> {
        Some(self.kept_until.get()).filter(|until| *until != Moment::default())
    }

    /// Returns the longest ttl that the keys were given.
    fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl.load(Ordering::Relaxed))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
