//! One fresh token's attachment of a detached lock: it re-keys, and keys back what it cannot have.
//!
//! Each try asks all nodes to give the lock's key a fresh token in place of the text's. It has won when a quorum of them
//! says that it has the fresh one, and was granted no more than the lock counts as. No other attachment can have won then,
//! nor will: a node says yes to one of them at a time, and this one's keys stay. A late extension of the former holder finds
//! another's key.
//!
//! A try without a quorum keys back, because others may attach the same text, and nobody wins while each keeps what it has.
//! Its token is never used again: a late answer would count keys that others have by then.
//!
//! States: *asking* (the re-key round) → *won*, *lost* (a quorum shows other owners, or nothing), or *unknown* and *keying
//! back*. What may interrupt each await:
//!
//! - dropped at any time, also when it has won and before the lock reaches its user: the claim keys back as it would
//!   release, and this process's next call waits while a late re-key could take a key;
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

/// One try. Dropping it keys back what it has re-keyed, as a release that is dropped.
#[derive(Debug)]
pub(crate) struct Attachment {
    context: LockContext,
    detached: Arc<Detached>,
    /// For how long the nodes keep it from now on, and the holder may rely on it until the first renewal: what the text has
    /// left, if that is longer than the ttl of renewals. If the clocks of two machines differ, it is another time, but the
    /// nodes and the holder have the same.
    ttl: Duration,
    /// The re-key.
    request: Request,
    claim: Claim,
}

/// The end of one try.
pub(crate) enum Try {
    Won(Box<(Ownership, Won)>),
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
        let rekey = |former, back| Action::Rekey { former, ttl, fence: detached.level, fence_ttl, back };
        let request = claim.request(rekey(detached.token, false));
        claim.key_back = Some(Request { token: detached.token, action: rekey(claim.token, true), ..request.clone() });
        Self { context: context.clone(), detached: Arc::clone(detached), ttl, request, claim }
    }

    /// Asks all nodes to re-key, until `limit`. Without a verdict it keys back until `end`, and the background does the rest.
    pub(crate) async fn ask(
        mut self,
        connections: &Arc<Connections>,
        connect_by: Moment,
        (limit, end): (Moment, Moment),
    ) -> Try {
        let nodes = connections.members.len();
        let settings = &self.context.spec.settings;
        let round = Round::new(connections, &self.claim.footprint, settings.node_timeout, limit);
        let mut round = round.urgent(connect_by).until(limit);
        let mut ballots = KeyBallots::new(vec![KeyVote::Pending; nodes]);
        ballots.ask(&mut round, &self.request);
        let verdict = ballots.decide(&mut round, &mut |_, answer, _| extend::vote(answer)).await;
        let (now, wall) = (connections.clock.now(), connections.clock.wall_micros());
        let acquired = now.before(Duration::from_micros(wall.saturating_sub(self.detached.acquired)));
        let hold_until = settings.max_hold.map(|max_hold| acquired.after(max_hold));
        let valid_until = quorum::valid_until(round.started, self.ttl, settings.margin, hold_until);
        let (reason, answers) = match verdict {
            KeyVerdict::Carried if now < valid_until => return self.won(round, &ballots, (acquired, valid_until)),
            KeyVerdict::Carried if hold_until.is_some_and(|hold_until| hold_until <= now) => {
                (LostReason::MaxHold, Vec::new())
            }
            // A node that was not keyed back yet shows the token of an attempt before this one.
            KeyVerdict::Lost(reason) if !self.context.listed.waiters.is_leaving(&self.request.keys) => {
                if reason == LostReason::Deleted && self.request.keys.are_several() {
                    // The keys of the other names are of use to nobody.
                    self.claim.former = Some((self.detached.token, NodeMask::all(nodes)));
                }
                let reason = reason.or_expired(wall >= self.detached.end);
                (reason, ballots.answers(&connections.members, extend::describe))
            }
            KeyVerdict::Lost(_) | KeyVerdict::Carried | KeyVerdict::Open | KeyVerdict::Unknown => {
                drop(round);
                self.claim.release_all_now(connections, end).await;
                return Try::Unknown(ballots);
            }
        };
        drop(round);
        // The claim releases its keys: the lock is over, or another owner has it.
        self.claim.key_back = None;
        Try::Lost(reason, answers)
    }

    fn won(mut self, round: Round, ballots: &KeyBallots, (acquired, valid_until): (Moment, Moment)) -> Try {
        let (nodes, asked) = (ballots.votes().len(), round.started);
        let unsent = round.drain_in_background((), |(), _, _, _| {});
        let failed = (0..nodes).filter(|node| ballots.votes()[*node] == KeyVote::Failed);
        let missed = failed.filter(|node| self.claim.footprint.has_nothing(*node)).fold(unsent, NodeMask::with);
        // Else the keys are those of the text, which stay as they are however the hold ends.
        if !self.detached.keeps_token {
            // A node that does not have the key of one name has left those of the others as they were.
            let are_several = self.request.keys.are_several();
            let may_have_former = |node: &usize| match ballots.votes()[*node] {
                KeyVote::Failed | KeyVote::Pending => true,
                vote => are_several && vote != KeyVote::Ours,
            };
            let left = (0..nodes).filter(may_have_former).fold(NodeMask::NONE, NodeMask::with);
            self.claim.former = Some((self.detached.token, left));
        }
        let won = Won {
            fence: self.detached.fence,
            level: self.detached.level,
            acquired,
            asked,
            kept: self.ttl,
            valid_until,
            unit: self.claim.unit,
            missed,
            slot: self.detached.slot(),
        };
        Try::Won(Box::new((Ownership::Fenced(self.claim), won)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Addresses;
    use crate::process::Process;
    use crate::protocol::name::Name;
    use crate::protocol::request::Keys;
    use crate::{ErrorKind, Redlock};

    #[tokio::test]
    async fn another_token_is_not_a_loss_while_keys_are_on_their_way_back() {
        const NODE: &str = "memory://on-their-way-back";
        let redlock = Redlock::new(NODE).unwrap();
        let text = redlock.lock("foo").await.unwrap().detach().await.unwrap();
        let _other = redlock.attach(text.as_str()).await.unwrap();
        let set = Process::current().set(&Addresses::parse([NODE]).unwrap()).unwrap();
        let leaving = set.waiters.leave(&Keys::of(&Name::parse("foo".as_bytes()).unwrap()));
        let attach = || redlock.attach(text.as_str()).node_timeout(Duration::from_millis(10)).timeout(Duration::ZERO);
        assert_eq!(attach().await.unwrap_err().kind(), ErrorKind::Unavailable);
        drop(leaving);
        assert_eq!(attach().await.unwrap_err().kind(), ErrorKind::Lost);
    }
}
