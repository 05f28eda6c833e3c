//! A lane: the connections to one set of nodes on one runtime.
//!
//! Every slot is one of: *empty* (no connection; after a failure not before `retry_at` unless a quorum needs it),
//! *connecting* (one task of the lane's runtime, at most [`CONNECT_LIMIT`]) or *ready*. What may interrupt it:
//!
//! - the caller is cancelled: connecting goes on in its own task, the next caller finds it further on;
//! - the runtime ends: its tasks are dropped, which empties a connecting slot and marks the lane as dead, so that the
//!   next caller builds another (a runtime's id may be given to a later runtime);
//! - the connection breaks: seen by the request that fails on it, which empties the slot; in the background also at
//!   once, and again when there is a new one, for whoever holds locks there;
//! - the node is silent: a second miss in a row empties the slot, or a black hole would be kept for ever;
//! - nobody drives the runtime (a caller-driven lane between two calls): everything above waits, nothing is lost;
//! - a caller's future is never polled again: what it asked counts as asked for [`ASKED`], and keeps nobody else back.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::address::Address;
use crate::backoff;
use crate::clock::{Clock, Moment};
use crate::deadline::Deadlines;
use crate::node::health::Health;
use crate::node::{Connection, Ear, Failure, Heard, Node};
use crate::quorum::{Mask, quorum};
use crate::random::Random;
use crate::spawn::spawn;

/// Longest time for one connection: name look-up, handshake, credentials and the node's introduction.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// How long a request counts as on its way. Whoever made it may never look for the answer.
const ASKED: Duration = Duration::from_secs(1);

/// How long a node may owe an answer, while others give theirs, before it is the last to be written to.
const BEHIND: Duration = Duration::from_millis(10);

/// Misses in a row after which a connection is given up.
const MISSES_MAX: u32 = 2;

/// The nodes of a set and what is known about them; shared by all lanes to them.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) nodes: Vec<Member>,
    pub(crate) health: Health,
}

/// One node under its address.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) address: Address,
}

impl Members {
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// The connections to one set of nodes on one runtime.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) members: Arc<Members>,
    pub(crate) clock: Clock,
    random: Random,
    runtime: Handle,
    slots: Vec<Slot>,
    /// The deadlines of the rounds on this lane.
    pub(crate) deadlines: Arc<Deadlines>,
    /// Who is told what is heard of the nodes while nobody asks. Only a lane that is driven all the time can tell.
    audience: Option<Audience>,
    /// Some slot has become ready or empty.
    changed: Notify,
    sentinel: Sentinel,
}

/// What is heard of a node while nobody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News<'a> {
    /// A connection has ended, or is back after one has: the node may have forgotten what it knew, or changed anything
    /// unheard.
    Upset,
    /// This key has changed.
    Changed(&'a [u8]),
    /// Any key may have changed.
    AllChanged,
}

/// Who is told: must neither block nor panic.
pub(crate) struct Audience {
    tell: Box<dyn Fn(usize, News<'_>) + Send + Sync>,
    watches: bool,
}

impl Audience {
    /// With `watches` the nodes are asked to tell of changed keys, each key that is read on the lane once.
    pub(crate) fn new(watches: bool, tell: impl Fn(usize, News<'_>) + Send + Sync + 'static) -> Self {
        Self { tell: Box::new(tell), watches }
    }
}

impl fmt::Debug for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audience").field("watches", &self.watches).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Slot {
    state: Mutex<State>,
    misses: AtomicU32,
    /// Requests on their way whose fate is still watched.
    outstanding: AtomicU32,
    /// When the last of them was made, in nanoseconds.
    asked: AtomicU64,
    /// When the first of them was made that found no other on its way, in nanoseconds.
    owing: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Connection>,
    connecting: bool,
    /// Finished tries to connect, so that a waiter can tell a new failure from an old one.
    tries: u64,
    failures: u32,
    retry_at: Moment,
    failure: Option<Failure>,
    /// Whether there was a connection before, so that the next one may lead to a node that has forgotten.
    is_again: bool,
    /// Whether the node tells of changed keys on the connection.
    watched: bool,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while holding this")
    }
}

/// A task that ends with the runtime, and what it leaves behind.
#[derive(Debug)]
struct Sentinel {
    alive: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Sentinel {
    fn watch(runtime: &Handle) -> Self {
        struct Last(Arc<AtomicBool>);
        impl Drop for Last {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        let alive = Arc::new(AtomicBool::new(true));
        let last = Last(Arc::clone(&alive));
        let task = spawn(runtime, async move {
            let _last = last;
            std::future::pending::<()>().await;
        });
        Self { alive, task }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Lane {
    pub(crate) fn new(
        members: Arc<Members>,
        clock: Clock,
        random: Random,
        runtime: Handle,
        audience: Option<Audience>,
    ) -> Self {
        let slots = (0..members.len()).map(|_| Slot::default()).collect();
        let sentinel = Sentinel::watch(&runtime);
        let deadlines = Arc::new(Deadlines::new(runtime.clone()));
        Self { members, clock, random, runtime, slots, deadlines, audience, changed: Notify::new(), sentinel }
    }

    /// Whether this lane is of `runtime` and that runtime still runs.
    pub(crate) fn is_of(&self, runtime: &Handle) -> bool {
        self.runtime.id() == runtime.id() && self.is_alive()
    }

    /// Whether this lane's nodes are asked to tell of changed keys.
    pub(crate) fn watches(&self) -> bool {
        self.audience.as_ref().is_some_and(|audience| audience.watches)
    }

    /// The nodes that will tell of the next change of every key that was read on this lane.
    pub(crate) fn watched(&self) -> Mask {
        let is_watched = |node: &usize| {
            let state = self.slots[*node].state();
            state.watched && state.connection.is_some()
        };
        (0..self.slots.len()).filter(is_watched).fold(Mask::NONE, Mask::with)
    }

    pub(crate) fn runtime_id(&self) -> Id {
        self.runtime.id()
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.sentinel.alive.load(Ordering::Acquire)
    }

    /// Runs `task` on the lane's runtime, where its connections are driven.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(spawn(&self.runtime, task));
    }

    /// The connection to `node`, if there is one.
    pub(crate) fn connection(&self, node: usize) -> Option<Connection> {
        self.slots[node].state().connection.clone()
    }

    /// Whether `connection` is the one that this lane has to `node`.
    pub(crate) fn is_over(&self, node: usize, connection: &Connection) -> bool {
        self.slots[node].state().connection.as_ref().is_some_and(|current| current.same(connection))
    }

    /// How many nodes could be asked at once.
    fn ready_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.state().connection.is_some()).count()
    }

    /// Waits until a quorum is connected, until no more can be, or until `limit`. Starts connecting to every node that
    /// is not connected; those that a quorum does not need are not waited for, and not tried before `retry_at`.
    /// Cancel safe.
    pub(crate) async fn open(self: &Arc<Self>, limit: Moment) {
        let needed = quorum(self.slots.len());
        let ready = self.ready_count();
        if ready == self.slots.len() {
            return;
        }
        let impatient = ready < needed;
        for node in 0..self.slots.len() {
            self.start_connecting(node, impatient);
        }
        let mut timer = pin!(self.clock.sleep_until(limit));
        while self.ready_count() < needed {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let connecting = self.slots.iter().any(|slot| slot.state().connecting);
            if self.ready_count() >= needed || !connecting {
                return;
            }
            let in_time = poll_fn(|cx| {
                if changed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(true);
                }
                timer.as_mut().poll(cx).map(|()| false)
            });
            if !in_time.await {
                return;
            }
        }
    }

    /// The connection to `node`, waiting for one that is being made. Fails at once with the last failure while the
    /// node is left alone after it. Cancel safe.
    pub(crate) async fn ready(self: &Arc<Self>, node: usize) -> Result<Connection, Failure> {
        self.start_connecting(node, false);
        let tries = self.slots[node].state().tries;
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.slots[node].state();
                if let Some(connection) = &state.connection {
                    return Ok(connection.clone());
                }
                if !state.connecting || state.tries != tries {
                    return Err(state.failure.clone().unwrap_or(Failure::Closed));
                }
            }
            changed.await;
        }
    }

    fn start_connecting(self: &Arc<Self>, node: usize, impatient: bool) {
        {
            let mut state = self.slots[node].state();
            let early = !impatient && state.retry_at > self.clock.now();
            if state.connection.is_some() || state.connecting || early {
                return;
            }
            state.connecting = true;
        }
        let attempt = Connecting { lane: Arc::clone(self), node, finished: false };
        self.spawn(async move { attempt.run().await });
    }

    /// What hears of the end of the connection that is being made to `node`.
    fn ear(self: &Arc<Self>, node: usize) -> Option<Ear> {
        let watches = self.audience.as_ref()?.watches;
        let number = self.slots[node].state().tries + 1;
        let lane = Arc::downgrade(self);
        Some(Ear::new(watches, move |heard| {
            let Some(lane) = lane.upgrade() else { return };
            match heard {
                Heard::Ended => lane.ended(node, number),
                Heard::Changed(key) => lane.tell(node, News::Changed(key)),
                Heard::AllChanged => lane.tell(node, News::AllChanged),
            }
        }))
    }

    /// The connection to `node` that was made with this try has ended while nobody asked: at once a new one.
    fn ended(self: &Arc<Self>, node: usize, number: u64) {
        let dropped = {
            let mut state = self.slots[node].state();
            if state.tries == number { state.connection.take() } else { None }
        };
        if dropped.is_some() {
            self.start_connecting(node, true);
            self.tell(node, News::Upset);
        }
    }

    fn tell(&self, node: usize, news: News<'_>) {
        if let Some(audience) = &self.audience {
            (audience.tell)(node, news);
        }
    }

    fn connected(&self, node: usize, result: Result<(Connection, bool), Failure>) {
        let slot = &self.slots[node];
        let mut is_back = false;
        {
            let mut state = slot.state();
            state.connecting = false;
            state.tries += 1;
            match result {
                Ok((connection, watched)) => {
                    state.watched = watched;
                    // Those who wait have not been told of anything by a node that was not there when they asked.
                    is_back = std::mem::replace(&mut state.is_again, true) || self.watches();
                    state.connection = Some(connection);
                    state.failures = 0;
                    state.failure = None;
                    slot.misses.store(0, Ordering::Relaxed);
                }
                Err(failure) => {
                    tracing::debug!(node = %self.members.nodes[node].address, %failure, "no connection");
                    let delay = backoff::reconnect(state.failures, self.random.unit());
                    state.failures = state.failures.saturating_add(1);
                    state.retry_at = self.clock.now().after(delay);
                    state.failure = Some(failure);
                }
            }
        }
        self.changed.notify_waiters();
        if is_back {
            self.tell(node, News::Upset);
        }
    }

    /// A reply from `node` was read.
    pub(crate) fn heard(&self, node: usize) {
        self.slots[node].misses.store(0, Ordering::Relaxed);
        self.members.health.heard(node, self.clock.now());
    }

    /// `node` did not answer in time. Its connection goes after the second miss in a row.
    pub(crate) fn missed(&self, node: usize) {
        self.members.health.missed(node);
        if self.slots[node].misses.fetch_add(1, Ordering::Relaxed) + 1 >= MISSES_MAX {
            self.slots[node].misses.store(0, Ordering::Relaxed);
            self.renounce(node);
        }
    }

    /// `connection` to `node` is of no more use.
    pub(crate) fn broken(&self, node: usize, connection: &Connection) {
        let mut state = self.slots[node].state();
        if state.connection.as_ref().is_some_and(|current| current.same(connection)) {
            let dropped = state.connection.take();
            drop(state);
            drop(dropped);
        }
    }

    /// Gives up the connection to `node`, so that the next one asks anew who answers there.
    pub(crate) fn renounce(&self, node: usize) {
        let dropped = self.slots[node].state().connection.take();
        drop(dropped);
    }

    /// `node` granted. Replicas cannot: one that does was promoted after this connection asked it who it is, and would
    /// not count for as long as the connection lasts. The next one asks anew.
    pub(crate) fn granted(&self, node: usize) {
        if self.members.health.objection(node, Duration::ZERO, self.clock.now()) == Some(Failure::Replica) {
            self.renounce(node);
        }
    }

    /// Whether a request to `node` is on its way and still watched.
    pub(crate) fn is_asked(&self, node: usize) -> bool {
        let slot = &self.slots[node];
        let asked = Moment::from_nanos(slot.asked.load(Ordering::Relaxed));
        slot.outstanding.load(Ordering::Relaxed) > 0 && self.clock.now() < asked.after(ASKED)
    }

    /// Whether `node` has owed an answer for longer than [`BEHIND`], up to the last answer of any node: while nobody reads
    /// answers, nobody falls behind. No count of what is owed would do: callers who want one lock would write to the nodes
    /// in orders of their own, and the votes would be split.
    pub(crate) fn is_behind(&self, node: usize) -> bool {
        let slot = &self.slots[node];
        slot.outstanding.load(Ordering::Relaxed) > 0
            && self.members.health.is_behind(node, Moment::from_nanos(slot.owing.load(Ordering::Relaxed)), BEHIND)
    }

    /// Counts a request to `node` until the value returned is dropped.
    pub(crate) fn watch(self: &Arc<Self>, node: usize) -> Watched {
        let slot = &self.slots[node];
        let now = self.clock.now().nanos();
        if slot.outstanding.fetch_add(1, Ordering::Relaxed) == 0 {
            slot.owing.store(now, Ordering::Relaxed);
        }
        slot.asked.store(now, Ordering::Relaxed);
        Watched { lane: Arc::clone(self), node }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.deadlines.end();
    }
}

/// One request on its way.
#[derive(Debug)]
pub(crate) struct Watched {
    lane: Arc<Lane>,
    node: usize,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.lane.slots[self.node].outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One try to connect. Dropping it, finished or not, leaves the slot in order.
struct Connecting {
    lane: Arc<Lane>,
    node: usize,
    finished: bool,
}

impl Connecting {
    async fn run(mut self) {
        let (lane, node) = (Arc::clone(&self.lane), self.node);
        let mut connect = pin!(lane.members.nodes[node].node.connect(&lane.clock, lane.ear(node)));
        let mut timer = pin!(lane.clock.sleep(CONNECT_LIMIT));
        let result = poll_fn(|cx| {
            if let Poll::Ready(result) = connect.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            timer.as_mut().poll(cx).map(|()| Err(Failure::Silent(CONNECT_LIMIT)))
        });
        let result = result.await;
        match &result {
            Ok((_, introduction)) => {
                lane.members.health.introduced(node, introduction, lane.clock.now());
                lane.heard(node);
            }
            Err(Failure::Silent(_)) => lane.members.health.missed(node),
            Err(failure) if failure.is_answer() => lane.heard(node),
            Err(_) => {}
        }
        self.finished = true;
        lane.connected(node, result.map(|(connection, introduction)| (connection, introduction.watched)));
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if !self.finished {
            self.lane.connected(self.node, Err(Failure::Closed));
        }
    }
}
