//! One extension of a held lock, explicit or by renewal, and the restoring of nodes that have forgotten it.
//!
//! States: *opening*, *asking*, then *done*, *unknown* (no quorum answered: the lock stays valid for as long as it was)
//! or *lost*. What may interrupt it: dropped anywhere, some nodes may live longer, which is harmless, and the validity
//! is unchanged; released or lost meanwhile, the round's result changes nothing.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::attempt::Place;
use crate::error::NodeAnswer;
use crate::fault::{Fault, planted};
use crate::held::{Held, Loss};
use crate::lane::{CONNECT_LIMIT, Lane, Member};
use crate::node::{By, Failure};
use crate::quorum::{self, Extension};
use crate::round::{Event, Round};
use crate::script::Reply;

/// What an extension came to.
#[derive(Debug)]
pub(crate) enum Extended {
    /// `valid_until` has moved.
    Done,
    /// No quorum answered; what each node said.
    Unknown(Vec<NodeAnswer>),
    /// A quorum can never be for it again.
    Lost(Loss),
    /// Not held, or not any more when the answers came.
    Over,
}

/// Asks all nodes to keep the lock for `ttl` from now.
pub(crate) async fn extend(held: &Arc<Held>, lane: &Arc<Lane>, ttl: Duration) -> Extended {
    let limit = held.valid_until();
    lane.open(lane.clock.now().after(CONNECT_LIMIT).min(limit)).await;
    let Some((request, footprint)) = held.extension(ttl) else { return Extended::Over };
    let mut round = Round::new(lane, &footprint, held.place.spec.settings.node_timeout, limit);
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
        match quorum::extension(&ballots.votes, lane.members.health.suspects()) {
            quorum::Extended::Open => {}
            quorum::Extended::Lost(reason) => {
                return Extended::Lost(Loss { reason, nodes: ballots.answers(&held.place) });
            }
            quorum::Extended::Unknown => return Extended::Unknown(ballots.answers(&held.place)),
            quorum::Extended::Carried => {
                if !held.extended(start, ttl) {
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
    votes: Vec<Extension>,
    answers: Vec<Option<Result<Reply, Failure>>>,
}

impl Ballots {
    fn new(nodes: usize) -> Self {
        Self { votes: vec![Extension::Pending; nodes], answers: vec![None; nodes] }
    }

    fn count(&mut self, node: usize, answer: Result<Reply, Failure>) {
        self.votes[node] = match &answer {
            Ok(Reply::Extended) => Extension::Extended,
            Ok(Reply::Absent) if planted(Fault::RestoreCounts) => Extension::Extended,
            Ok(Reply::Absent) => Extension::Absent,
            Ok(Reply::Foreign(_) | Reply::Ahead) => Extension::Foreign,
            Ok(_) | Err(_) => Extension::Failed,
        };
        self.answers[node] = Some(answer);
    }

    /// Nothing more is waited for.
    fn close(&mut self) {
        for vote in self.votes.iter_mut().filter(|vote| **vote == Extension::Pending) {
            *vote = Extension::Failed;
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
            None if vote == Extension::Pending => "no answer yet".to_owned(),
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

/// The round reached its quorum: nodes that answered *absent*, now or as stragglers, get the lock back.
fn put_back(held: &Arc<Held>, round: Round, votes: &[Extension]) {
    if votes.len() > 1 {
        for (node, vote) in votes.iter().enumerate() {
            if *vote == Extension::Absent {
                restore(held, node);
            }
        }
    }
    round.leave(Arc::clone(held), |held, node, answer, _| {
        if matches!(answer, Ok(Reply::Absent)) && held.place.set.members.len() > 1 {
            restore(held, node);
        }
    });
}

/// Puts the lock back on `node`, from the background. It counts from the next round on.
fn restore(held: &Arc<Held>, node: usize) {
    let held = Arc::clone(held);
    let process = Arc::clone(&held.place.process);
    process.background.spawn(async move {
        let lane = held.place.set.lane(&Handle::current());
        let settings = &held.place.spec.settings;
        // A node that restarted a moment ago may have forgotten another's lock: not before its bar has ended. The next
        // renewal comes back to it.
        if lane.members.health.objection(node, settings.restart_delay, lane.clock.now()).is_some() {
            return;
        }
        let mut timer = pin!(lane.clock.sleep(settings.node_timeout));
        let mut put = pin!(put(&held, &lane, node));
        let in_time = poll_fn(|cx| match put.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => timer.as_mut().poll(cx).map(|()| false),
        });
        if !in_time.await {
            lane.missed(node);
        }
    });
}

async fn put(held: &Arc<Held>, lane: &Arc<Lane>, node: usize) {
    let Ok(connection) = lane.ready(node).await else { return };
    let _watched = lane.watch(node);
    let mut by = By::Hash;
    loop {
        // Queued under the lock's mutex: a release that begins later finds the footprint, and goes behind it.
        let queued = held.restore(|request, footprint, ttl| {
            let create = footprint.put_back(node, &connection, lane.clock.now(), ttl)?;
            let (connection, footprint) = (connection.clone(), Arc::clone(footprint));
            let mut asking = Box::pin(async move {
                let answer = connection.call(&request, by).await;
                footprint.put_back_answered(node, create, &answer);
                answer
            });
            let first = asking.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
            Some((asking, first))
        });
        let answer = match queued.flatten() {
            None => return,
            Some((_, Poll::Ready(answer))) => answer,
            Some((asking, Poll::Pending)) => asking.await,
        };
        match answer {
            Err(Failure::NoScript) if by == By::Hash => by = By::Text,
            Err(failure) => {
                if failure.breaks_connection() {
                    lane.broken(node, &connection);
                }
                return;
            }
            Ok(_) => return lane.heard(node),
        }
    }
}
