//! One try to take a lock: acquire round, confirm round if needed, clean-up if not won. A try in the older SETNX
//! protocol is in `hold::setnx`. Both end in an [`Outcome`].
//!
//! States: *opening* (fewer than q connections) → *asking* (acquire round) → *confirming* (the fences differ; the
//! largest is written back) → *won*, or *cleaning up* (releases to every possible key) → *lost*. What may interrupt
//! each await:
//!
//! - dropped while opening: no request was sent;
//! - dropped, or the runtime ended, while asking or confirming: the claim's drop releases, on the same connections;
//! - dropped while cleaning up: the claim's drop leaves the rest to pending releases;
//! - a late answer: reaches only the footprint. It cannot win or lose the attempt.
//!
//! A token is used for one attempt. Requests are not resent here: a fresh attempt has a fresh token, or the fence's
//! proof would not hold.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::counted::{Asking, Count};
use crate::address::Address;
use crate::hold::claim::Claim;
use crate::hold::outcome::{Outcome, Won};
use crate::net::ballots::{self, Ballots, NoQuorum, explain, precheck};
use crate::net::connections::Connections;
use crate::net::round::Round;
use crate::process::context::{LockContext, Spec};
use crate::protocol::positions::Positions;
use crate::protocol::quorum::{self, NodeMask, Verdict, Vote};
use crate::protocol::request::{Action, Reply, Wants};
use crate::sys::clock::Moment;
use crate::sys::log::OpenSpan;
use crate::transport::failure::Failure;

/// The most that a proposed fence may differ from the server's clock with several nodes. With one node only the
/// server's clock counts, and no client's.
const SLACK: Duration = Duration::from_secs(60);

/// A call's state between its attempts.
#[derive(Debug, Default)]
pub(crate) struct AttemptState {
    /// The highest fence seen.
    pub(crate) highest: u64,
    /// Its positions, once it is in front of its process's queue. The nodes count it only then: before that it has not
    /// waited, or the front is counted for it, and most calls get the lock without waiting.
    pub(crate) positions: Option<Arc<Positions>>,
    /// The slot to try, of a semaphore.
    pub(crate) slot: Option<u32>,
    /// The end of the call, its clean-up included.
    pub(crate) end: Moment,
    /// The span of the call.
    pub(crate) trace: OpenSpan,
}

/// Runs one try on `connections`. Votes end after `node_timeout`, or at `limit` if sooner.
pub(crate) async fn attempt(
    context: &LockContext,
    connections: &Arc<Connections>,
    limit: Moment,
    state: &mut AttemptState,
) -> Outcome<Claim> {
    let settings = &context.spec.settings;
    let nodes = connections.members.len();
    connections.connect_quorum(connections.connect_limit().min(limit)).await;
    precheck(connections, settings.restart_delay)?;
    let keys = state.slot.map_or_else(|| Arc::clone(&context.spec.keys), |slot| context.spec.names.slot_keys(slot));
    let claim = Claim::new(&context.process, &context.listed, keys, (settings.key_ttl(), settings.node_timeout));
    // Those who wait for a slot are counted when they look.
    let positions = state.positions.clone().filter(|_| state.slot.is_none());
    let round = Round::new(connections, &claim.footprint, settings.node_timeout, limit);
    let start = round.started;
    let count = positions.as_ref().map(|positions| Count::new(context, connections, positions));
    let mut asking = Asking::new(round, count);
    let mut ballots = Ballots::new(nodes);
    let proposal = quorum::proposal(connections.clock.wall_micros(), state.highest);
    for node in 0..nodes {
        let round = asking.round();
        if round.leaves_out(node) {
            ballots.fail(node, Failure::Unresponsive);
        } else {
            let wants = positions.as_ref().map(|positions| positions.asks(node, start));
            round.ask(node, claim.request(acquire(&context.spec, nodes, proposal, wants)), None);
        }
    }
    let verdict = vote(context, connections, &claim, &mut asking, &mut ballots, state).await;
    let limit = settings.max_hold.map(|max_hold| start.after(max_hold));
    let valid_until = quorum::valid_until(start, settings.ttl, settings.margin, limit);
    if let Some(fence) = verdict
        && connections.clock.now() < valid_until
    {
        let failed = (0..nodes).filter(|node| ballots.votes[*node] == Vote::Failed);
        let failed = failed.filter(|node| claim.footprint.has_nothing(*node)).fold(NodeMask::NONE, NodeMask::with);
        // A straggler without the script is not asked again after the verdict. It does not have a key either.
        let kept = (nodes > 1).then(|| (Arc::clone(&context.process), Arc::clone(&connections.members)));
        let unsent = asking.into_round().drain_in_background(kept, |kept, node, answer, _| {
            if let (Some((process, members)), Err(Failure::NoScript)) = (kept, answer) {
                process.schedule.reached(members, node);
            }
        });
        let missed = unsent.union(failed);
        let won = Won {
            unit: claim.unit,
            fence,
            level: fence,
            acquired: start,
            asked: start,
            kept: settings.ttl,
            valid_until,
            missed,
            slot: state.slot,
        };
        return Ok((claim, won));
    }
    ballots.ended = connections.clock.now();
    ballots.took = ballots.ended.since(start);
    // Takes back unwritten requests, but those that count a waiter.
    drop(asking);
    ballots.freed = claim.release_all_now(connections, state.end).await;
    Err(NoQuorum::Lost(ballots.into()))
}

fn acquire(spec: &Spec, nodes: usize, proposal: u64, wants: Option<Wants>) -> Action {
    let settings = &spec.settings;
    Action::Acquire {
        ttl: settings.key_ttl(),
        proposal,
        slack: if nodes == 1 { Duration::ZERO } else { SLACK },
        fence_ttl: settings.fence_ttl,
        label: Arc::clone(&settings.label),
        wants,
    }
}

/// Reads votes until the verdict. Returns the fence of a quorum.
async fn vote(
    context: &LockContext,
    connections: &Arc<Connections>,
    claim: &Claim,
    asking: &mut Asking,
    ballots: &mut Ballots,
    state: &mut AttemptState,
) -> Option<u64> {
    let health = &connections.members.health;
    let restart_delay = context.spec.settings.restart_delay;
    let mut decided = None;
    loop {
        let counts = health.counts(restart_delay, connections.clock.now());
        match quorum::attempt(&ballots.votes, decided, counts, health.unresponsive()) {
            Verdict::Won(fence) => return Some(fence),
            Verdict::Lost => {
                explain(connections, ballots, restart_delay);
                return None;
            }
            Verdict::Confirm(fence) => {
                decided = Some(fence);
                asking.round().restart_deadline();
            }
            Verdict::Open => {}
        }
        if let Some(fence) = decided {
            confirm(&context.spec, claim, asking.round(), ballots, fence, counts);
        }
        let Some((node, answer)) = asking.next().await else {
            ballots.complete = !asking.round().is_cut();
            for node in 0..ballots.votes.len() {
                if ballots.votes[node] == Vote::Pending {
                    ballots.fail(node, asking.round().silence(node));
                }
            }
            explain(connections, ballots, restart_delay);
            return None;
        };
        trace(&state.trace, &connections.members.nodes[node].address, &answer);
        take(ballots, node, answer, &mut state.highest);
    }
}

/// Sends confirms to counted nodes that granted less than `fence`.
fn confirm(spec: &Spec, claim: &Claim, round: &mut Round, ballots: &mut Ballots, fence: u64, counts: NodeMask) {
    for node in 0..ballots.votes.len() {
        let Vote::Granted(granted) = ballots.votes[node] else { continue };
        if granted < fence && counts.contains(node) {
            let (fence_ttl, label) = (spec.settings.fence_ttl, Arc::clone(&spec.settings.label));
            round.ask(node, claim.request(Action::Confirm { granted, fence, fence_ttl, label }), None);
            ballots.votes[node] = Vote::Confirming(granted);
        }
    }
}

/// Tells an answer to the subscriber, if it wants to know.
fn trace(trace: &OpenSpan, node: &Address, answer: &Result<Reply, Failure>) {
    if trace.is_wanted() {
        match answer {
            Ok(reply) => trace.answered(node, &describe(reply)),
            Err(failure) => trace.answered(node, failure),
        }
    }
}

/// Describes one node's reply for people.
fn describe(reply: &Reply) -> String {
    match reply {
        Reply::Granted(_) | Reply::Held { ours: Some(_), .. } => "granted".to_owned(),
        Reply::Held { label: Some(label), .. } => format!("held by {label}"),
        Reply::Held { .. } => ballots::HELD.to_owned(),
        Reply::HeldOff { .. } => ballots::HELD_OFF.to_owned(),
        Reply::Confirmed => "confirmed the fence".to_owned(),
        Reply::Refused => "granted, and lost the key before it confirmed the fence".to_owned(),
        _ => Failure::UnexpectedReply.to_string(),
    }
}

/// Records one answer.
fn take(ballots: &mut Ballots, node: usize, answer: Result<Reply, Failure>, highest: &mut u64) {
    match answer {
        // This attempt holds it: the message came twice. The value shows the granted fence.
        Ok(Reply::Granted(fence) | Reply::Held { ours: Some(fence), .. }) => {
            *highest = (*highest).max(fence);
            ballots.votes[node] = Vote::Granted(fence);
        }
        Ok(Reply::Held { ttl_left, label, hold, .. }) => {
            ballots.votes[node] = Vote::Held;
            ballots.report_owner(hold, label);
            ballots.report_ttl(ttl_left);
        }
        Ok(Reply::HeldOff { ttl_left, .. }) => {
            ballots.votes[node] = Vote::Held;
            ballots.held_off = ballots.held_off.with(node);
            // Each node knows another beginning of the same sharing, which splits no votes.
            ballots.report_owner(0, None);
            ballots.report_ttl(ttl_left);
        }
        Ok(Reply::Confirmed) => ballots.votes[node] = Vote::Confirmed,
        // The grant was gone when the confirm came: expired, deleted or taken.
        Ok(Reply::Refused) => ballots.votes[node] = Vote::Held,
        Ok(_) => ballots.fail(node, Failure::UnexpectedReply),
        Err(failure) => ballots.fail(node, failure),
    }
}
