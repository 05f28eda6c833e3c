//! One extension of a held lock, explicit or by renewal.
//!
//! States: *opening*, *asking*, then *done*, *unknown* (no quorum answered: the lock stays valid for as long as it was)
//! or *lost*. What may interrupt it: dropped anywhere, some nodes may live longer, which is harmless, and the validity
//! is unchanged; released or lost meanwhile, the round's result changes nothing; another extension of the lock, which
//! may be answered sooner or later than this one (see `held`).

use std::sync::Arc;
use std::time::Duration;

use crate::error::NodeAnswer;
use crate::fault::{Fault, planted};
use crate::hold::lease::{Extending, Held};
use crate::hold::outcome::Loss;
use crate::hold::restore::put_back;
use crate::net::connections::{Lane, Member};
use crate::net::node::Failure;
use crate::net::round::{Event, Round};
use crate::process::context::Place;
use crate::protocol::quorum::{self, KeyVerdict, KeyVote};
use crate::protocol::request::Reply;

/// What an extension came to.
#[derive(Debug)]
pub(crate) enum Extended {
    /// `valid_until` has moved.
    Done,
    /// No quorum answered; which one it was, and what each node said.
    Unknown(Extending, Vec<NodeAnswer>),
    /// A quorum can never be for it again.
    Lost(Loss),
    /// Not held, or not any more when the answers came.
    Over,
}

/// Asks all nodes to keep the lock for `ttl` from now, which is then the ttl of later renewals; or for the ttl in force.
/// It is `urgent` if a caller waits for it: a renewal is soon followed by another one.
pub(crate) async fn extend(held: &Arc<Held>, lane: &Arc<Lane>, ttl: Option<Duration>, urgent: bool) -> Extended {
    let limit = held.valid_until();
    lane.open(lane.connect_limit().min(limit)).await;
    let Some((extending, request, footprint)) = held.extension(ttl) else { return Extended::Over };
    let mut round = Round::new(lane, &footprint, held.place.spec.settings.node_timeout, limit);
    if urgent {
        round = round.urgent();
    }
    let start = round.started();
    let mut ballots = Ballots::new(lane.members.len());
    for node in 0..ballots.votes.len() {
        if round.leaves_out(node) {
            ballots.count(node, Err(Failure::Suspect));
        } else {
            round.ask(node, request.clone(), None);
        }
    }
    loop {
        match quorum::keys(&ballots.votes, lane.members.health.suspects()) {
            KeyVerdict::Open => {}
            KeyVerdict::Lost(reason) => {
                return Extended::Lost(Loss { reason, nodes: ballots.answers(&held.place) });
            }
            KeyVerdict::Unknown => return Extended::Unknown(extending, ballots.answers(&held.place)),
            KeyVerdict::Carried => {
                if !held.extended(start, extending) {
                    return Extended::Over;
                }
                put_back(held, round, &ballots.votes);
                return Extended::Done;
            }
        }
        match round.next().await {
            Some(Event::Vote(node, answer)) => ballots.count(node, answer),
            Some(Event::TimeUp) | None => ballots.close(),
        }
    }
}

/// The votes of one round, and what the nodes said.
struct Ballots {
    votes: Vec<KeyVote>,
    answers: Vec<Option<Result<Reply, Failure>>>,
}

impl Ballots {
    fn new(nodes: usize) -> Self {
        Self { votes: vec![KeyVote::Pending; nodes], answers: vec![None; nodes] }
    }

    fn count(&mut self, node: usize, answer: Result<Reply, Failure>) {
        self.votes[node] = match &answer {
            Ok(Reply::Extended) => KeyVote::Ours,
            Ok(Reply::Absent) if planted(Fault::RestoreCounts) => KeyVote::Ours,
            Ok(Reply::Absent) => KeyVote::Absent,
            Ok(Reply::Foreign(_) | Reply::Ahead) => KeyVote::Foreign,
            Ok(_) | Err(_) => KeyVote::Failed,
        };
        self.answers[node] = Some(answer);
    }

    /// Nothing more is waited for.
    fn close(&mut self) {
        for vote in self.votes.iter_mut().filter(|vote| **vote == KeyVote::Pending) {
            *vote = KeyVote::Failed;
        }
    }

    /// What each node said, for people.
    fn answers(self, place: &Place) -> Vec<NodeAnswer> {
        let node_timeout = place.spec.settings.node_timeout;
        let text = |vote, answer: Option<Result<Reply, Failure>>| match answer {
            Some(Ok(Reply::Extended)) => "extended".to_owned(),
            Some(Ok(Reply::Absent)) => "has no such key any more".to_owned(),
            Some(Ok(Reply::Foreign(Some(label)))) => format!("held by {label}"),
            Some(Ok(Reply::Foreign(None) | Reply::Ahead)) => "held by another".to_owned(),
            Some(Ok(_)) => Failure::Garbled.to_string(),
            Some(Err(failure)) => failure.to_string(),
            None if vote == KeyVote::Pending => "no answer yet".to_owned(),
            None => Failure::Silent(node_timeout).to_string(),
        };
        let members = &place.set.members.nodes;
        let said = |(member, (vote, answer)): (&Member, _)| NodeAnswer {
            node: member.address.to_string(),
            answer: text(vote, answer),
        };
        members.iter().zip(self.votes.into_iter().zip(self.answers)).map(said).collect()
    }
}
