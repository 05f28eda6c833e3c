//! A set of nodes: its connections, what they report, the waiters for its locks, and its pending releases.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, Weak};

use tokio::runtime::Handle;

use crate::address::Address;
use crate::net::connections::{AllConnections, Connections, Members};
use crate::net::failure::Failure;
use crate::net::node::Connection;
use crate::net::node::endpoint::{Endpoint, User};
use crate::net::node::event::{EventSink, NodeEvent};
use crate::net::node::list::NodeList;
use crate::net::node::sentinels::{Follower, Sentinels};
use crate::net::tracking::Tracking;
use crate::options::MAX_CONNECTIONS_DEFAULT;
use crate::process::environment::Environment;
use crate::process::pending_releases::{Creditors, PendingReleases};
use crate::process::schedule::Schedule;
use crate::process::waiters::Waiters;
use crate::sys::clock::Moment;
use crate::sys::runtimes::{self, Seats};

/// A set of nodes and the connections to it.
#[derive(Debug)]
pub(crate) struct NodeSet {
    pub(crate) members: Arc<Members>,
    /// For detecting lists that differ.
    pub(crate) list: Arc<NodeList>,
    environment: Arc<Environment>,
    schedule: Arc<Schedule>,
    all_connections: Arc<AllConnections>,
    /// The runtimes of blocking callers that may have connections to it.
    pub(crate) seats: Arc<Seats>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) tracking: Arc<Tracking>,
    pub(crate) pending_releases: PendingReleases,
    routes: Routing,
}

/// The part of clusters in a set.
#[derive(Debug)]
enum Routing {
    /// A cluster is not among its nodes.
    None,
    /// It is the listed set of these routes.
    Listed(Arc<dyn Directory>),
    /// It stands for the listed set of these routes, for some slots.
    Routed(Weak<dyn Directory>),
}

/// Says which sets stand for a set with clusters among its nodes.
pub(crate) trait Directory: fmt::Debug + Send + Sync {
    /// Returns the set that has this key now; `None` if that is the listed set.
    fn set(&self, lock_key: &[u8]) -> Option<Arc<NodeSet>>;

    /// Whether some keys are on `set`.
    fn names(&self, set: &NodeSet) -> bool;

    /// Waits for the maps of all clusters. Returns the addresses of all servers of clusters, and of the other nodes.
    fn all_servers(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<Vec<Address>, Failure>> + Send>>;
}

impl NodeSet {
    pub(crate) fn new(
        members: Members,
        list: Arc<NodeList>,
        environment: &Arc<Environment>,
        schedule: &Arc<Schedule>,
    ) -> Self {
        let pending_releases = PendingReleases::new(members.len());
        Self {
            members: Arc::new(members),
            list,
            environment: Arc::clone(environment),
            schedule: Arc::clone(schedule),
            all_connections: Arc::default(),
            seats: Seats::new(MAX_CONNECTIONS_DEFAULT),
            waiters: Arc::default(),
            tracking: Arc::default(),
            pending_releases,
            routes: Routing::None,
        }
    }

    /// Lets so many blocking callers have connections.
    pub(crate) fn with_max_connections(mut self, max_connections: usize) -> Self {
        self.seats = Seats::new(max_connections);
        self
    }

    /// Makes it the listed set of `routes`.
    pub(crate) fn with_routes(mut self, routes: Arc<dyn Directory>) -> Self {
        self.routes = Routing::Listed(routes);
        self
    }

    /// Makes it stand for `listed` for some slots. A process has one queue for a name, wherever its slot is.
    pub(crate) fn routed(mut self, listed: &Self, routes: &Arc<dyn Directory>) -> Self {
        (self.list, self.waiters) = (Arc::clone(&listed.list), Arc::clone(&listed.waiters));
        self.routes = Routing::Routed(Arc::downgrade(routes));
        self
    }

    /// Returns the routes of its clusters, if there are any.
    pub(crate) fn routes(&self) -> Option<Arc<dyn Directory>> {
        match &self.routes {
            Routing::None => None,
            Routing::Listed(routes) => Some(Arc::clone(routes)),
            Routing::Routed(routes) => routes.upgrade(),
        }
    }

    /// Returns the set that has this key now: itself, unless clusters are among its nodes.
    pub(crate) fn of_key(self: &Arc<Self>, lock_key: &[u8]) -> Cow<'_, Arc<Self>> {
        match self.routes().and_then(|routes| routes.set(lock_key)) {
            Some(set) => Cow::Owned(set),
            None => Cow::Borrowed(self),
        }
    }

    /// Renews soon what is held here, and wakes all waiters, because a cluster's map has changed.
    pub(crate) fn look_again(&self) {
        for node in 0..self.members.len() {
            self.schedule.bring_forward(&self.members, node);
            self.tracking.heard(node, NodeEvent::AllChanged);
        }
    }

    /// Begins to follow its nodes: what sentinels name, and where new connections lead.
    pub(crate) fn follow_nodes(self: &Arc<Self>) {
        for member in &self.members.nodes {
            let user: Weak<Self> = Arc::downgrade(self);
            member.endpoint.used_by(user);
            let follower: Weak<Self> = Arc::downgrade(self);
            // There may have been no follower then.
            if let Some(at) = member.node.sentinels().and_then(|sentinels| sentinels.follow(follower)) {
                member.endpoint.moved(at);
            }
        }
    }

    fn is_background(&self, runtime: &Handle) -> bool {
        self.environment.background.started().is_some_and(|background| background.is(runtime))
    }

    /// Creates event sinks for held locks, only on the background's connections, which are always driven.
    fn lease_sinks(&self, runtime: &Handle) -> Vec<EventSink> {
        if !self.is_background(runtime) {
            return Vec::new();
        }
        let sink = |node| {
            let (schedule, members) = (Arc::downgrade(&self.schedule), Arc::downgrade(&self.members));
            EventSink::new(false, move |event| {
                let Some((schedule, members)) = schedule.upgrade().zip(members.upgrade()) else { return };
                if matches!(event, NodeEvent::Disconnected | NodeEvent::Connected { may_differ: true }) {
                    schedule.bring_forward(&members, node);
                }
                if matches!(event, NodeEvent::Connected { .. }) {
                    schedule.reached(&members, node);
                }
            })
        };
        (0..self.members.len()).map(sink).collect()
    }

    /// Creates event sinks for waiters.
    fn tracking_sinks(&self) -> Vec<EventSink> {
        let sink = |node| {
            let tracking = Arc::downgrade(&self.tracking);
            EventSink::new(true, move |event| {
                if let Some(tracking) = tracking.upgrade() {
                    tracking.heard(node, event);
                }
            })
        };
        (0..self.members.len()).map(sink).collect()
    }

    /// Returns the connections that `connection` to `node` belongs to, unless it was discarded or their runtime ended.
    pub(crate) fn connections_over(&self, node: usize, connection: &Connection) -> Option<Arc<Connections>> {
        let all_connections = self.all_connections.lock().expect("no panic while holding this");
        all_connections
            .iter()
            .find(|connections| connections.is_alive() && connections.is_current(node, connection))
            .cloned()
    }

    /// Returns the connections of `runtime`, made at first use and again after an earlier runtime with the same id
    /// ended.
    pub(crate) fn connections(&self, runtime: &Handle) -> Arc<Connections> {
        self.connections_with(runtime, false, || self.lease_sinks(runtime))
    }

    /// Returns the background's connections for waiting, on which nodes report changes of every key read.
    ///
    /// They are separate because reports about keys without a waiter are wasted work.
    pub(crate) fn waiting_connections(&self, background: &Handle) -> Arc<Connections> {
        self.connections_with(background, true, || self.tracking_sinks())
    }

    /// Returns the connections on the same runtime, and for the same purpose, as `other`.
    pub(crate) fn connections_like(&self, other: &Connections) -> Arc<Connections> {
        let runtime = other.runtime();
        if other.is_tracking() { self.waiting_connections(runtime) } else { self.connections(runtime) }
    }

    fn connections_with(
        &self,
        runtime: &Handle,
        watches: bool,
        events: impl FnOnce() -> Vec<EventSink>,
    ) -> Arc<Connections> {
        let mut all_connections = self.all_connections.lock().expect("no panic while holding this");
        if let Some(connections) = all_connections
            .iter()
            .find(|connections| connections.is_of(runtime) && connections.is_tracking() == watches)
        {
            return Arc::clone(connections);
        }
        all_connections.retain(|connections| connections.is_alive());
        let members = Arc::clone(&self.members);
        let Environment { clock, random, pool, .. } = &*self.environment;
        let (clock, random, all) = (clock.clone(), random.clone(), Arc::downgrade(&self.all_connections));
        let connections = Arc::new(Connections::new(members, clock, random, runtime.clone(), events(), all));
        if let Some(logins) = &self.members.logins
            && self.is_background(runtime)
        {
            let follower: Weak<Connections> = Arc::downgrade(&connections);
            logins.follow(follower);
        }
        all_connections.push(Arc::clone(&connections));
        pool.join(runtime.id());
        connections
    }
}

impl User for NodeSet {
    fn replaced(&self, endpoint: &Endpoint, since: Moment) {
        let all_connections = self.all_connections.lock().expect("no panic while holding this").clone();
        for (node, member) in self.members.nodes.iter().enumerate() {
            if std::ptr::eq(&raw const *member.endpoint, endpoint) {
                for connections in &all_connections {
                    if connections.discard_older(node, since) {
                        connections.replace(node);
                    }
                }
                self.schedule.bring_forward(&self.members, node);
            }
        }
    }
}

impl Follower for NodeSet {
    fn moved(self: Arc<Self>, sentinels: &Arc<Sentinels>) {
        let all_connections = self.all_connections.lock().expect("no panic while holding this").clone();
        for (node, member) in self.members.nodes.iter().enumerate() {
            if member.node.sentinels().is_some_and(|of| Arc::ptr_eq(of, sentinels)) {
                // First, so that no grant of the server before counts.
                member.endpoint.moved(self.environment.clock.now());
                for connections in &all_connections {
                    connections.renounce(node);
                }
                member.endpoint.pace.moved();
                for connections in &all_connections {
                    connections.replace(node);
                }
                self.schedule.bring_forward(&self.members, node);
            }
        }
    }

    fn holds_locks(&self) -> bool {
        self.schedule.holds_on(&self.members)
    }
}

impl Creditors for NodeSet {
    fn members(&self) -> &Members {
        &self.members
    }

    fn connections(&self, runtime: &Handle) -> Arc<Connections> {
        self.connections(runtime)
    }

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn pending_releases(&self) -> &PendingReleases {
        &self.pending_releases
    }

    fn successor(&self, lock_key: &[u8]) -> Option<Arc<dyn Creditors>> {
        let set = self.routes()?.set(lock_key)?;
        (!std::ptr::eq(&raw const *set, self)).then_some(set as Arc<dyn Creditors>)
    }

    fn is_routed(&self) -> bool {
        !matches!(self.routes, Routing::None)
    }

    fn is_abandoned(&self) -> bool {
        match &self.routes {
            Routing::None => false,
            Routing::Listed(_) => true,
            Routing::Routed(routes) => routes.upgrade().is_some_and(|routes| !routes.names(self)),
        }
    }
}

impl Drop for NodeSet {
    /// Closes the connections that this set has on the runtimes of blocking calls.
    fn drop(&mut self) {
        let Environment { pool, clock, .. } = &*self.environment;
        if self.environment.is_foreign() {
            // The parent's connections, which one of its threads may have locked.
            mem::forget(Arc::clone(&self.all_connections));
            return;
        }
        let all_connections = mem::take(&mut *self.all_connections.lock().unwrap_or_else(PoisonError::into_inner));
        let undriven: Vec<(_, runtimes::WeakConnections)> = all_connections
            .iter()
            .filter(|connections| pool.has_made(connections.runtime_id()))
            .map(|connections| (connections.runtime_id(), Arc::downgrade(connections) as runtimes::WeakConnections))
            .collect();
        drop(all_connections);
        if !undriven.is_empty() {
            runtimes::close(pool, clock, undriven);
        }
    }
}
