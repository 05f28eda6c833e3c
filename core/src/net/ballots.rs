//! What the nodes said to an attempt: votes and failures, what they mean for the call, and how people are told.

use std::time::Duration;

use crate::error::NodeAnswer;
use crate::net::connections::{Lane, Members};
use crate::net::node::Failure;
use crate::protocol::quorum::{self, Mask, Vote};
use crate::sys::clock::Moment;

/// What the nodes said in an attempt that was not won.
#[derive(Debug)]
pub(crate) struct Ballots {
    pub(crate) votes: Vec<Vote>,
    pub(crate) failures: Vec<Option<Failure>>,
    /// The shortest time that any holder's key has left.
    pub(crate) ttl_left: Option<Duration>,
    /// Whether every node had its time to answer.
    pub(crate) complete: bool,
    /// The nodes that are free: they had granted, and were told to delete.
    pub(crate) freed: Mask,
}

impl Ballots {
    /// Before any node has answered.
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            votes: vec![Vote::Pending; nodes],
            failures: vec![None; nodes],
            ttl_left: None,
            complete: true,
            freed: Mask::NONE,
        }
    }

    /// Of a lock that this process itself holds.
    pub(crate) fn held(nodes: usize) -> Self {
        Self { votes: vec![Vote::Held; nodes], ..Self::new(nodes) }
    }

    fn quorum(&self) -> usize {
        quorum::quorum(self.votes.len())
    }

    /// Whether a quorum answered at all, granted or held. A node that had not answered when the others had decided
    /// against us counts as one that would have: a vote ends early, and only failures can say that no quorum answers.
    pub(crate) fn is_contended(&self) -> bool {
        self.missing() == 0
    }

    /// How many nodes more would have to answer for a quorum.
    fn missing(&self) -> usize {
        let answers = |(vote, failure): &(&Vote, &Option<Failure>)| match (vote, failure) {
            (Vote::Failed, _) => false,
            // A barred node cannot grant, but it can say that others hold the lock.
            (Vote::Held, Some(Failure::Barred(_))) => true,
            (_, objection) => objection.is_none(),
        };
        self.quorum().saturating_sub(self.votes.iter().zip(&self.failures).filter(answers).count())
    }

    /// For how long bars alone stand in the way of a quorum; `None` where they do not, or where too few other nodes
    /// answer.
    pub(crate) fn barred_for(&self) -> Option<Duration> {
        let bar = |(vote, failure): (&Vote, &Option<Failure>)| match (vote, failure) {
            (Vote::Held, _) => None,
            (_, Some(Failure::Barred(left))) => Some(*left),
            _ => None,
        };
        let mut bars: Vec<Duration> = self.votes.iter().zip(&self.failures).filter_map(bar).collect();
        bars.sort_unstable();
        bars.get(self.missing().checked_sub(1)?).copied()
    }

    /// The barred nodes and when they count again, for a log.
    pub(crate) fn bars(&self, members: &Members) -> String {
        let bar = |(node, failure): (usize, &Option<Failure>)| match failure {
            Some(Failure::Barred(left)) => Some(format!("{} in {left:.1?}", members.nodes[node].address)),
            _ => None,
        };
        self.failures.iter().enumerate().filter_map(bar).collect::<Vec<_>>().join(", ")
    }

    /// Whether nodes that refuse our credentials or rights rule a quorum out by themselves.
    pub(crate) fn is_forbidden(&self) -> bool {
        let forbidden = |failure: &&Option<Failure>| matches!(failure, Some(Failure::Forbidden(_)));
        self.failures.iter().filter(forbidden).count() > self.votes.len() - self.quorum()
    }

    /// Whether a connection from before broke under the attempt.
    pub(crate) fn saw_closed(&self) -> bool {
        self.failures.iter().any(|failure| matches!(failure, Some(Failure::Closed)))
    }

    /// What each node answered, for an error. A bar is shown with the time that it lasts from now on.
    pub(crate) fn answers(&self, members: &Members, restart_delay: Duration, now: Moment) -> Vec<NodeAnswer> {
        let answer = |(node, vote): (usize, &Vote)| NodeAnswer {
            node: members.nodes[node].address.to_string(),
            answer: match (vote, &self.failures[node]) {
                (_, Some(Failure::Barred(left))) => {
                    let left = members.health.objection(node, restart_delay, now).unwrap_or(Failure::Barred(*left));
                    left.to_string()
                }
                (_, Some(failure)) => failure.to_string(),
                (Vote::Held, _) => "held by another".to_owned(),
                (Vote::Pending | Vote::Failed, None) => "no answer yet".to_owned(),
                (Vote::Granted(_) | Vote::Confirming(_) | Vote::Confirmed, None) => "granted".to_owned(),
            },
        };
        self.votes.iter().enumerate().map(answer).collect()
    }

    pub(crate) fn fail(&mut self, node: usize, failure: Failure) {
        self.votes[node] = Vote::Failed;
        self.failures[node] = Some(failure);
    }
}

/// Why no quorum can come before anything is sent.
#[derive(Debug)]
pub(crate) enum Hindrance {
    /// Replicas rule a quorum out; they may be promoted.
    Lost(Ballots),
    /// Bars leave no quorum before this instant.
    Barred(Moment, Ballots),
    /// Too many addresses lead to the same server for a quorum ever to come.
    Indistinct(Ballots),
}

/// Why no quorum can come before anything is sent.
pub(crate) fn hindrance(lane: &Lane, restart_delay: Duration) -> Option<Hindrance> {
    let health = &lane.members.health;
    let nodes = lane.members.len();
    let now = lane.clock.now();
    if health.counts(restart_delay, now).len() >= quorum::quorum(nodes) {
        return None;
    }
    let mut ballots = Ballots::new(nodes);
    for node in 0..nodes {
        if let Some(objection) = health.objection(node, restart_delay, now) {
            if objection == Failure::Replica {
                // Its role is asked for when a connection is made: ask again, it may be promoted by now.
                lane.renounce(node);
            }
            ballots.fail(node, objection);
        }
    }
    if health.distinct() < quorum::quorum(nodes) {
        return Some(Hindrance::Indistinct(ballots));
    }
    match health.quorum_at(restart_delay) {
        Some(until) if until > now => Some(Hindrance::Barred(until, ballots)),
        // Replicas rule a quorum out: a lost attempt like any other, for they may be promoted.
        _ => Some(Hindrance::Lost(ballots)),
    }
}

/// Says of grants that did not count why, and which nodes were not waited for.
pub(crate) fn object(lane: &Lane, ballots: &mut Ballots, restart_delay: Duration) {
    let now = lane.clock.now();
    let suspects = lane.members.health.suspects();
    for node in 0..ballots.votes.len() {
        if ballots.votes[node] == Vote::Pending && suspects.has(node) {
            ballots.fail(node, Failure::Suspect);
        }
        if ballots.failures[node].is_none() {
            ballots.failures[node] = lane.members.health.objection(node, restart_delay, now);
        }
    }
}
