//! The release of a held lock, as one round.
//!
//! States: *begun* (not held any more), *opening*, *asking*, *over*. What may interrupt it: dropped anywhere, the
//! claim's drop lets the background finish; the runtime ending, the same. In every case what is owed is sent until it
//! is answered or one ttl has passed.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, NodeAnswer};
use crate::hold::claim::Claim;
use crate::hold::lease::Held;
use crate::hold::outcome::Loss;
use crate::net::connections::Lane;
use crate::net::node::Failure;
use crate::net::round::{Event, Sent};
use crate::process::context::Place;
use crate::protocol::quorum::{self, KeyVerdict, KeyVote, Mask};

/// Releases on `lane` what `claim` may have created.
///
/// # Errors
///
/// `lost` if a quorum did not have the lock any more; `unavailable` if neither that nor the opposite can be told in
/// time (the background goes on).
pub(crate) async fn release(held: &Held, claim: Claim, lane: &Arc<Lane>) -> Result<(), Error> {
    lane.open(lane.connect_limit()).await;
    let time = held.place.spec.settings.release_timeout();
    let (mut round, mut votes) = claim.release_round(lane, time, true);
    let mut failures = vec![None; votes.len()];
    let mut resent = Mask::NONE;
    let verdict = loop {
        match quorum::keys(&votes, lane.members.health.suspects()) {
            KeyVerdict::Open => {}
            verdict => break verdict,
        }
        match round.next().await {
            Some(Event::Vote(node, answer)) => {
                votes[node] = claim.released(node, &answer, round.sent(node));
                failures[node] = answer.err();
                if round.sent(node) == Sent::Again {
                    resent = resent.with(node);
                }
            }
            Some(Event::TimeUp) | None => {
                for (vote, failure) in votes.iter_mut().zip(&mut failures) {
                    if *vote == KeyVote::Pending {
                        *vote = KeyVote::Failed;
                        *failure = Some(Failure::Silent(time));
                    }
                }
            }
        }
    };
    if verdict == KeyVerdict::Unknown {
        // Nobody may drive this lane after the call. Dropping the claim lets the background go on.
        drop(round);
        return Err(unavailable(&held.place, answers(&held.place, &votes, &failures, resent)));
    }
    claim.leave(round);
    match verdict {
        KeyVerdict::Lost(reason) => {
            let nodes = answers(&held.place, &votes, &failures, resent);
            Err(held.lost_error(Loss { reason, nodes }))
        }
        _ => Ok(()),
    }
}

fn unavailable(place: &Place, nodes: Vec<NodeAnswer>) -> Error {
    let message = "no quorum confirmed the release; it is retried in the background, and the lock expires after its ttl \
                   at the latest";
    Error::new(ErrorKind::Unavailable, message).with_name(place.spec.name.bytes()).with_nodes(nodes)
}

/// What each node said, for people. Those in `resent` were asked twice.
fn answers(place: &Place, votes: &[KeyVote], failures: &[Option<Failure>], resent: Mask) -> Vec<NodeAnswer> {
    let answer = |(node, vote): (usize, &KeyVote)| NodeAnswer {
        node: place.set.members.nodes[node].address.to_string(),
        answer: match (vote, &failures[node]) {
            (_, Some(failure)) => failure.to_string(),
            (KeyVote::Ours, _) => "released".to_owned(),
            (KeyVote::Absent, _) => "did not have it".to_owned(),
            // The first release may have freed it.
            (KeyVote::Foreign, _) if resent.has(node) => "held by another when it was asked again".to_owned(),
            (KeyVote::Foreign, _) => "held by another".to_owned(),
            (KeyVote::Pending, _) => "no answer yet".to_owned(),
            (KeyVote::Failed, _) => "key absent, but an unanswered acquire may still arrive".to_owned(),
        },
    };
    votes.iter().enumerate().map(answer).collect()
}
