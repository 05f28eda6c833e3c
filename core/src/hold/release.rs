//! The release of a held lock, as one round.
//!
//! States: *begun* (not held any more), *opening*, *asking*, *over*. What may interrupt it:
//!
//! - it is dropped anywhere: the claim's drop lets the background finish;
//! - the runtime ends: the same;
//! - a cluster gives the slot to another server before a quorum answers: that is asked again there.
//!
//! In every case pending releases are sent until they are answered or one ttl has passed.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, NodeAnswer};
use crate::hold::claim::Claim;
use crate::hold::lease::Lease;
use crate::net::ballots::KeyBallots;
use crate::net::connections::Connections;
use crate::net::round::{Delivery, Round};
use crate::process::context::{Following, LockContext};
use crate::protocol::quorum::{KeyVerdict, KeyVote, NodeMask};
use crate::protocol::request::Reply;
use crate::sys::clock::Moment;

/// Releases the keys of `claim` over `connections`.
///
/// # Errors
///
/// `lost` if a quorum did not have the lock any more; `unavailable` if the outcome is not known in time (the background
/// goes on).
pub(crate) async fn release(lease: &Lease, claim: Claim, connections: &Arc<Connections>) -> Result<(), Error> {
    let end = connections.connect_limit().after(lease.context.spec.settings.release_timeout());
    let mut way = Following::new(connections, end);
    let (mut round, mut ballots, mut verdict) = ask(lease, &claim, (connections, None), NodeMask::NONE).await;
    let mut retried = NodeMask::NONE;
    while matches!(verdict, KeyVerdict::Open | KeyVerdict::Unknown) && way.moves_on(&lease.context) {
        retried = retried.union(ballots.unheard());
        (round, ballots, verdict) = ask(lease, &claim, (&way.connections, Some(end)), retried).await;
    }
    let answers = || ballots.answers(&way.connections.members, describe);
    match verdict {
        KeyVerdict::Open | KeyVerdict::Unknown => {
            // The caller may not drive its connections again. Dropping the claim lets the background go on.
            drop(round);
            Err(unavailable(&lease.context, answers()))
        }
        KeyVerdict::Lost(reason) => {
            claim.finish_in_background(round);
            Err(lease.lost_error(lease.loss(reason, answers())))
        }
        KeyVerdict::Carried => {
            claim.finish_in_background(round);
            Ok(())
        }
    }
}

/// Asks the nodes of `connections` to delete the keys of `claim`, until `end` if it has begun again. Those that were
/// `retried` may have done so before.
async fn ask(
    lease: &Lease,
    claim: &Claim,
    (connections, end): (&Arc<Connections>, Option<Moment>),
    retried: NodeMask,
) -> (Round, KeyBallots, KeyVerdict) {
    let connect_by = connections.connect_limit();
    let connect_by = end.map_or(connect_by, |end| connect_by.min(end));
    connections.connect_quorum(connect_by).await;
    let settings = &lease.context.spec.settings;
    let held = Some((connect_by, &settings.label));
    let (round, votes) = claim.release_round(connections, settings.release_timeout(), held);
    let mut round = if let Some(end) = end { round.until(end) } else { round };
    let mut ballots = KeyBallots::new(votes);
    let as_sent = |node, sent| match sent {
        Delivery::InOrder if retried.contains(node) => Delivery::Retried,
        sent => sent,
    };
    let mut judge = |node, answer: &_, sent| claim.released(node, answer, as_sent(node, sent));
    let verdict = ballots.decide(&mut round, &mut judge).await;
    (round, ballots, verdict)
}

fn unavailable(context: &LockContext, nodes: Vec<NodeAnswer>) -> Error {
    let message = "no quorum confirmed the release; it is retried in the background, and the lock expires after its ttl \
                   at the latest";
    Error::new(ErrorKind::Unavailable, message).with_name(context.spec.name.bytes()).with_nodes(nodes)
}

/// Describes one node's vote for people.
fn describe(vote: KeyVote, _: Option<&Reply>, sent: Delivery) -> String {
    let text = match vote {
        KeyVote::Ours => "released",
        KeyVote::Absent => "did not have it",
        // The first release may have freed it.
        KeyVote::Foreign if sent == Delivery::Retried => "held by another when it was asked again",
        KeyVote::Foreign | KeyVote::Ahead => "held by another",
        KeyVote::Pending | KeyVote::Failed => "key absent, but an unanswered acquire may still arrive",
    };
    text.to_owned()
}
