//! Detaching a held lock: the end of a hold without a release. Whoever has the text may attach the lock, until it expires.
//!
//! States: *extending* (if a ttl was given) → *asking* (nodes that have not answered the acquire) → *ending* (the lease is not
//! held from here on, and nothing new is asked) → *settling* (waits for what is under way, for as long as nodes may take to
//! answer) → *detached*. What may interrupt each await:
//!
//! - dropped while extending or asking: the lock is held, perhaps for longer;
//! - dropped while settling, or before the text reached its user: the claim's drop releases, because nobody has the text;
//! - an extension of the lock that arrives later: it finds the key of another token, or lets the key live for longer, as the
//!   text allows;
//! - an acquire that arrives later makes a key that did not count, and that nobody would delete: a release goes behind it;
//! - an acquire or a restore that arrives later: a shared lock takes it in beside another owner, so that a second attachment
//!   could win with it. So a reader is not detached while a node has not answered one.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::{AnswerKind, Error, ErrorKind, NodeAnswer};
use crate::hold::claim::Claim;
use crate::hold::extend;
use crate::hold::lease::{Lease, Target};
use crate::net::connections::Via;
use crate::net::footprint::Trace;
use crate::net::member::Member;
use crate::net::round::Round;
use crate::process::context::LockContext;
use crate::protocol::quorum::NodeMask;
use crate::protocol::shape::Names;
use crate::sys::clock::Moment;
use crate::texts::opaque;

/// A lock that is detached, whose text has not reached its user yet. Dropping it releases the lock.
pub struct Detaching {
    claim: Claim,
    text: String,
}

// The text is a credential.
opaque!(Detaching);

impl Detaching {
    /// Returns the text, with which the lock is its user's.
    #[must_use]
    pub fn into_text(self) -> String {
        self.claim.hand_over();
        self.text
    }
}

/// Detaches the lock, after one extension to `ttl` if there is one.
/// Runs on the caller's runtime, or else in the background.
pub(crate) async fn detach(lease: Arc<Lease>, ttl: Option<Duration>) -> Result<Detaching, Error> {
    lease.context.spec.allows_detach()?;
    lease.remaining()?;
    let listed = Arc::clone(&lease.context.listed);
    listed.somewhere(detach_here(lease, ttl)).await?
}

async fn detach_here(lease: Arc<Lease>, ttl: Option<Duration>) -> Result<Detaching, Error> {
    let LockContext { process, spec, .. } = &lease.context;
    let (clock, limit) = (&process.clock, spec.settings.node_timeout);
    let is_shared = matches!(spec.names, Names::Shared(..));
    if let Some(ttl) = ttl {
        extend(Arc::clone(&lease), Target::Once(ttl)).await?;
    }
    let end = clock.now().after(limit);
    settle(&lease).await;
    let unanswered = lease.open_creates();
    if is_shared && !unanswered.is_empty() {
        return Err(refused(&lease, unanswered, "is held as before"));
    }
    let (claim, detached) = lease.begin_detach()?;
    // What arrives later does no harm, but for what makes a reader of the former token again.
    clock.timeout_at(end, pin!(lease.settled())).await;
    let unanswered = claim.footprint.unanswered();
    if is_shared && !unanswered.is_empty() {
        return Err(refused(&lease, unanswered, "was released"));
    }
    Ok(Detaching { claim, text: detached.to_text() })
}

/// Asks the nodes that have not answered an acquire for an extension, behind it: who answers that has executed both.
async fn settle(lease: &Arc<Lease>) {
    if lease.open_creates().is_empty() {
        return;
    }
    let Some((_, request, footprint)) = lease.extension(Target::InForce) else { return };
    let connections = lease.context.set().connections(&Handle::current());
    let mut round = Round::new(&connections, &footprint, lease.context.spec.settings.node_timeout, Moment::NEVER);
    for (node, trace) in footprint.all().into_iter().enumerate() {
        if let Trace::Unanswered { connection, .. } = trace {
            let via = connections.via_current(node, &connection).unwrap_or_else(|| Via::unwatched(connection));
            round.ask(node, request.clone(), Some(via));
        }
    }
    while round.next().await.is_some() {}
}

/// Returns the error of a reader of which the `unanswered` nodes may still execute an acquire.
fn refused(lease: &Lease, unanswered: NodeMask, outcome: &str) -> Error {
    let LockContext { spec, .. } = &lease.context;
    let answer = |(node, member): (usize, &Member)| {
        let (kind, answer) = if unanswered.contains(node) {
            (AnswerKind::Pending, "has not answered an acquire")
        } else {
            (AnswerKind::Done, "has answered")
        };
        NodeAnswer { node: member.address.to_string(), kind, answer: answer.to_owned() }
    };
    let nodes = lease.context.set().members.nodes.iter().enumerate().map(answer).collect();
    let message = format!("not detached: a node has not answered an acquire of this shared lock, which {outcome}");
    Error::new(ErrorKind::Unavailable, message).with_name(spec.name.bytes()).with_nodes(nodes)
}
