//! One try to take a lock: acquire round, confirm round if needed, clean-up if not won. A try in the older SETNX protocol
//! is in `setnx`; both end in an [`Outcome`].
//!
//! States: *opening* (fewer than q connections) → *asking* (acquire round) → *confirming* (the fences differ; the
//! largest is written back) → *won*, or *settling* (releases to whatever was created) → *lost*. What may interrupt each
//! await:
//!
//! - dropped while opening: nothing was sent;
//! - dropped, or the runtime ended, while asking or confirming: the claim's drop releases, on the same connections;
//! - dropped while settling: the claim's drop owes the rest;
//! - a late answer: reaches the footprint only; it can neither win nor lose the attempt any more.
//!
//! A token is used for one attempt. Nothing is resent here: a fresh attempt has a fresh token, or the fence's proof
//! would not hold.

use std::sync::Arc;
use std::time::Duration;

use crate::error::NodeAnswer;
use crate::fault::{Fault, planted};
use crate::hold::claim::Claim;
use crate::hold::setnx::{self, Grant};
use crate::net::connections::Lane;
use crate::net::node::Failure;
use crate::net::round::{Event, Round};
use crate::options::{Protocol, Settings};
use crate::process::shutdown::Ending;
use crate::process::{NodeSet, Process};
use crate::protocol::name::Name;
use crate::protocol::positions::Line;
use crate::protocol::quorum::{self, Mask, Verdict, Vote};
use crate::protocol::request::{Action, Keys, Reply, Wants};
use crate::sys::clock::Moment;

/// How far a proposed fence may be off the server's clock with several nodes. With one node the server's clock alone
/// counts, so that no client's clock matters.
const SLACK: Duration = Duration::from_secs(60);

/// What is to be locked, and how; fixed when the call begins.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: Name,
    pub(crate) keys: Arc<Keys>,
    pub(crate) settings: Settings,
}

/// Where attempts are made from.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) process: Arc<Process>,
    pub(crate) set: Arc<NodeSet>,
    pub(crate) spec: Arc<Spec>,
    /// The end of the client, which ends its waiting calls.
    pub(crate) client: Arc<Ending>,
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A quorum granted in time.
    Won(Won),
    /// It did not.
    Lost(Ballots),
    /// Bars leave no quorum before this instant; nothing was sent.
    Barred(Moment, Ballots),
    /// Too many addresses lead to the same server for a quorum ever to come.
    Indistinct(Ballots),
}

/// What a won attempt may delete on the nodes, in each protocol. Dropped, it is released.
#[derive(Debug)]
pub(crate) enum Title {
    Plain(Claim),
    Setnx(Grant),
}

/// A won attempt.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) title: Title,
    /// Zero, and told to nobody, in a protocol that has none.
    pub(crate) fence: u64,
    pub(crate) acquired: Moment,
    pub(crate) valid_until: Moment,
    /// Where in the spread of renewals this lock's first one falls.
    pub(crate) unit: f64,
    /// The nodes to which the acquire could not be sent.
    pub(crate) missed: Mask,
}

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
    pub(crate) fn bars(&self, set: &NodeSet) -> String {
        let bar = |(node, failure): (usize, &Option<Failure>)| match failure {
            Some(Failure::Barred(left)) => Some(format!("{} in {left:.1?}", set.members.nodes[node].address)),
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
    pub(crate) fn answers(&self, place: &Place) -> Vec<NodeAnswer> {
        let members = &place.set.members;
        let (restart_delay, now) = (place.spec.settings.restart_delay, place.process.clock.now());
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

/// What a call carries from one attempt to the next.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// The highest fence seen.
    pub(crate) highest: u64,
    /// Its places in line, once it waits in front of its process's line. Only then the nodes count it: before that it has
    /// not waited, or the call in front of it is counted, and most calls get the lock without waiting.
    pub(crate) line: Option<Arc<Line>>,
}

/// One try, on `lane` where the protocol leaves the choice. Votes end at `limit` if that is sooner than `node_timeout`.
pub(crate) async fn attempt(place: &Place, lane: &Arc<Lane>, limit: Moment, carried: &mut Carried) -> Outcome {
    place.process.lists.used(&place.set.list, &place.spec.name);
    match place.spec.settings.protocol {
        Protocol::Plain => plain(place, lane, limit, carried).await,
        Protocol::Setnx => setnx::attempt(place, lane, limit).await,
    }
}

async fn plain(place: &Place, lane: &Arc<Lane>, limit: Moment, carried: &mut Carried) -> Outcome {
    let settings = &place.spec.settings;
    let nodes = lane.members.len();
    lane.open(lane.connect_limit().min(limit)).await;
    if let Some(outcome) = hindrance(place, lane) {
        return outcome;
    }
    let claim = Claim::new(&place.process, &place.set, &place.spec.keys, (settings.ttl, settings.node_timeout));
    let mut round = Round::new(lane, claim.footprint(), settings.node_timeout, limit);
    let start = round.started();
    let mut ballots = Ballots::new(nodes);
    let proposal = quorum::proposal(lane.clock.wall_micros(), carried.highest);
    for node in 0..nodes {
        if round.leaves_out(node) {
            ballots.fail(node, Failure::Suspect);
        } else {
            let wants = carried.line.as_ref().map(|line| line.asks(node, start));
            round.ask(node, claim.request(acquire(&place.spec, nodes, proposal, wants)), None);
        }
    }
    let verdict = vote(place, lane, &claim, &mut round, &mut ballots, limit, carried).await;
    let limit = settings.max_hold.map(|max_hold| start.after(max_hold));
    let start = if planted(Fault::ValidFromAnswer) { lane.clock.now() } else { start };
    let valid_until = quorum::valid_until(start, settings.ttl, limit);
    if let Some(fence) = verdict
        && (lane.clock.now() < valid_until || planted(Fault::LateGrant))
    {
        let failed = |(_, vote): &(usize, &Vote)| **vote == Vote::Failed;
        let failed = ballots.votes.iter().enumerate().filter(failed).map(|(node, _)| node);
        let failed = failed.filter(|node| claim.footprint().has_nothing(*node)).fold(Mask::NONE, Mask::with);
        // A straggler that did not know the script is not asked again after the verdict, and has nothing either.
        let kept = (nodes > 1).then(|| (Arc::clone(&place.process), Arc::clone(&place.set.members)));
        let unsent = round.leave(kept, |kept, node, answer, _| {
            if let (Some((process, members)), Err(Failure::NoScript)) = (kept, answer) {
                process.renewal.reached(members, node);
            }
        });
        let missed = unsent.and(failed);
        let unit = claim.unit();
        return Outcome::Won(Won { title: Title::Plain(claim), fence, acquired: start, valid_until, unit, missed });
    }
    match &carried.line {
        // A vote ends early, and the nodes that answer later have counted the waiter too.
        Some(places) => drop(round.leave(Arc::clone(places), |places, node, answer, _| count(places, node, answer))),
        // Takes back what was not written yet.
        None => drop(round),
    }
    if planted(Fault::NoCleanUp) {
        std::mem::forget(claim);
        return Outcome::Lost(ballots);
    }
    ballots.freed = claim.settle(lane).await;
    Outcome::Lost(ballots)
}

/// Why no quorum can come before anything is sent.
pub(crate) fn hindrance(place: &Place, lane: &Arc<Lane>) -> Option<Outcome> {
    let health = &lane.members.health;
    let nodes = lane.members.len();
    let settings = &place.spec.settings;
    let now = lane.clock.now();
    if health.counts(settings.restart_delay, now).len() >= quorum::quorum(nodes) {
        return None;
    }
    let mut ballots = Ballots::new(nodes);
    for node in 0..nodes {
        if let Some(objection) = health.objection(node, settings.restart_delay, now) {
            if objection == Failure::Replica {
                // Its role is asked for when a connection is made: ask again, it may be promoted by now.
                lane.renounce(node);
            }
            ballots.fail(node, objection);
        }
    }
    if health.distinct() < quorum::quorum(nodes) {
        return Some(Outcome::Indistinct(ballots));
    }
    match health.quorum_at(settings.restart_delay) {
        Some(until) if until > now => Some(Outcome::Barred(until, ballots)),
        // Replicas rule a quorum out: a lost attempt like any other, for they may be promoted.
        _ => Some(Outcome::Lost(ballots)),
    }
}

fn acquire(spec: &Spec, nodes: usize, proposal: u64, wants: Option<Wants>) -> Action {
    let settings = &spec.settings;
    Action::Acquire {
        ttl: settings.ttl,
        proposal,
        slack: if nodes == 1 { Duration::ZERO } else { SLACK },
        fence_keep: settings.fence_keep,
        label: Arc::clone(&settings.owner),
        wants,
    }
}

/// Reads votes until the verdict: the fence if a quorum has it.
async fn vote(
    place: &Place,
    lane: &Arc<Lane>,
    claim: &Claim,
    round: &mut Round,
    ballots: &mut Ballots,
    limit: Moment,
    carried: &mut Carried,
) -> Option<u64> {
    let health = &lane.members.health;
    let restart_delay = place.spec.settings.restart_delay;
    let mut decided = None;
    loop {
        let counts = health.counts(restart_delay, lane.clock.now());
        match quorum::attempt(&ballots.votes, decided, counts, health.suspects()) {
            Verdict::Won(fence) => return Some(fence),
            Verdict::Lost => {
                object(lane, ballots, restart_delay);
                return None;
            }
            Verdict::Confirm(fence) => {
                decided = Some(fence);
                round.prolong(limit);
            }
            Verdict::Open => {}
        }
        if let Some(fence) = decided {
            confirm(&place.spec, claim, round, ballots, fence, counts);
        }
        match round.next().await {
            Some(Event::Vote(node, answer)) => {
                if let Some(line) = &carried.line {
                    count(line, node, &answer);
                }
                take(ballots, node, answer, &mut carried.highest);
            }
            Some(Event::TimeUp) | None => {
                ballots.complete = !round.is_cut();
                for node in 0..ballots.votes.len() {
                    if ballots.votes[node] == Vote::Pending {
                        ballots.fail(node, Failure::Silent(round.time_given()));
                    }
                }
                object(lane, ballots, restart_delay);
                return None;
            }
        }
    }
}

/// Sends confirms to the granted nodes that are below `fence`.
fn confirm(spec: &Spec, claim: &Claim, round: &mut Round, ballots: &mut Ballots, fence: u64, counts: Mask) {
    for node in 0..ballots.votes.len() {
        let Vote::Granted(granted) = ballots.votes[node] else { continue };
        if granted < fence && counts.has(node) {
            let (fence_keep, label) = (spec.settings.fence_keep, Arc::clone(&spec.settings.owner));
            round.ask(node, claim.request(Action::Confirm { granted, fence, fence_keep, label }), None);
            ballots.votes[node] = Vote::Confirming(granted);
        }
    }
}

/// Notes the place in line that a node has given.
pub(crate) fn count(line: &Line, node: usize, answer: &Result<Reply, Failure>) {
    if let Ok(Reply::Held { ours: None, place, hold, .. }) = answer {
        line.given(node, *place, *hold);
    }
}

/// Takes one answer down.
fn take(ballots: &mut Ballots, node: usize, answer: Result<Reply, Failure>, highest: &mut u64) {
    match answer {
        // Held by this very attempt: a message that came twice. The value tells what was granted.
        Ok(Reply::Granted(fence) | Reply::Held { ours: Some(fence), .. }) => {
            *highest = (*highest).max(fence);
            ballots.votes[node] = Vote::Granted(fence);
        }
        Ok(Reply::Held { ttl_left, .. }) => {
            ballots.votes[node] = Vote::Held;
            ballots.ttl_left = match (ballots.ttl_left, ttl_left) {
                (Some(one), Some(two)) => Some(one.min(two)),
                (one, two) => one.or(two),
            };
        }
        Ok(Reply::Confirmed) => ballots.votes[node] = Vote::Confirmed,
        // The grant was gone when the confirm came: expired, deleted or taken.
        Ok(Reply::Refused) => ballots.votes[node] = Vote::Held,
        Ok(_) => ballots.fail(node, Failure::Garbled),
        Err(failure) => ballots.fail(node, failure),
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

#[cfg(test)]
mod invariants;
