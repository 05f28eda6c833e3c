//! The connections of one runtime to one set of nodes.
//!
//! States of a slot, which is for one node:
//!
//! - *empty*: it has no connection, but keeps the failure if its node may not be connected to now.
//! - *waiting*: one task on the runtime waits for the node's [`Pace`](crate::node::pace::Pace), shared by all
//!   connections of the process, to permit a connect.
//! - *connecting*: the same task connects, for at most `connect_timeout`.
//! - *ready*: it has a connection.
//! - *asking again*: its node refused something, so it connects once more after a while, and keeps its connection until
//!   there is a better one.
//!
//! What may interrupt it:
//!
//! - Sentinels name another server: the slot is emptied, a connect to the server before is given up, and a connection
//!   to it is not used even if it is made.
//! - A later connection to the node leads to another server: the slot is emptied.
//! - Another connect to the node fails meanwhile: the pace refuses, which empties the slot, with that failure.
//! - The caller is cancelled: connecting goes on in its own task, for the next caller.
//! - The runtime ends: its tasks are dropped, which empties a connecting slot and marks the connections as dead. The
//!   next caller builds others, because a later runtime may get the same id.
//! - The connection breaks: the request that fails on it empties the slot. In the background it is emptied at once, and
//!   the event sinks are notified of that and of the next connection. If it worked, [`mend`] retries for some seconds.
//! - The node is silent: a second miss in a row empties the slot, or a black hole would be kept for ever. On a connection
//!   that was *idle*, the first miss does. A request on it also has another connection made, and where that comes first,
//!   it is in the place of the idle one, which a middlebox has forgotten: see [`Connections::unless_forgotten`].
//! - The runtime is not driven, as between two blocking calls: everything above waits, and no state is lost.
//! - A caller never polls its future again: its requests stop counting after a second and block no other
//!   caller.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::net::member::Member;
use crate::net::slot::{Slot, State};
use crate::net::timers::Deadlines;
use crate::node::Connection;
use crate::node::event::{EventSink, NodeEvent};
use crate::node::health::Health;
use crate::node::identity::ServerInfo;
use crate::node::pace::{self, Leave};
use crate::protocol::cluster::Redirect;
use crate::protocol::place::Place;
use crate::protocol::quorum::{NodeMask, quorum};
use crate::protocol::request::{Keys, Reply};
use crate::sys::clock::{Clock, Moment, SharedMoment};
use crate::sys::event_loop::EventLoop;
use crate::sys::future::notified_until;
use crate::sys::handover::Handover;
use crate::sys::lifeline::Lifeline;
use crate::sys::log::log;
use crate::sys::mutex::Mutex;
use crate::sys::on_drop::OnDrop;
use crate::sys::random::Random;
use crate::sys::task::spawn;
use crate::transport::failure::Failure;
use crate::transport::logins::{Follower, Logins};

/// How long a node may lag behind the answers of others before it is written to last.
const LAG_LIMIT: Duration = Duration::from_millis(10);

/// The pause after a failed try to replace a connection on which the node refused something.
const AGAIN: Duration = Duration::from_secs(60);

/// How often the background reconnects after a connection ended: for some seconds, with pauses that double up to a
/// second.
const MENDS_MOST: u32 = 8;

/// The part of `node_timeout` for which a request on an idle connection is awaited before another connection is made.
/// Nearly every connection still works, and is not to be replaced for every caller that comes now and then.
const HEAD_START: u32 = 4;

/// The nodes of a set and what is known about them, shared by all connections to them.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) nodes: Vec<Member>,
    pub(crate) health: Arc<Health>,
    /// The limit for one connection: name look-up, handshake, credentials and server info.
    pub(crate) connect_timeout: Duration,
    /// The logins of the provider, if there is one.
    pub(crate) logins: Option<Arc<Logins>>,
    /// Says where a cluster's slots are, if there is a cluster among the nodes.
    pub(crate) router: Option<Weak<dyn Router>>,
}

/// Says which servers of clusters stand for the nodes.
pub(crate) trait Router: fmt::Debug + Send + Sync {
    /// Returns the server that `redirect` of `node` names.
    fn place(&self, from: &Connections, node: usize, redirect: &Redirect) -> Place;

    /// Learns from `node` that a slot is elsewhere, and returns where.
    fn moved(&self, from: &Connections, node: usize, redirect: &Redirect) -> Place;

    /// Returns connections of the same kind as `like` to the set in which `place` stands for `node`.
    fn connections(&self, like: &Connections, node: usize, place: &Place, keys: &Keys) -> Option<Arc<Connections>>;

    /// Learns that something is wrong with `node`.
    fn doubt(&self, from: &Connections, node: usize);
}

impl Members {
    pub(crate) fn new(
        nodes: Vec<Member>,
        connect_timeout: Duration,
        logins: Option<Arc<Logins>>,
        clock: &Clock,
    ) -> Self {
        let known = nodes.iter().map(|member| (Arc::clone(&member.endpoint), member.address.to_string()));
        let health = Health::new(known, clock.clone());
        Self { nodes, health, connect_timeout, logins, router: None }
    }

    /// Returns the routes of its clusters, if there are any.
    pub(crate) fn router(&self) -> Option<Arc<dyn Router>> {
        self.router.as_ref().and_then(Weak::upgrade)
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the address of a node, as it is shown.
    pub(crate) fn address(&self, node: usize) -> String {
        self.nodes[node].address.to_string()
    }
}

/// The way of a request to a node.
#[derive(Debug)]
pub(crate) struct Via {
    pub(crate) connection: Connection,
    /// Whether nothing was heard on it for so long that it may not exist any more.
    pub(crate) is_idle: bool,
}

impl Via {
    /// Returns the way over a connection that is new, was answered just now, or belongs to another runtime.
    pub(crate) fn unwatched(connection: Connection) -> Self {
        Self { connection, is_idle: false }
    }
}

/// The connections of one runtime to one set of nodes.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) members: Arc<Members>,
    pub(crate) clock: Clock,
    random: Random,
    pub(crate) runtime: Handle,
    slots: Vec<Slot>,
    /// The deadlines of the rounds on these connections.
    pub(crate) deadlines: Arc<Deadlines>,
    /// One event sink per node. Empty unless the runtime is always driven, because events would not be read.
    events: Vec<EventSink>,
    /// Notified when a try to connect ends.
    changed: Notify,
    /// When the first ready slot connects again.
    again: SharedMoment,
    lifeline: Lifeline,
}

/// All connections to one set of nodes.
pub(crate) type AllConnections = Mutex<Vec<Arc<Connections>>>;

impl Connections {
    /// Makes connections on `runtime`. They leave `all` when that ends.
    pub(crate) fn new(
        members: Arc<Members>,
        clock: Clock,
        random: Random,
        runtime: Handle,
        events: Vec<EventSink>,
        all: Weak<AllConnections>,
    ) -> Self {
        let slots = (0..members.len()).map(|_| Slot::default()).collect();
        // Dropped with the runtime, whose event queue they keep open.
        let lifeline = Lifeline::watch(&runtime, move || {
            let Some(all) = all.upgrade() else { return };
            // If it is locked, whoever makes the next connections drops these.
            let ended = all.try_lock().map(|mut all| all.extract_if(.., |one| !one.is_alive()).collect::<Vec<_>>());
            drop(ended);
        });
        let deadlines = Arc::new(Deadlines::new(runtime.clone()));
        let (changed, again) = (Notify::new(), SharedMoment::new(Moment::NEVER));
        Self { members, clock, random, runtime, slots, deadlines, events, changed, again, lifeline }
    }

    /// Has the map of `node`'s cluster asked for again, because something is wrong with it.
    pub(crate) fn doubt(&self, node: usize) {
        if let Some(router) = self.members.router() {
            router.doubt(self, node);
        }
    }

    /// Whether these connections belong to `runtime` and it still runs.
    pub(crate) fn is_of(&self, runtime: &Handle) -> bool {
        self.runtime.id() == runtime.id() && self.is_alive()
    }

    /// Whether the nodes are asked to report changed keys.
    pub(crate) fn is_tracking(&self) -> bool {
        self.events.first().is_some_and(EventSink::tracks)
    }

    /// Returns the nodes that will report the next change of every key read on these connections.
    pub(crate) fn tracking_nodes(&self) -> NodeMask {
        let is_watched = |node: &usize| self.slots[*node].is_watched();
        (0..self.slots.len()).filter(is_watched).fold(NodeMask::NONE, NodeMask::with)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.lifeline.is_alive()
    }

    /// Runs `task` on the runtime, where the connections are driven.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(spawn(&self.runtime, task));
    }

    /// Runs `task` like [`spawn`](Self::spawn), but begins it at once on a thread that is in an event loop, which may read
    /// the answers that it awaits.
    pub(crate) fn spawn_near(&self, task: impl Future<Output = ()> + Send + 'static) {
        if EventLoop::is_any_entered() {
            drop(Handover::begin(&self.runtime, Box::pin(task)));
        } else {
            self.spawn(task);
        }
    }

    /// Returns the connection to `node`, if any.
    pub(crate) fn current(&self, node: usize) -> Option<Connection> {
        self.slots[node].state.lock().connection.clone()
    }

    /// Returns the way to `node` over the current connection, if there is one.
    pub(crate) fn via(&self, node: usize, now: Moment) -> Option<Via> {
        let slot = &self.slots[node];
        let state = slot.state.lock();
        let connection = state.connection.clone()?;
        // Under the lock, or it could be replaced meanwhile, and the answer would be about the one in its place.
        Some(Via { connection, is_idle: slot.is_idle(now) })
    }

    /// Returns the way to `node` over `connection`, if that is current.
    pub(crate) fn via_current(&self, node: usize, connection: &Connection) -> Option<Via> {
        self.via(node, self.clock.now()).filter(|via| via.connection.same(connection))
    }

    /// Whether `connection` is the current one to `node`.
    pub(crate) fn is_current(&self, node: usize, connection: &Connection) -> bool {
        self.slots[node].state.lock().connection.as_ref().is_some_and(|current| current.same(connection))
    }

    /// Returns which try made the connection to each node; zero without one.
    pub(crate) fn made(&self) -> Vec<u64> {
        let made = |slot: &Slot| {
            let state = slot.state.lock();
            if state.connection.is_some() { state.made.0 } else { 0 }
        };
        self.slots.iter().map(made).collect()
    }

    /// Completes when a node has another connection than in `seen`, which [`made`](Self::made) returned. Cancel safe.
    pub(crate) async fn connected_since(&self, seen: &[u64]) {
        let is_new = |(now, seen): (u64, &u64)| now != 0 && now != *seen;
        notified_until(&self.changed, || self.made().into_iter().zip(seen).any(is_new).then_some(())).await;
    }

    /// Counts the nodes that are connected.
    fn ready_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.state.lock().connection.is_some()).count()
    }

    /// Returns when a connect that begins now is out of time.
    pub(crate) fn connect_limit(&self) -> Moment {
        self.clock.now().after(self.members.connect_timeout)
    }

    /// Waits until a quorum is connected, until no more can be, or until `limit`. Cancel safe.
    ///
    /// Starts connecting to every node that is not connected. Nodes that a quorum does not need are not waited for, and
    /// are tried less often while they fail.
    pub(crate) async fn connect_quorum(self: &Arc<Self>, limit: Moment) {
        let needed = quorum(self.slots.len());
        let ready = self.ready_count();
        self.ask_again();
        if ready == self.slots.len() {
            return;
        }
        let connect = |urgent| (0..self.slots.len()).for_each(|node| self.start_connecting(node, urgent));
        if ready >= needed {
            return connect(false);
        }
        let is_over = || {
            connect(true);
            let is_connecting = self.slots.iter().any(|slot| slot.state.lock().connecting);
            (self.ready_count() >= needed || !is_connecting).then_some(())
        };
        loop {
            // While one node keeps the call waiting, another that failed may be back.
            let until = limit.min(self.clock.now().after(pace::GAP));
            let connected = pin!(notified_until(&self.changed, is_over));
            if self.clock.timeout_at(until, connected).await.is_some() || self.clock.now() >= limit {
                return;
            }
        }
    }

    /// Returns the connection to `node`, and waits for one that is being made. Cancel safe.
    ///
    /// Fails at once with the last failure during the pause after it, which is shorter if `urgent`.
    pub(crate) async fn get(self: &Arc<Self>, node: usize, urgent: bool) -> Result<Connection, Failure> {
        self.start_connecting(node, urgent);
        let tries = self.slots[node].state.lock().tries;
        notified_until(&self.changed, || {
            let state = self.slots[node].state.lock();
            if let Some(connection) = &state.connection {
                return Some(Ok(connection.clone()));
            }
            let is_over = !state.connecting || state.tries != tries;
            is_over.then(|| Err(state.failure.clone().unwrap_or(Failure::Closed)))
        })
        .await
    }

    /// Returns why `node` has not answered yet, if it is because no connection to it is made yet.
    pub(crate) fn why_unconnected(&self, node: usize) -> Option<Failure> {
        self.slots[node].why_unconnected(self.clock.now())
    }

    /// Gets the connection to `node` for a call that needs it, or says why there is none after `limit`.
    pub(crate) async fn get_within(self: &Arc<Self>, node: usize, limit: Duration) -> Result<Connection, Failure> {
        let connection = self.clock.timeout(limit, pin!(self.get(node, true))).await;
        connection.unwrap_or_else(|| Err(self.why_unconnected(node).unwrap_or(Failure::Silent(limit))))
    }

    /// Connects to `node` if the pace permits it, unless done or under way. A connect is `urgent` if a quorum needs it.
    fn start_connecting(self: &Arc<Self>, node: usize, urgent: bool) {
        let begun = {
            let mut state = self.slots[node].state.lock();
            if state.connection.is_some() || state.connecting {
                self.slots[node].urgent.fetch_or(urgent, Ordering::Relaxed);
                return;
            }
            let now = self.clock.now();
            let begun = match self.members.nodes[node].ask(now, urgent) {
                Leave::Granted => Some(now),
                Leave::Waits(_) => None,
                Leave::Refused(failure) => {
                    state.failure = Some(failure);
                    return;
                }
            };
            state.connecting = true;
            self.slots[node].urgent.store(urgent, Ordering::Relaxed);
            begun
        };
        self.spawn_connecting(node, begun);
    }

    fn spawn_connecting(self: &Arc<Self>, node: usize, begun: Option<Moment>) {
        self.slots[node].begun.set(Moment::default());
        let connections = Arc::clone(self);
        // However the task ends, the slot is left in order.
        let unfinished = OnDrop::new(move || connections.unconnected(node, Failure::Closed));
        self.spawn(Arc::clone(self).try_to_connect(node, begun, unfinished));
    }

    /// Connects once more to nodes that refused something some time ago.
    fn ask_again(self: &Arc<Self>) {
        let (again, now) = (self.again.get(), self.clock.now());
        if again == Moment::NEVER || again > now {
            return;
        }
        self.again.set(Moment::NEVER);
        for (node, slot) in self.slots.iter().enumerate() {
            let is_due = {
                let mut state = slot.state.lock();
                let is_due = state.connection.is_some() && !state.connecting && state.again <= now;
                if is_due {
                    state.connecting = true;
                    slot.urgent.store(false, Ordering::Relaxed);
                }
                self.again.bring_forward(if is_due { Moment::NEVER } else { state.again });
                is_due
            };
            if is_due {
                self.spawn_connecting(node, None);
            }
        }
    }

    /// Returns the event sink for the connection that is being made to `node`.
    fn sink(self: &Arc<Self>, node: usize) -> Option<EventSink> {
        let tracks = self.events.get(node)?.tracks();
        let number = self.slots[node].state.lock().tries + 1;
        let connections = Arc::downgrade(self);
        Some(EventSink::new(tracks, move |event| {
            let Some(connections) = connections.upgrade() else { return };
            match event {
                NodeEvent::Disconnected => connections.ended(node, number),
                event => connections.emit(node, event),
            }
        }))
    }

    /// Replaces the connection to `node` that try `number` made, after it ended unasked, if it worked. If it did not, whoever
    /// needs another one is notified and makes it: a server that ends idle connections would be connected to for ever.
    fn ended(self: &Arc<Self>, node: usize, number: u64) {
        self.replace_taken(node, |state| state.made.0 == number);
    }

    fn replace_taken(self: &Arc<Self>, node: usize, is_meant: impl FnOnce(&State) -> bool) {
        match self.take(node, Failure::Closed, is_meant) {
            Some(true) if !self.events.is_empty() => self.reconnect(node),
            Some(_) => self.emit(node, NodeEvent::Disconnected),
            None => {}
        }
    }

    /// Discards the connection to `node`, and ends a try to connect, because another server is in its place.
    pub(crate) fn renounce(&self, node: usize) {
        self.slots[node].state.lock().moves += 1;
        self.take(node, Failure::Closed, |_| true);
        self.slots[node].moved.notify_waiters();
    }

    /// Discards the connection to `node` if it was made before `since`: later ones lead to another server. It is replaced as
    /// one that has ended: where two servers answer in turn, connections would discard each other for ever.
    pub(crate) fn discard_older(self: &Arc<Self>, node: usize, since: Moment) {
        self.replace_taken(node, |state| state.made.1 < since);
    }

    /// Connects to `node` in the background after its connections were renounced.
    pub(crate) fn replace(self: &Arc<Self>, node: usize) {
        if !self.events.is_empty() {
            self.reconnect(node);
        }
    }

    /// Reconnects to `node`, without a request for some time, unless that is under way.
    fn reconnect(self: &Arc<Self>, node: usize) {
        self.start_connecting(node, true);
        if !self.slots[node].mending.swap(true, Ordering::Relaxed) {
            self.spawn(mend(Arc::downgrade(self), node, self.clock.clone()));
        }
        self.emit(node, NodeEvent::Disconnected);
    }

    /// Empties `node`'s slot if its connection `is_meant`, and reports its end to the pace. Returns whether it worked.
    fn take(&self, node: usize, failure: Failure, is_meant: impl FnOnce(&State) -> bool) -> Option<bool> {
        let slot = &self.slots[node];
        let (connection, made, worked) = {
            let mut state = slot.state.lock();
            if state.connection.is_none() || !is_meant(&state) {
                return None;
            }
            (state.connection.take(), state.made.1, slot.worked.load(Ordering::Relaxed))
        };
        drop(connection);
        self.doubt(node);
        let (member, now) = (&self.members.nodes[node], self.clock.now());
        if worked {
            member.endpoint.pace.record().ended(made, now);
        } else if slot.asked.get() >= made {
            member.endpoint.pace.record().failed_early(&member.address, made, failure, now, self.random.unit());
        } else {
            member.endpoint.pace.record().ended_unasked(made, now, self.random.unit());
        }
        Some(worked)
    }

    fn emit(&self, node: usize, event: NodeEvent<'_>) {
        if let Some(events) = self.events.get(node) {
            events.emit(event);
        }
    }

    /// Records a connection, unless another server came into the node's place since it had seen this many `moves`.
    fn connected(&self, node: usize, connection: Connection, server_info: &ServerInfo, moves: u64) -> bool {
        let (slot, now) = (&self.slots[node], self.clock.now());
        let (may_differ, replaced) = {
            let mut state = slot.state.lock();
            if state.moves != moves {
                return false;
            }
            state.connecting = false;
            state.tries += 1;
            state.made = (state.tries, now);
            state.watched = server_info.watched;
            state.again = server_info.again;
            state.failure = None;
            slot.record_connect();
            slot.worked.store(false, Ordering::Relaxed);
            // Waiters that asked while the node was away have no report from it.
            (std::mem::replace(&mut state.is_again, true) || self.is_tracking(), state.connection.replace(connection))
        };
        drop(replaced);
        // A login that came meanwhile.
        if let Some(connection) = self.current(node) {
            connection.log_in();
        }
        self.again.bring_forward(server_info.again);
        self.members.nodes[node].endpoint.pace.connected(now);
        self.changed.notify_waiters();
        self.emit(node, NodeEvent::Connected { may_differ });
        true
    }

    /// Records a failed try to connect. A connection that it was to replace stays.
    fn unconnected(&self, node: usize, failure: Failure) {
        {
            let mut state = self.slots[node].state.lock();
            state.connecting = false;
            state.tries += 1;
            if state.connection.is_some() {
                state.again = self.clock.now().after(AGAIN);
                self.again.bring_forward(state.again);
            }
            state.failure = Some(failure);
        }
        self.changed.notify_waiters();
        self.doubt(node);
    }

    /// Records a reply from `node`.
    pub(crate) fn record_reply(&self, node: usize) {
        let (slot, now) = (&self.slots[node], self.clock.now());
        slot.misses.store(0, Ordering::Relaxed);
        if !slot.worked.load(Ordering::Relaxed) {
            slot.worked.store(true, Ordering::Relaxed);
            self.members.nodes[node].endpoint.pace.record().worked();
        }
        self.members.health.record_reply(node, now);
    }

    /// Reports that `node` refuses requests.
    pub(crate) fn report_refusal(&self, node: usize, failure: &Failure) {
        let member = &self.members.nodes[node];
        if failure.is_refusal() && member.endpoint.is_refusal_news(self.clock.now()) {
            log!(NODE_REFUSES, node = %member.address, %failure, "node refuses requests, so its vote does not count");
        }
    }

    /// Records an answer from `node` to the request of this moment.
    pub(crate) fn record_answer(&self, node: usize, asked: Moment) {
        self.slots[node].heard.put_off(asked);
    }

    /// Awaits `answer` of `node` on `connection`, which was idle. After a part of `node_timeout`, another connection is
    /// made. If that comes first, the node answers, and not on this connection: the request fails as on one that has
    /// ended, although it may still be executed. Cancel safe.
    pub(crate) async fn unless_forgotten(
        self: &Arc<Self>,
        node: usize,
        connection: &Connection,
        node_timeout: Duration,
        answer: impl Future<Output = Result<Reply, Failure>>,
    ) -> Result<Reply, Failure> {
        let mut answer = pin!(answer);
        if let Some(answer) = self.clock.timeout(node_timeout / HEAD_START, answer.as_mut()).await {
            return answer;
        }
        let is_other = || self.current(node).filter(|current| !current.same(connection)).map(drop);
        if is_other().is_none() {
            self.connect_beside(node);
        }
        tokio::select! {
            biased;
            answer = answer => answer,
            () = notified_until(&self.changed, is_other) => Err(Failure::Closed),
        }
    }

    /// Connects to `node` once more, and keeps its connection until there is another.
    fn connect_beside(self: &Arc<Self>, node: usize) {
        self.slots[node].urgent.store(true, Ordering::Relaxed);
        if !std::mem::replace(&mut self.slots[node].state.lock().connecting, true) {
            self.spawn_connecting(node, None);
        }
    }

    /// Discards the connection to `node` if it is idle, for a request that must not be sent twice.
    pub(crate) fn discard_if_idle(&self, node: usize) {
        if self.slots[node].is_idle(self.clock.now()) {
            self.take(node, Failure::Closed, |_| true);
        }
    }

    /// Records that `node` did not answer in time. Discards its connection after two misses in a row, or if it was idle
    /// when it was asked.
    pub(crate) fn record_timeout(&self, node: usize) {
        if self.slots[node].record_timeout() {
            self.discard(node);
        }
        self.members.health.record_timeout(node);
        self.doubt(node);
    }

    /// Discards `connection` to `node` if it is current.
    pub(crate) fn discard_if(&self, node: usize, connection: &Connection) {
        let is_meant = |state: &State| state.connection.as_ref().is_some_and(|current| current.same(connection));
        self.take(node, Failure::Closed, is_meant);
    }

    /// Discards the connection to `node`, so that the next one asks anew which server answers.
    pub(crate) fn discard(&self, node: usize) {
        self.take(node, Failure::Unresponsive, |_| true);
    }

    /// Discards the connection to `node`, which granted, if it counts as a replica. It was promoted after this
    /// connection asked for its role, and would not count until the next one asks.
    pub(crate) fn granted(&self, node: usize) {
        if self.members.health.why_not_counted(node, Duration::ZERO, self.clock.now()) == Some(Failure::Replica) {
            self.discard(node);
        }
    }

    /// Whether `node` has a request in flight, made a short time ago.
    pub(crate) fn has_request(&self, node: usize) -> bool {
        self.slots[node].has_request(self.clock.now())
    }

    /// Whether `node` had not answered for longer than [`LAG_LIMIT`] at the last answer of any node. While answers are
    /// not read, no node lags.
    ///
    /// A count of missing answers would not do: callers that want one lock would write to the nodes in different
    /// orders, and split the votes.
    pub(crate) fn is_lagging(&self, node: usize) -> bool {
        let since = self.slots[node].lagging_since();
        since.is_some_and(|since| self.members.health.is_lagging(node, since, LAG_LIMIT))
    }

    /// Counts a request to `node` until the returned value is dropped.
    pub(crate) fn track_request(self: &Arc<Self>, node: usize) -> OnDrop<impl FnOnce() + Send + use<>> {
        if let Some(sentinels) = self.members.nodes[node].node.sentinels() {
            sentinels.used();
        }
        self.slots[node].record_request(self.clock.now());
        let connections = Arc::clone(self);
        OnDrop::new(move || _ = connections.slots[node].in_flight.fetch_sub(1, Ordering::Relaxed))
    }
}

impl Follower for Connections {
    /// Sends the newest login on every connection. On their runtime only.
    fn log_in(&self) {
        for node in 0..self.slots.len() {
            if let Some(connection) = self.current(node) {
                connection.log_in();
            }
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.deadlines.end();
    }
}

/// Reconnects to `node` without a request, for as long as a server takes to restart.
async fn mend(connections: Weak<Connections>, node: usize, clock: Clock) {
    for tries in 1..=MENDS_MOST {
        let endpoint = |connections: Arc<Connections>| Arc::clone(&connections.members.nodes[node].endpoint);
        let Some(endpoint) = connections.upgrade().map(endpoint) else { return };
        let until = endpoint.pace.record().leave_at(clock.now());
        clock.sleep_until(until).await;
        let Some(connections) = connections.upgrade() else { return };
        let is_mended = connections.current(node).is_some();
        if is_mended || tries == MENDS_MOST {
            connections.slots[node].mending.store(false, Ordering::Relaxed);
        }
        if is_mended {
            return;
        }
        connections.start_connecting(node, false);
    }
}

/// Tries to connect.
impl Connections {
    /// Connects to `node`, with the permission granted at `begun`, or as soon as it is granted. Cancels `unfinished` at its
    /// end.
    async fn try_to_connect(
        self: Arc<Self>,
        node: usize,
        begun: Option<Moment>,
        unfinished: OnDrop<impl FnOnce() + Send>,
    ) {
        let begun = match begun {
            Some(begun) => Ok(begun),
            None => self.leave(node).await,
        };
        let result = match begun {
            Ok(begun) => self.connect(node, begun).await,
            Err(failure) => {
                unfinished.cancel();
                return self.unconnected(node, failure);
            }
        };
        unfinished.cancel();
        let Some((result, moves)) = result else {
            self.unconnected(node, Failure::Closed);
            return self.start_connecting(node, true);
        };
        let (health, member) = (&self.members.health, &self.members.nodes[node]);
        match result {
            Ok((connection, server_info)) => {
                let since = self.clock.now();
                let remarks = health.record_info(node, &server_info, since);
                if !self.connected(node, connection, &server_info, moves) {
                    // What was recorded is not about the server that is in its place now.
                    member.endpoint.moved(self.clock.now());
                    self.unconnected(node, Failure::Closed);
                    return self.start_connecting(node, true);
                }
                if remarks.is_another {
                    member.endpoint.replaced(since);
                }
                // The following calls may log, which may take long.
                let is_back = member.endpoint.pace.record().ends_outage(&member.address);
                if !health.record_reply(node, self.clock.now()) && is_back {
                    log!(NODE_ANSWERS, node = %member.address, "node can be reached again");
                }
                remarks.log(&member.address);
            }
            Err(failure) => {
                self.unconnected(node, failure.clone());
                self.report(node, &failure);
            }
        }
    }

    /// Records the failure of a connect, and reports the first one of an outage.
    fn report(&self, node: usize, failure: &Failure) {
        let (health, member) = (&self.members.health, &self.members.nodes[node]);
        // Another connection may still exist, and be answered.
        let is_alone = self.current(node).is_none();
        let is_news = match failure {
            Failure::Unconnected(..) => is_alone && health.record_silent_connect(node),
            failure if failure.is_answer() => {
                self.slots[node].misses.store(0, Ordering::Relaxed);
                health.record_reply(node, self.clock.now());
                // A cluster that has told its map, which names the server that is asked next.
                let is_cluster = *failure == Failure::Unassigned;
                if is_cluster && member.endpoint.pace.record().ends_outage(&member.address) {
                    log!(NODE_ANSWERS, node = %member.address, "node can be reached again");
                }
                is_alone && !is_cluster
            }
            _ => {
                if is_alone {
                    health.record_miss(node);
                }
                is_alone && *failure != Failure::Closed
            }
        };
        if is_news && member.endpoint.pace.record().begins_outage(&member.address, failure) {
            log!(NODE_UNREACHABLE, node = %member.address, %failure, "the node cannot be reached; trying again");
        }
        log!(CONNECT_FAILED, node = %member.address, %failure, "no connection");
    }

    /// Connects; see [`Slot::connect`]. Reports a failure to the pace.
    async fn connect(
        self: &Arc<Self>,
        node: usize,
        begun: Moment,
    ) -> Option<(Result<(Connection, ServerInfo), Failure>, u64)> {
        let member = &self.members.nodes[node];
        let within = (&self.clock, self.members.connect_timeout);
        let (result, moves) = self.slots[node].connect(member, self.sink(node), within).await?;
        let result = result.map_err(|failure| {
            let (now, unit) = (self.clock.now(), self.random.unit());
            member.endpoint.pace.failed(&member.address, begun, failure, now, unit)
        });
        Some((result, moves))
    }

    /// Waits for permission to connect. Fails with the reason if it is refused.
    async fn leave(&self, node: usize) -> Result<Moment, Failure> {
        let member = &self.members.nodes[node];
        loop {
            let mut changed = pin!(member.endpoint.pace.changed());
            changed.as_mut().enable();
            let now = self.clock.now();
            let urgent = self.slots[node].urgent.load(Ordering::Relaxed);
            let until = match member.ask(now, urgent) {
                Leave::Granted => return Ok(now),
                Leave::Refused(failure) => return Err(failure),
                Leave::Waits(until) => until,
            };
            self.clock.timeout_at(until, changed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::{Server, eventually, redis};

    use super::*;
    use crate::address::Addresses;
    use crate::net::round::Round;
    use crate::node::endpoint::Endpoints;
    use crate::node::{MemoryNodes, Node};
    use crate::protocol::name::Name;
    use crate::protocol::request::{Action, Request};
    use crate::protocol::token::Token;
    use crate::transport::progress::Progress;

    /// Connections on which the background waits.
    fn waiting(server: &Server) -> Arc<Connections> {
        let address = Addresses::parse([server.url()]).unwrap()[0].clone();
        let node = Node::new(&address, &MemoryNodes::default(), None, None, None).unwrap();
        let endpoint = Endpoints::default().at(&address.target, true, Clock::System.now());
        let nodes = vec![Member { node, address, endpoint }];
        let members = Members::new(nodes, harness::LIMIT, None, &Clock::System);
        let events = vec![EventSink::new(true, |_| {})];
        let (members, runtime) = (Arc::new(members), Handle::current());
        Arc::new(Connections::new(members, Clock::System, Random::System, runtime, events, Weak::new()))
    }

    /// Makes the next try due.
    fn is_due(connections: &Connections) {
        let now = connections.clock.now();
        connections.slots[0].state.lock().again = now;
        connections.again.set(now);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_that_refuses_to_tell_is_asked_again_after_a_minute() {
        let server = Server::start();
        server.command(&["ACL", "SETUSER", "default", "-client|tracking"]);
        let connections = waiting(&server);
        let begun = connections.clock.now();
        connections.connect_quorum(connections.connect_limit()).await;
        assert_eq!(connections.tracking_nodes(), NodeMask::NONE);
        let first = connections.current(0).unwrap();
        server.command(&["ACL", "SETUSER", "default", "+client|tracking"]);
        let again = connections.again.get();
        assert!(again >= begun.after(AGAIN) && again <= connections.clock.now().after(AGAIN));
        connections.connect_quorum(connections.connect_limit()).await;
        assert!(!connections.slots[0].state.lock().connecting, "not yet");
        is_due(&connections);
        connections.connect_quorum(connections.connect_limit()).await;
        assert!(connections.current(0).is_some(), "there is a connection all the time");
        eventually("the node tells", || connections.tracking_nodes().contains(0));
        assert!(!connections.is_current(0, &first));
        assert_eq!(connections.again.get(), Moment::NEVER);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connect_becomes_urgent_with_its_first_urgent_caller() {
        let server = Server::start();
        let connections = waiting(&server);
        let (member, now) = (&connections.members.nodes[0], connections.clock.now());
        assert_eq!(member.ask(now, true), Leave::Granted);
        member.endpoint.pace.record().ended(now, now);
        connections.start_connecting(0, false);
        assert!(connections.slots[0].state.lock().connecting, "it waits for its turn");
        for _ in 0..8 {
            member.endpoint.pace.record().ended_unasked(now, now, 1.0);
        }
        assert!(connections.get(0, true).await.is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_to_a_server_that_was_renounced_meanwhile_is_not_used() {
        let server = Server::start();
        let connections = waiting(&server);
        let node = &connections.members.nodes[0].node;
        let (connection, server_info) = node.connect(&Clock::System, None, true, &Progress::default()).await.unwrap();
        connections.renounce(0);
        assert!(!connections.connected(0, connection.clone(), &server_info, 0));
        assert!(connections.current(0).is_none());
        assert!(connections.connected(0, connection, &server_info, 1));
    }

    /// Where two servers answer in turn, each new connection discards the one before.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_that_is_discarded_for_a_later_one_is_replaced_if_it_worked() {
        let server = Server::start();
        let connections = waiting(&server);
        for worked in [false, true] {
            connections.get(0, true).await.unwrap();
            if worked {
                connections.record_reply(0);
            }
            connections.discard_older(0, Moment::NEVER);
            assert!(connections.current(0).is_none());
            assert_eq!(connections.slots[0].state.lock().connecting, worked);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_request_that_waits_on_an_idle_connection_goes_over_the_one_that_replaces_it() {
        let (server, other) = (Server::start(), Server::start());
        let connections = waiting(&server);
        connections.connect_quorum(connections.connect_limit()).await;
        let first = connections.current(0).unwrap();
        connections.slots[0].heard.set(Moment::default());
        server.freeze();
        let node_timeout = Duration::from_secs(4);
        let mut round = Round::untraced(&connections, node_timeout, Moment::NEVER);
        let (keys, token) = (Keys::of(&Name::parse(*b"foo").unwrap()), Token::fresh(&Random::System));
        let action = Action::Release { asks: false, granted: None };
        round.ask(0, Request { keys, token, action }, connections.via_current(0, &first));
        // It comes before the request is written.
        let others = waiting(&other);
        let node = &others.members.nodes[0].node;
        let (connection, server_info) = node.connect(&Clock::System, None, true, &Progress::default()).await.unwrap();
        assert!(connections.connected(0, connection, &server_info, 0));
        assert_eq!(round.next().await, Some((0, Ok(Reply::Absent))));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_stays_where_no_better_one_can_be_made() {
        let server = Server::start();
        server.command(&["ACL", "SETUSER", "default", "-client|tracking"]);
        let connections = waiting(&server);
        connections.connect_quorum(connections.connect_limit()).await;
        let first = connections.current(0).unwrap();
        let mut admin = server.connect();
        redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(1).exec(&mut admin).unwrap();
        is_due(&connections);
        let now = connections.clock.now();
        connections.connect_quorum(connections.connect_limit()).await;
        eventually("it was tried", || !connections.slots[0].state.lock().connecting);
        assert!(connections.is_current(0, &first));
        assert!(connections.again.get() >= now.after(AGAIN), "and again in a minute");
        // It is replaced once it is discarded.
        redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(100).exec(&mut admin).unwrap();
        connections.discard_if(0, &first);
        assert!(connections.current(0).is_none());
        eventually("there is another one", || {
            connections.start_connecting(0, true);
            connections.current(0).is_some_and(|connection| !connection.same(&first))
        });
    }
}
