//! Sleeping until a lock may be free: for the front of a name's waiters.
//!
//! States: *asking* (an attempt is under way; every node that denies it will report the next change of the key) →
//! *backing off* (only if the votes were split) → *asleep* → *pausing* (a node has reported a change: not all waiters
//! ask at once) → *probing* (several nodes: those that reported are asked for the key's state, which also has them report
//! again) → *asleep*, or *asking* if a quorum is free. Where fewer nodes than a quorum report, *polling* stands for
//! *asleep* and *pausing*.
//!
//! What may interrupt it:
//!
//! - a change is not reported (a lost connection, a node that does not report, an expiry that the server notices late):
//!   the backstop, at the end of the holder's ttl and at most 2 s on;
//! - fewer nodes than a quorum report, or may: it polls, with growing pauses, and probes all of several nodes;
//! - no quorum answers any more, or quarantine leaves none: an attempt, which shows that to the caller; after it, asleep
//!   for a growing pause, or until a node is connected again;
//! - a change is reported but the lock is still held, after a renewal: asleep again;
//! - a change is reported, or the ttl ends, while it backs off: it acts on that afterwards;
//! - the count of the waiters, including this one, would expire: it asks, which keeps the count alive;
//! - readers share the lock: each that comes, renews or leaves is a change. A writer *gathers* these, for longer the more
//!   often it was told in vain. A reader that a writer keeps off does not ask for the lock before it was *quiet* for longer
//!   than that: had it found the lock free, the writer would have it by then;
//! - dropped anywhere: it holds only an entry in the tracking.
//!
//! With several nodes no waiter makes an attempt before a quorum is known to be free. A minority's grant is deleted
//! again, but raises the fence there. The holder then cannot put its lock back on a node that has lost it.
//!
//! While this process itself holds the lock, its front *watches* ([`Wakeup::gone`]): it probes, is not counted, and
//! makes no attempt before the key is gone.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::counted::{Asking, Count};
use crate::net::ballots::Ballots;
use crate::net::connections::Connections;
use crate::net::round::Round;
use crate::net::tracking::{KeyWatch, Versions};
use crate::process::context::LockContext;
use crate::process::nodes::NodeSet;
use crate::process::waiters::Ends;
use crate::protocol::backoff;
use crate::protocol::positions::Positions;
use crate::protocol::quorum::{NodeMask, quorum};
use crate::protocol::request::{Action, KeyState, Reply, Request};
use crate::protocol::token::Token;
use crate::sys::clock::Moment;

/// How often a reader leaves the lock to a writer although no node has reported that one has it.
const DEFERENCES_MOST: usize = 10;

/// The nodes' states since the last attempt.
#[derive(Debug)]
struct Probed {
    /// Where the lock is free.
    free: NodeMask,
    /// Those that did not answer the last probe.
    silent: NodeMask,
}

/// The front's knowledge of the nodes.
#[derive(Debug)]
pub(crate) struct Wakeup {
    pub(super) context: LockContext,
    pub(super) connections: Arc<Connections>,
    pub(crate) key_watch: KeyWatch,
    seen: Versions,
    /// Which try made the connection to each node.
    made: Vec<u64>,
    /// When it was last told the key's state.
    asked: Moment,
    /// How often it was denied.
    pub(super) denials: u32,
    /// How often in a row a slot looked free at once, and was not won.
    pub(super) in_vain: u32,
}

impl Wakeup {
    /// Makes it for `connections` of `set`.
    pub(crate) fn new(context: LockContext, set: &NodeSet, connections: Arc<Connections>) -> Self {
        let keys = &context.spec.keys;
        // Who waits for a slot is told by the bell, not by every renewal of every slot.
        let watched = keys.each().map(|keys| keys.bell().unwrap_or(&keys.lock));
        let key_watch = set.tracking.on(keys.line(), watched, connections.members.len());
        let (seen, made, asked) = (key_watch.seen(), connections.made(), connections.clock.now());
        Self { context, connections, key_watch, seen, made, asked, denials: 0, in_vain: 0 }
    }

    /// Takes the current versions and connections: later ones wake the waiter.
    pub(crate) fn note(&mut self) {
        (self.seen, self.made) = (self.key_watch.seen(), self.connections.made());
    }

    /// Sleeps after an attempt without a quorum until `until`, or until a node is connected again. Cancel safe.
    ///
    /// A change of the key does not end it. The attempts of others change the key too, so waiters that cannot win would
    /// wake each other without a pause.
    pub(crate) async fn sleep(&self, until: Moment) {
        self.connections.clock.timeout_at(until, pin!(self.connections.connected_since(&self.made))).await;
    }

    /// Waits for a change. Returns the nodes that may have changed, and the versions seen; `None` at `until`.
    async fn news(&self, until: Moment) -> Option<(NodeMask, Versions)> {
        self.connections.clock.timeout_at(until, pin!(self.key_watch.changed(&self.seen))).await
    }

    /// Sleeps after a lost attempt until another one is worth it, for the time of `pause` at least, but not beyond
    /// `limit`.
    pub(crate) async fn wait(&mut self, ballots: &Ballots, pause: Duration, positions: &Arc<Positions>, limit: Moment) {
        let nodes = self.connections.members.len();
        let clock = self.connections.clock.clone();
        self.denials = self.denials.saturating_add(1);
        self.asked = clock.now();
        let mut probed = Probed { free: ballots.freed, silent: NodeMask::NONE };
        let mut end = ballots.ttl_left.map(|left| clock.now().after(left));
        clock.sleep_until(clock.now().after(pause).min(limit)).await;
        let mut polls = 0;
        // If no quorum answers, or quarantine leaves none, an attempt has to show it.
        while !self.is_quiet(&mut probed, positions, limit).await && self.may_grant(probed.silent) {
            let ttl_left = end.map(|end| end.since(clock.now()));
            let reported = if self.is_told() {
                self.reported(probed.free, ttl_left, positions, limit).await
            } else {
                self.poll(polls, ttl_left, limit).await;
                polls += 1;
                None
            };
            if nodes == 1 && !positions.are_held_off() || reported.is_none() && clock.now() >= limit {
                return;
            }
            let asked = reported.unwrap_or(NodeMask::all(nodes));
            let seen = self.probe(asked, &mut probed, Some(positions), limit).await.map(|left| clock.now().after(left));
            self.asked = clock.now();
            // A probe of some nodes does not show when the other keys expire.
            let before = if asked == NodeMask::all(nodes) { None } else { end };
            end = before.into_iter().chain(seen).min();
        }
    }

    /// Returns whether a quorum of nodes reports changes.
    pub(crate) fn is_told(&self) -> bool {
        self.connections.tracking_nodes().len() >= quorum(self.connections.members.len())
    }

    /// Sleeps after a look, without the pauses that keep apart those who then take the lock: until a change, or the
    /// backstop. Where no quorum reports, pauses as after so many `polls`.
    pub(crate) async fn wait_for_change(&mut self, polls: u32, ttl_left: Option<Duration>, limit: Moment) {
        if self.is_told() {
            let backstop = backoff::backstop(ttl_left, self.context.process.random.unit());
            self.changes(NodeMask::NONE, self.connections.clock.now().after(backstop).min(limit)).await;
        } else {
            self.poll(polls, ttl_left, limit).await;
        }
    }

    /// Pauses before the nodes are asked without a report, for longer each time: after a denial or one of `polls`.
    pub(crate) async fn poll(&self, polls: u32, ttl_left: Option<Duration>, limit: Moment) {
        let clock = &self.connections.clock;
        let attempt = self.denials.saturating_add(polls);
        let pause = backoff::contended(attempt, self.context.process.random.unit(), ttl_left);
        clock.sleep_until(clock.now().after(pause).min(limit)).await;
    }

    /// Waits for reports. Returns the nodes that changed, or `None` at the backstop.
    pub(super) async fn reported(
        &mut self,
        free: NodeMask,
        ttl_left: Option<Duration>,
        positions: &Positions,
        limit: Moment,
    ) -> Option<NodeMask> {
        let now = self.connections.clock.now();
        let backstop = now.after(backoff::backstop(ttl_left, self.context.process.random.unit()));
        let changed = self.changes(free, backstop.min(positions.due(now)).min(limit)).await?;
        Some(changed.union(self.pause(positions, limit).await))
    }

    /// Waits until a quorum of nodes does not have the key any more, while this process has `lease`; at most until
    /// `limit`. Most locks are released before the first probe. A lock that is renewed or ends before the next probe
    /// reports its loss itself: the nodes are not asked then. Cancel safe.
    pub(crate) async fn gone(&mut self, lease: &dyn Ends, limit: Moment) {
        let (clock, random) = (self.connections.clock.clone(), self.context.process.random.clone());
        let all = NodeMask::all(self.connections.members.len());
        let mut probed = Probed { free: NodeMask::NONE, silent: NodeMask::NONE };
        self.note();
        let mut changed = NodeMask::NONE;
        while !self.is_enough(probed.free) {
            let until = clock.now().after(backoff::backstop(None, random.unit()));
            // A node reports changes only after a probe.
            changed = match self.changes(probed.free, until.min(limit)).await {
                Some(more) if changed != NodeMask::NONE => more,
                _ => all,
            };
            if clock.now() >= limit {
                return;
            }
            if lease.valid_until() <= clock.now().after(backoff::backstop(None, 0.0)) {
                changed = NodeMask::NONE;
                continue;
            }
            self.connections.connect_quorum(self.connections.connect_limit().min(limit)).await;
            self.probe(changed, &mut probed, None, limit).await;
        }
    }

    /// Returns whether an attempt may win with these nodes `free`. A quarantined node would grant in vain.
    fn is_enough(&self, free: NodeMask) -> bool {
        let counts = self.counts();
        free.nodes().filter(|node| counts.contains(*node)).count() >= quorum(self.connections.members.len())
    }

    /// Returns whether a quorum of nodes may grant soon: they count and are not `silent`.
    fn may_grant(&self, silent: NodeMask) -> bool {
        let grants = self.counts().nodes().filter(|node| !silent.contains(*node));
        grants.count() >= quorum(self.connections.members.len())
    }

    fn counts(&self) -> NodeMask {
        let restart_delay = self.context.spec.settings.restart_delay;
        self.connections.members.health.counts(restart_delay, self.connections.clock.now())
    }

    /// Returns the changed nodes: as many as make a quorum with the `free` ones, or those that report within a moment.
    /// A release reaches the nodes at about the same time. Returns `None` if there was no change `until` then.
    async fn changes(&mut self, free: NodeMask, until: Moment) -> Option<NodeMask> {
        let mut until = until;
        let mut changed = NodeMask::NONE;
        while let Some((more, seen)) = self.news(until).await {
            self.seen = seen;
            if changed == NodeMask::NONE {
                until = until.min(self.connections.clock.now().after(backoff::NOTIFICATION_WINDOW));
            }
            changed = changed.union(more);
            if changed.union(free).len() >= quorum(self.connections.members.len()) {
                break;
            }
        }
        (changed != NodeMask::NONE).then_some(changed)
    }

    /// Pauses so that waiters do not all ask at once, and do not ask for each change of a lock that many share. Returns the
    /// nodes that changed meanwhile.
    async fn pause(&mut self, positions: &Positions, limit: Moment) -> NodeMask {
        let (clock, random) = (&self.connections.clock, &self.context.process.random);
        let position = positions.position(quorum(self.connections.members.len()));
        let pause = backoff::wake_delay(position, self.denials, random.unit());
        let mut until = clock.now().after(pause);
        let in_vain = positions.in_vain();
        if in_vain > 0 {
            until = until.max(self.asked.after(backoff::gather(in_vain, random.unit())));
        } else if positions.are_held_off() {
            until = until.max(clock.now().after(backoff::deference(random.unit())));
        }
        if until > clock.now() {
            clock.sleep_until(until.min(limit)).await;
        }
        self.more()
    }

    /// Returns the nodes that have changed since it looked last.
    fn more(&mut self) -> NodeMask {
        let (changed, seen) = self.key_watch.since(&self.seen);
        self.seen = seen;
        changed
    }

    /// Returns whether the lock is free on enough nodes, and for a reader that a writer kept off, whether no node has reported
    /// a change since for longer than the writer needs. Where other readers renew all the time, it does not wait for that.
    async fn is_quiet(&mut self, probed: &mut Probed, positions: &Arc<Positions>, limit: Moment) -> bool {
        for _ in 0..DEFERENCES_MOST {
            if !self.is_enough(probed.free) || !positions.are_held_off() {
                break;
            }
            let changed = self.quiet(limit).await;
            if changed == NodeMask::NONE || self.connections.clock.now() >= limit {
                break;
            }
            self.probe(changed, probed, Some(positions), limit).await;
        }
        self.is_enough(probed.free)
    }

    /// Waits for longer than a writer needs that has heard of the last change. Returns the nodes that changed meanwhile.
    async fn quiet(&mut self, limit: Moment) -> NodeMask {
        let clock = &self.connections.clock;
        let deference = backoff::deference(self.context.process.random.unit());
        clock.sleep_until(clock.now().after(deference).min(limit)).await;
        self.more()
    }

    /// Leaves the lock, as a reader whose process has just had it, to writers that were waiting then.
    pub(crate) async fn defer(&mut self, positions: &Arc<Positions>, limit: Moment) {
        self.connections.connect_quorum(self.connections.connect_limit().min(limit)).await;
        self.note();
        let mut probed = Probed { free: NodeMask::NONE, silent: NodeMask::NONE };
        // The nodes report changes after that.
        self.probe(NodeMask::all(self.connections.members.len()), &mut probed, Some(positions), limit).await;
        if self.is_enough(probed.free) {
            self.quiet(limit).await;
        }
    }

    /// Asks the nodes of `mask` whether the lock is held there, and records their answers. Returns the shortest
    /// remaining ttl. With `positions`, the waiter is counted and its positions recorded.
    async fn probe(
        &self,
        mask: NodeMask,
        probed: &mut Probed,
        positions: Option<&Arc<Positions>>,
        limit: Moment,
    ) -> Option<Duration> {
        let round = Round::untraced(&self.connections, self.context.spec.settings.node_timeout, limit);
        let count = positions.map(|positions| Count::new(&self.context, &self.connections, positions));
        let mut asking = Asking::new(round, count);
        let token = Token::fresh(&self.context.process.random);
        for node in mask.nodes() {
            probed.free = probed.free.without(node);
            probed.silent = probed.silent.with(node);
            let round = asking.round();
            if !round.leaves_out(node) {
                let counted = |positions: &Arc<Positions>| Action::Peek { wants: positions.asks(node, round.started) };
                let action = positions.map_or(Action::Inspect { asks: false }, counted);
                round.ask(node, Request { keys: Arc::clone(&self.context.spec.keys), token, action }, None);
            }
        }
        let mut least: Option<Duration> = None;
        while !self.is_enough(probed.free) {
            let Some((node, answer)) = asking.next().await else { break };
            let Ok(reply) = answer else { continue };
            probed.silent = probed.silent.without(node);
            match reply {
                Reply::Held { ttl_left, .. } | Reply::HeldOff { ttl_left, .. } => {
                    least = least.into_iter().chain(ttl_left).min();
                }
                Reply::Seen { state: KeyState::Free, .. } => probed.free = probed.free.with(node),
                _ => {}
            }
        }
        least
    }
}
