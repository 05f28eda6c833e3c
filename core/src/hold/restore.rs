//! The restoring of a held lock on nodes that miss it: they have forgotten it, or the acquire did not reach them.
//!
//! A node gets the lock back in two cases:
//!
//! - a renewal reached its quorum, and the node answered that it does not have the key. If the lock was attached, the node
//!   may also answer that it has another's key;
//! - the background has a new connection to it, and no renewal would find out ([`Timed::may_lack`]).
//!
//! So a lock won without a node has its full margin soon after that node can be reached, once for each connection,
//! whether the lock is renewed or not. A lock that all nodes granted, or are about to, costs nothing here.
//!
//! A node that the attach did not reach has the key of the former holder, and gives it the fresh token. If it lacks one of
//! several names' keys, it deletes the others and gets all anew.
//!
//! A node that remembers a larger fence does not take the lock back, and says which fence. The next extension has the
//! others remember it, and then the node takes the lock back (see `extend`).
//!
//! States of one restoring: *spread* (many locks are not sent at once), *quarantined* (waits for the quarantine of a
//! node that may have forgotten another's lock), *connecting*, *asked*. There is one at a time for a lock and a node.
//! What may interrupt it:
//!
//! - the lock is released or lost: the waiting ends, and the release finds what was sent in the footprint;
//! - the connection breaks: the next one begins anew;
//! - an earlier create is unanswered there: the lock is not put back before one ttl has passed, because a release could
//!   not reach both.
//!
//! States of seeking a node: *connecting*, *pausing*. There is one search for a node of a set, however many locks miss
//! it. What may interrupt it:
//!
//! - no lock is held on the set any more: it ends before the next connect;
//! - the background ends.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::hold::lease::{Lease, RestoreStep};
use crate::net::connections::Connections;
use crate::net::round::Round;
use crate::node::Connection;
use crate::node::way::Eval;
use crate::process::context::LockContext;
use crate::process::schedule::Timed;
use crate::protocol::backoff;
use crate::protocol::quorum::KeyVote;
use crate::protocol::request::Reply;
use crate::sys::future::begun;
use crate::transport::failure::Failure;

/// Restores the lock on nodes that answered *absent* in a successful round, now or as stragglers.
pub(crate) fn put_back(lease: &Arc<Lease>, round: Round, votes: &[KeyVote]) {
    if votes.len() > 1 {
        for (node, vote) in votes.iter().enumerate() {
            if *vote == KeyVote::Absent || *vote == KeyVote::Foreign && lease.has_former() {
                restore(lease, node, Duration::ZERO);
            }
        }
    }
    // Not the lease itself: a task that is not driven would keep it, and the connections of a client that is gone.
    round.drain_in_background(Arc::downgrade(lease), |lease, node, answer, _| {
        let Some(lease) = lease.upgrade() else { return };
        let has_others = lease.context.set().members.len() > 1;
        match answer {
            Ok(Reply::Absent) if has_others => restore(&lease, node, Duration::ZERO),
            Ok(Reply::Foreign(_)) if has_others && lease.has_former() => restore(&lease, node, Duration::ZERO),
            Ok(Reply::Ahead(fence)) => lease.found_ahead(*fence),
            _ => {}
        }
    });
}

/// Restores `lease` on the nodes to which its acquire could not be sent.
pub(crate) fn make_up(lease: &Arc<Lease>) {
    let lease = Arc::clone(lease);
    let process = Arc::clone(&lease.context.process);
    process.background.spawn(async move {
        let connections = lease.context.set().connections(&Handle::current());
        for node in lease.missed.nodes() {
            if connections.current(node).is_none() {
                seek(&lease.context, node);
            } else if lease.may_lack(node) {
                restore(&lease, node, Duration::ZERO);
            }
        }
    });
}

/// Has the background connect to `node` as soon as it can be reached, while a lock is held on its set. The background's
/// connections report the new one.
pub(crate) fn seek(context: &LockContext, node: usize) {
    let (process, set) = (Arc::clone(&context.process), Arc::clone(&context.set()));
    let Some(search) = process.schedule.begin_search(&set.members, node) else { return };
    let run = Arc::clone(&process);
    process.background.spawn(async move {
        let _search = search;
        let connections = set.connections(&Handle::current());
        let mut attempt = 0;
        while run.schedule.holds_on(&set.members) && connections.get(node, false).await.is_err() {
            connections.clock.sleep(backoff::unavailable(attempt, run.random.unit())).await;
            attempt += 1;
        }
    });
}

/// Puts the lock back on `node`, in the background, `within` this time or after the node's quarantine. It counts from
/// the next round on.
pub(crate) fn restore(lease: &Arc<Lease>, node: usize, within: Duration) {
    let Some(restoring) = lease.begin_restoring(node) else { return };
    let (process, lease) = (Arc::clone(&lease.context.process), Arc::clone(lease));
    process.background.spawn(async move {
        let _restoring = restoring;
        let connections = lease.context.set().connections(&Handle::current());
        let mut pause = within.mul_f64(lease.context.process.random.unit());
        while pause.is_zero() || connections.clock.timeout(pause, pin!(lease.ended())).await.is_none() {
            match connections.members.health.why_not_counted(
                node,
                lease.context.spec.settings.restart_delay,
                connections.clock.now(),
            ) {
                None => return put_in_time(&lease, &connections, node).await,
                // It restarted a moment ago and may have forgotten another's lock.
                Some(Failure::Quarantined(left)) => pause = left,
                Some(_) => return,
            }
        }
    });
}

async fn put_in_time(lease: &Arc<Lease>, connections: &Arc<Connections>, node: usize) {
    // Connecting is outside the limit: it says nothing about the node's answers.
    let Ok(connection) = connections.get(node, false).await else { return };
    let limit = lease.context.spec.settings.node_timeout;
    let put = pin!(put(lease, connections, node, &connection));
    if connections.clock.timeout(limit, put).await.is_none() {
        connections.record_timeout(node);
    }
}

async fn put(lease: &Arc<Lease>, connections: &Arc<Connections>, node: usize, connection: &Connection) {
    let _watched = connections.track_request(node);
    let (mut by, mut step) = (Eval::Sha, if lease.has_former() { RestoreStep::Rekey } else { RestoreStep::Restore });
    loop {
        // Queued under the lease's mutex: a later release finds the footprint, and goes behind it.
        let queued = lease.restore(step, |request, footprint, ttl| {
            let create = footprint.restored(node, connection, connections.clock.now(), ttl)?;
            let (connection, footprint) = (connection.clone(), Arc::clone(footprint));
            Some(begun(Box::pin(async move {
                let answer = connection.call(&request, by).await;
                footprint.restore_answered(node, create, &answer);
                answer
            })))
        });
        let Some(queued) = queued.flatten() else { return };
        match queued.await {
            Err(Failure::NoScript) if by == Eval::Sha => by = Eval::Text,
            Err(failure) => {
                connections.report_refusal(node, &failure);
                if failure.breaks_connection() {
                    connections.discard_if(node, connection);
                }
                return;
            }
            Ok(answer) => {
                connections.record_reply(node);
                step = match (step, answer) {
                    // It may still have the key of another name, which would keep the lock off.
                    (RestoreStep::Rekey, Reply::Absent) => RestoreStep::ReleaseFormer,
                    (RestoreStep::ReleaseFormer, _) => RestoreStep::Restore,
                    (_, Reply::Ahead(fence)) => return lease.found_ahead(fence),
                    _ => return,
                };
            }
        }
    }
}
