//! One fresh token's attachment of a detached lock: it re-keys, and keys back what it cannot have.
//!
//! Each try asks all nodes to give the lock's key the fresh token in place of the text's. It has won when a quorum of them
//! says that it has the fresh one, and was granted no more than the lock counts as. No other attachment can have won then,
//! nor will: a node says yes to one of them at a time, and this one's keys stay. A late extension of the former holder finds
//! another's key.
//!
//! A token that was keyed back is never used again, because a late answer would count keys that others have by then.
//!
//! States: *asking* (the re-key round) → *won*, *lost* (a quorum shows other owners, or nothing) or *unknown*; after that
//! *asking* again, or *keying back*. What may interrupt each await:
//!
//! - dropped at any time: the claim keys back as it would release, until each node has answered, and this process's next
//!   call waits for that;
//! - the process ends: keys with a fresh token expire, as those of a holder that crashed.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{LostReason, NodeAnswer};
use crate::hold::claim::Claim;
use crate::hold::extend;
use crate::hold::lease::Ownership;
use crate::hold::outcome::Won;
use crate::net::ballots::KeyBallots;
use crate::net::connections::Connections;
use crate::net::round::Round;
use crate::process::context::LockContext;
use crate::protocol::detached::Detached;
use crate::protocol::quorum::{self, KeyVerdict, KeyVote, NodeMask};
use crate::protocol::request::{Action, Request};
use crate::sys::clock::Moment;

/// One fresh token's part in an attachment. Dropping it keys back what it has re-keyed, as a release that is dropped.
#[derive(Debug)]
pub(crate) struct Attachment {
    context: LockContext,
    detached: Arc<Detached>,
    /// For how long the nodes keep it from the next try on, and the holder may rely on it until the first renewal: what the
    /// text has left, if that is longer than the ttl of renewals. If the clocks of two machines differ, it is another time,
    /// but the nodes and the holder have the same.
    ttl: Duration,
    /// The re-key.
    request: Request,
    /// `None` once the keys are the holder's, or were keyed back.
    claim: Option<Claim>,
}

/// The end of one try.
pub(crate) enum Try {
    Won(Box<Won<Ownership>>),
    Lost(LostReason, Vec<NodeAnswer>),
    Unknown(KeyBallots),
}

impl Attachment {
    pub(crate) fn new(context: &LockContext, detached: &Arc<Detached>) -> Self {
        let LockContext { process, listed, spec, .. } = context;
        let keys = detached.slot().map_or_else(|| Arc::clone(&spec.keys), |slot| spec.names.slot_keys(slot));
        let ttl = spec.settings.ttl.max(detached.left(process.clock.wall_micros()));
        let mut claim =
            Claim::new(process, listed, keys, (spec.settings.key_ttl().max(ttl), spec.settings.node_timeout));
        if detached.keeps_token {
            claim.token = detached.token;
        }
        let fence_ttl = spec.settings.fence_ttl.max(2 * ttl);
        let rekey = |former| Action::Rekey { former, ttl, fence: detached.level, fence_ttl };
        let request = claim.request(rekey(detached.token));
        claim.key_back = Some(Request { token: detached.token, action: rekey(claim.token), ..request.clone() });
        Self { context: context.clone(), detached: Arc::clone(detached), ttl, request, claim: Some(claim) }
    }

    /// Takes the right to the keys, which are not keyed back then.
    pub(crate) fn take_claim(&mut self) -> Option<Claim> {
        let mut claim = self.claim.take()?;
        claim.key_back = None;
        Some(claim)
    }

    /// Asks all nodes to re-key.
    pub(crate) async fn ask(&mut self, connections: &Arc<Connections>, connect_by: Moment, limit: Moment) -> Try {
        let nodes = connections.members.len();
        let settings = &self.context.spec.settings;
        let claim = self.claim.as_ref().expect("taken only when it is over");
        let round = Round::new(connections, &claim.footprint, settings.node_timeout, limit);
        let mut round = round.urgent(connect_by).until(limit);
        let start = round.started;
        let mut ballots = KeyBallots::new(vec![KeyVote::Pending; nodes]);
        ballots.ask(&mut round, &self.request);
        let verdict = ballots.decide(&mut round, &mut |_, answer, _| extend::vote(answer)).await;
        let (now, wall) = (connections.clock.now(), connections.clock.wall_micros());
        let acquired = now.before(Duration::from_micros(wall.saturating_sub(self.detached.acquired)));
        let hold_until = settings.max_hold.map(|max_hold| acquired.after(max_hold));
        let valid_until = quorum::valid_until(start, self.ttl, settings.margin, hold_until);
        match verdict {
            KeyVerdict::Carried if now < valid_until => {}
            KeyVerdict::Carried if hold_until.is_some_and(|hold_until| hold_until <= now) => {
                return Try::Lost(LostReason::MaxHold, Vec::new());
            }
            // A node that was not keyed back yet shows the token of an attempt before this one.
            KeyVerdict::Lost(_) if self.context.listed.waiters.is_leaving(&self.request.keys) => {
                return Try::Unknown(ballots);
            }
            KeyVerdict::Lost(reason) => {
                let reason = reason.or_expired(wall >= self.detached.end);
                return Try::Lost(reason, ballots.answers(&connections.members, extend::describe));
            }
            KeyVerdict::Carried | KeyVerdict::Open | KeyVerdict::Unknown => return Try::Unknown(ballots),
        }
        let mut claim = self.claim.take().expect("it was there");
        let unsent = round.drain_in_background((), |(), _, _, _| {});
        let failed = (0..nodes).filter(|node| ballots.votes()[*node] == KeyVote::Failed);
        let missed = failed.filter(|node| claim.footprint.has_nothing(*node)).fold(unsent, NodeMask::with);
        // Else the keys are those of the text, which stay as they are however the hold ends.
        if !self.detached.keeps_token {
            let is_unheard = |node: &usize| matches!(ballots.votes()[*node], KeyVote::Failed | KeyVote::Pending);
            let unheard = (0..nodes).filter(is_unheard).fold(NodeMask::NONE, NodeMask::with);
            claim.key_back = None;
            claim.former = Some((self.detached.token, unheard));
        }
        Try::Won(Box::new(Won {
            fence: self.detached.fence,
            level: self.detached.level,
            acquired,
            asked: start,
            kept: self.ttl,
            valid_until,
            unit: claim.unit,
            missed,
            slot: self.detached.slot(),
            right: Ownership::Fenced(claim),
        }))
    }

    /// Gives what was re-keyed the text's token again, where it can be, until `end`. The background does the rest.
    pub(crate) async fn key_back(mut self, connections: &Arc<Connections>, end: Moment) {
        if let Some(claim) = self.claim.take() {
            claim.release_all_now(connections, end).await;
        }
    }
}
