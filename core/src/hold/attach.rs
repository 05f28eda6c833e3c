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
//! - dropped while asking, or between tries: the background keys back, and this process's next call waits for that;
//! - dropped while keying back: the background does it again, which changes nothing where it was done;
//! - a re-key arrives after its key-back, because its connection has broken: that node's key expires after its ttl, and until
//!   then counts for nobody;
//! - the process ends: keys with a fresh token expire, as those of a holder that crashed.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::error::{LostReason, NodeAnswer};
use crate::hold::claim::Claim;
use crate::hold::extend;
use crate::hold::lease::Ownership;
use crate::hold::outcome::Won;
use crate::net::ballots::KeyBallots;
use crate::net::connections::Connections;
use crate::net::footprint::{Footprint, Trace};
use crate::net::round::{Event, Round};
use crate::node::Answering;
use crate::process::context::LockContext;
use crate::protocol::detached::Detached;
use crate::protocol::quorum::{self, KeyVerdict, KeyVote, NodeMask};
use crate::protocol::request::{Action, Request};
use crate::protocol::token::Token;
use crate::sys::clock::Moment;

/// One fresh token's part in an attachment. Dropping it keys back what it has re-keyed.
#[derive(Debug)]
pub(crate) struct Attachment {
    context: LockContext,
    detached: Arc<Detached>,
    /// For how long the nodes keep it from the next try on, and the holder may rely on it until the first renewal: what the
    /// text has left, if that is longer than the ttl of renewals. If the clocks of two machines differ, it is another time,
    /// but the nodes and the holder have the same.
    ttl: Duration,
    /// `None` once the keys are the holder's, or were keyed back.
    claim: Option<Claim>,
}

/// The keys to give the text's token again.
struct KeyBack {
    context: LockContext,
    /// What the re-keys have left.
    traces: Vec<Trace>,
    request: Request,
    /// The same request behind each re-key without an answer, on its connection: it may be executed later than on others.
    behind: Vec<Answering>,
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
            claim.set_token(detached.token);
        }
        Self { context: context.clone(), detached: Arc::clone(detached), ttl, claim: Some(claim) }
    }

    /// Returns the right to the keys, which are not keyed back then.
    pub(crate) fn into_claim(mut self) -> Option<Claim> {
        self.claim.take()
    }

    /// Returns the re-key of a key of the `former` token.
    fn rekey(&self, former: Token) -> Action {
        let fence_ttl = self.context.spec.settings.fence_ttl.max(2 * self.ttl);
        Action::Rekey { former, ttl: self.ttl, fence: self.detached.level, fence_ttl }
    }

    /// Asks all nodes to re-key.
    pub(crate) async fn ask(&mut self, connections: &Arc<Connections>, connect_by: Moment, limit: Moment) -> Try {
        let nodes = connections.members.len();
        let settings = &self.context.spec.settings;
        let claim = self.claim.as_ref().expect("taken only when it is over");
        let request = claim.request(self.rekey(self.detached.token));
        let round = Round::new(connections, claim.footprint(), settings.node_timeout, limit);
        let mut round = round.urgent(connect_by).until(limit);
        let start = round.started();
        let mut ballots = KeyBallots::new(vec![KeyVote::Pending; nodes]);
        ballots.ask(&mut round, &request);
        let verdict = ballots.decide(&mut round, |_, answer, _| extend::vote(answer)).await;
        let (now, wall) = (connections.clock.now(), connections.clock.wall_micros());
        let acquired = now.before(Duration::from_micros(wall.saturating_sub(self.detached.acquired)));
        let hold_until = settings.max_hold.map(|max_hold| acquired.after(max_hold));
        let valid_until = quorum::valid_until(start, self.ttl, settings.margin, hold_until);
        match verdict {
            KeyVerdict::Carried if now < valid_until => {}
            KeyVerdict::Carried if hold_until.is_some_and(|hold_until| hold_until <= now) => {
                return Try::Lost(LostReason::MaxHold, Vec::new());
            }
            KeyVerdict::Lost(reason) => {
                let is_expired = reason == LostReason::Deleted && wall >= self.detached.end;
                let reason = if is_expired { LostReason::Expired } else { reason };
                return Try::Lost(reason, ballots.answers(&connections.members, extend::describe));
            }
            KeyVerdict::Carried | KeyVerdict::Open | KeyVerdict::Unknown => return Try::Unknown(ballots),
        }
        let claim = self.claim.take().expect("it was there");
        let unsent = round.drain_in_background((), |(), _, _, _| {});
        let failed = (0..nodes).filter(|node| ballots.votes()[*node] == KeyVote::Failed);
        let missed = failed.filter(|node| claim.footprint().has_nothing(*node)).fold(unsent, NodeMask::with);
        Try::Won(Box::new(Won {
            fence: self.detached.fence,
            level: self.detached.level,
            acquired,
            asked: start,
            kept: self.ttl,
            valid_until,
            unit: claim.unit(),
            missed,
            slot: self.detached.slot(),
            former: (!self.detached.keeps_token).then_some(self.detached.token),
            right: Ownership::Fenced(claim),
        }))
    }

    fn to_key_back(&self, claim: &Claim) -> KeyBack {
        let request = Request { token: self.detached.token, ..claim.request(self.rekey(claim.token())) };
        let traces = claim.footprint().all();
        let behind = traces.iter().filter_map(|trace| {
            let Trace::Unanswered { connection, .. } = trace else { return None };
            Some(connection.clone().queue(request.clone()))
        });
        let behind = behind.collect();
        KeyBack { context: self.context.clone(), traces, request, behind }
    }

    /// Gives what was re-keyed the text's token again, where it can be.
    pub(crate) async fn key_back(&mut self, connections: &Arc<Connections>) {
        let Some(claim) = &self.claim else { return };
        self.to_key_back(claim).run(connections).await;
        if let Some(claim) = self.claim.take() {
            claim.hand_over();
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        let process = &self.context.process;
        if process.is_foreign() || claim.footprint().is_clear() {
            return;
        }
        let key_back = self.to_key_back(&claim);
        claim.hand_over();
        // The next call of this process with the same text waits for this.
        let leaving = self.context.listed.waiters.leave(&key_back.request.keys);
        process.background.spawn(async move {
            let connections = key_back.context.set().connections(&Handle::current());
            key_back.run(&connections).await;
            drop(leaving);
        });
    }
}

impl KeyBack {
    /// Asks the nodes that may have re-keyed.
    async fn run(self, connections: &Arc<Connections>) {
        let settings = &self.context.spec.settings;
        let footprint = Arc::new(Footprint::new(connections.members.len()));
        let mut round = Round::new(connections, &footprint, settings.node_timeout, Moment::NEVER).strict();
        for (node, trace) in self.traces.iter().enumerate() {
            if !matches!(trace, Trace::Nothing) {
                round.ask(node, self.request.clone(), None);
            }
        }
        while let Some(Event::Vote(..)) = round.next().await {}
        drop(self.behind);
    }
}
