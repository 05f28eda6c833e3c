//! A set of nodes: its connections, what they report, the waiters for its locks, and its pending releases.
//!
//! Its *routes* are the sets of servers that stand for a client's nodes, where clusters are among them.
//!
//! A cluster is one node, one vote, and a directory of servers. A name's *set* has, for each cluster, the primary of the
//! name's slot, and each other node as it is. So a server of a cluster has connections, health and pending releases, as
//! every node has. Whatever is asked begins by looking up the set, which changes with the clusters' maps. While a slot
//! does not have a primary, or the map is not known, the cluster stands for itself: connecting to it asks for the map,
//! and then fails. A set of such nodes alone is the *listed* set, that of the client's addresses.
//!
//! States of a set: *named*, while the maps give it slots; then *abandoned*: what is under way there ends, and its
//! pending releases go to the sets that have their keys.
//!
//! When a map changes: what is held on any set is renewed soon, and all waiters look again. A
//! server that was promoted is in quarantine, like one that restarted, before any map names it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;

use crate::address::{Address, Target};
use crate::error::Error;
use crate::net::connections::{AllConnections, Connections, Members, Router};
use crate::net::member::Member;
use crate::net::tracking::Tracking;
use crate::node::Connection;
use crate::node::endpoint::{Endpoint, User};
use crate::node::event::{EventSink, NodeEvent};
use crate::node::list::NodeList;
use crate::node::sentinels::{self, Sentinels};
use crate::node::{Cluster, cluster};
use crate::options::MAX_CONNECTIONS_DEFAULT;
use crate::process::environment::Environment;
use crate::process::pending_releases::{Creditors, Ledger};
use crate::process::schedule::Schedule;
use crate::process::waiters::Waiters;
use crate::protocol::cluster::Redirect;
use crate::protocol::name::slot;
use crate::protocol::place::Place;
use crate::protocol::request::Keys;
use crate::sys::clock::{Clock, Moment};
use crate::sys::current_runtime;
use crate::sys::mutex::Mutex;
use crate::sys::on_drop::OnDrop;
use crate::sys::runtimes::{self, Seats};
use crate::texts::opaque;
use crate::transport::failure::Failure;

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
    /// The pending releases of each node.
    ledgers: Vec<Ledger>,
    routes: Routing,
    pub(crate) registration: Option<Registration>,
}

/// Has the process forget a set, and with it the logins in its addresses, when this is dropped.
pub(crate) struct Registration(
    #[expect(dead_code, reason = "held to be dropped")] OnDrop<Box<dyn FnOnce() + Send + Sync>>,
);

opaque!(Registration);

impl Registration {
    pub(crate) fn new(forget: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(OnDrop::new(Box::new(forget)))
    }
}

/// The part of clusters in a set.
#[derive(Debug)]
enum Routing {
    /// A cluster is not among its nodes.
    None,
    /// It is the listed set of these routes.
    Listed(Arc<Routes>),
    /// It stands for the listed set of these routes, for some slots.
    Routed(Weak<Routes>),
}

impl NodeSet {
    pub(crate) fn new(
        members: Members,
        list: Arc<NodeList>,
        environment: &Arc<Environment>,
        schedule: &Arc<Schedule>,
    ) -> Self {
        let ledgers = (0..members.len()).map(|_| Ledger::new()).collect();
        Self {
            members: Arc::new(members),
            list,
            environment: Arc::clone(environment),
            schedule: Arc::clone(schedule),
            all_connections: Arc::default(),
            seats: Seats::new(MAX_CONNECTIONS_DEFAULT),
            waiters: Arc::default(),
            tracking: Arc::default(),
            ledgers,
            routes: Routing::None,
            registration: None,
        }
    }

    /// Makes it the listed set of `routes`.
    pub(crate) fn with_routes(mut self, routes: Arc<Routes>) -> Self {
        self.routes = Routing::Listed(routes);
        self
    }

    /// Makes the set of these members, which stands for `listed` for some slots. A process has one queue for a name,
    /// wherever its slot is.
    fn routed(members: Members, listed: &Self, routes: &Arc<Routes>) -> Arc<Self> {
        let known: Weak<Routes> = Arc::downgrade(routes);
        let members = Members { router: Some(known), ..members };
        let mut set = Self::new(members, Arc::clone(&listed.list), &listed.environment, &listed.schedule);
        set.waiters = Arc::clone(&listed.waiters);
        set.routes = Routing::Routed(Arc::downgrade(routes));
        let set = Arc::new(set);
        set.follow_nodes();
        set
    }

    /// Returns the routes of its clusters, if there are any.
    pub(crate) fn routes(&self) -> Option<Arc<Routes>> {
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
            member.endpoint.users.add(user);
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

    /// Creates the event sink of `node` for waiters, or else for held locks.
    fn sink(&self, node: usize, tracks: bool) -> EventSink {
        if tracks {
            let tracking = Arc::downgrade(&self.tracking);
            return EventSink::new(true, move |event| {
                if let Some(tracking) = tracking.upgrade() {
                    tracking.heard(node, event);
                }
            });
        }
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
    }

    /// Returns the connections that `connection` to `node` belongs to, unless it was discarded or their runtime ended.
    pub(crate) fn connections_over(&self, node: usize, connection: &Connection) -> Option<Arc<Connections>> {
        let all_connections = self.all_connections.lock();
        all_connections
            .iter()
            .find(|connections| connections.is_alive() && connections.is_current(node, connection))
            .cloned()
    }

    /// Returns the runtime of the calling task; `None` outside of one.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a runtime on which these nodes cannot be asked.
    pub(crate) fn current_runtime(&self) -> Result<Option<Handle>, Error> {
        let is_socket = |member: &Member| !matches!(member.address.target, Target::Memory { .. });
        // A simulated process does not have sockets.
        let needs_io = self.members.nodes.iter().any(is_socket) && matches!(self.environment.clock, Clock::System);
        current_runtime::current(needs_io)
    }

    /// Runs `call` on the tokio runtime of the calling task, or else in the background.
    ///
    /// # Errors
    ///
    /// As [`current_runtime`](Self::current_runtime), and if the background cannot be started.
    pub(crate) async fn somewhere<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        if self.current_runtime()?.is_some() { Ok(call.await) } else { self.environment.background.run(call).await }
    }

    /// Returns the connections of `runtime`, made at first use and again after an earlier runtime with the same id
    /// ended.
    pub(crate) fn connections(&self, runtime: &Handle) -> Arc<Connections> {
        self.connections_with(runtime, false)
    }

    /// Returns the background's connections for waiting, on which nodes report changes of every key read.
    ///
    /// They are separate because reports about keys without a waiter are wasted work.
    pub(crate) fn waiting_connections(&self, background: &Handle) -> Arc<Connections> {
        self.connections_with(background, true)
    }

    /// Returns the connections on the same runtime, and for the same purpose, as `other`.
    pub(crate) fn connections_like(&self, other: &Connections) -> Arc<Connections> {
        self.connections_with(&other.runtime, other.is_tracking())
    }

    fn connections_with(&self, runtime: &Handle, tracks: bool) -> Arc<Connections> {
        let mut all_connections = self.all_connections.lock();
        if let Some(connections) =
            all_connections.iter().find(|connections| connections.is_of(runtime) && connections.is_tracking() == tracks)
        {
            return Arc::clone(connections);
        }
        all_connections.retain(|connections| connections.is_alive());
        let is_background = self.is_background(runtime);
        // Only the background's are always driven.
        let sinks = if is_background || tracks { self.members.len() } else { 0 };
        let events = (0..sinks).map(|node| self.sink(node, tracks)).collect();
        let members = Arc::clone(&self.members);
        let Environment { clock, random, pool, .. } = &*self.environment;
        let (clock, random, all) = (clock.clone(), random.clone(), Arc::downgrade(&self.all_connections));
        let connections = Arc::new(Connections::new(members, clock, random, runtime.clone(), events, all));
        if let Some(logins) = &self.members.logins
            && is_background
        {
            let follower: Weak<Connections> = Arc::downgrade(&connections);
            logins.followers.add(follower);
        }
        all_connections.push(Arc::clone(&connections));
        pool.join(runtime.id());
        connections
    }
}

impl User for NodeSet {
    fn replaced(&self, endpoint: &Endpoint, since: Moment) {
        let all_connections = self.all_connections.lock().clone();
        for (node, member) in self.members.nodes.iter().enumerate() {
            if std::ptr::eq(&raw const *member.endpoint, endpoint) {
                for connections in &all_connections {
                    connections.discard_older(node, since);
                }
                self.schedule.bring_forward(&self.members, node);
            }
        }
    }
}

impl sentinels::Follower for NodeSet {
    fn moved(self: Arc<Self>, sentinels: &Arc<Sentinels>) {
        let all_connections = self.all_connections.lock().clone();
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

    fn ledger(&self, node: usize) -> &Ledger {
        &self.ledgers[node]
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
            // The parent's, which one of its threads may have locked.
            mem::forget((Arc::clone(&self.all_connections), self.registration.take()));
            return;
        }
        let all_connections = mem::take(&mut *self.all_connections.lock());
        let undriven: Vec<(_, runtimes::WeakConnections)> = all_connections
            .iter()
            .filter(|connections| pool.has_made(connections.runtime.id()))
            .map(|connections| (connections.runtime.id(), Arc::downgrade(connections) as runtimes::WeakConnections))
            .collect();
        drop(all_connections);
        if !undriven.is_empty() {
            runtimes::close(pool, clock, undriven);
        }
    }
}

/// For each node, the server that stands for it; `None` for a node that stands for itself.
type Places = Vec<Option<Place>>;

/// The address of each node, and the cluster that it is, or that its server belongs to.
pub(crate) type Servers = Vec<(Address, Option<Arc<Cluster>>)>;

/// Makes the members of a set of servers for the same client as a listed set; `None` if that cannot be.
type Make = Box<dyn Fn(Servers, &NodeSet) -> Option<Members> + Send + Sync>;

/// The sets of one client's nodes.
pub(crate) struct Routes {
    me: Weak<Self>,
    make: Make,
    /// The cluster at each node, if it is one.
    clusters: Vec<Option<Arc<Cluster>>>,
    listed: Weak<NodeSet>,
    sets: Mutex<BTreeMap<Places, Arc<NodeSet>>>,
}

impl Routes {
    pub(crate) fn new(
        make: impl Fn(Servers, &NodeSet) -> Option<Members> + Send + Sync + 'static,
        clusters: Vec<Option<Arc<Cluster>>>,
        listed: &Weak<NodeSet>,
    ) -> Arc<Self> {
        let routes = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            make: Box::new(make),
            clusters,
            listed: Weak::clone(listed),
            sets: Mutex::default(),
        });
        for cluster in routes.clusters.iter().flatten() {
            let follower: Weak<Self> = Arc::downgrade(&routes);
            cluster.follow(follower);
        }
        routes
    }

    fn places(&self, slot: u16) -> Places {
        self.clusters.iter().map(|cluster| cluster.as_ref().and_then(|cluster| cluster.primary(slot))).collect()
    }

    /// Returns the set of these servers; `None` if that is the listed set, or the client has gone.
    fn set_of(&self, places: &Places) -> Option<Arc<NodeSet>> {
        if places.iter().all(Option::is_none) {
            return None;
        }
        let mut sets = self.sets.lock();
        if let Some(set) = sets.get(places) {
            return Some(Arc::clone(set));
        }
        let (listed, routes) = (self.listed.upgrade()?, self.me.upgrade()?);
        let server = |(node, place): (usize, &Option<Place>)| match (&self.clusters[node], place) {
            (Some(cluster), Some(place)) => (cluster.address_of(place), Some(Arc::clone(cluster))),
            (cluster, _) => (listed.members.nodes[node].address.clone(), cluster.clone()),
        };
        let servers: Vec<_> = places.iter().enumerate().map(server).collect();
        // It fails if a plain node's files of TLS became unreadable, or a server's name is not one for TLS.
        let set = NodeSet::routed((self.make)(servers, &listed)?, &listed, &routes);
        sets.insert(places.clone(), Arc::clone(&set));
        Some(set)
    }

    /// Returns the server that stands for `node` in the set of `connections`.
    fn place_of(&self, connections: &Connections, node: usize) -> Option<Place> {
        let sets = self.sets.lock();
        let is_meant = |(_, set): &(&Places, &Arc<NodeSet>)| Arc::ptr_eq(&set.members, &connections.members);
        sets.iter().find(is_meant).and_then(|(places, _)| places[node].clone())
    }

    /// Returns the set that has this key now; `None` if that is the listed set.
    pub(crate) fn set(&self, lock_key: &[u8]) -> Option<Arc<NodeSet>> {
        self.set_of(&self.places(slot(lock_key)))
    }

    /// Whether some keys are on `set`.
    fn names(&self, set: &NodeSet) -> bool {
        self.sets.lock().values().any(|named| std::ptr::eq(&raw const **named, set))
    }

    /// Waits for the maps of all clusters. Returns the addresses of all servers that have slots, and of the other nodes.
    pub(crate) async fn all_servers(&self) -> Result<Vec<Address>, Failure> {
        for cluster in self.clusters.iter().flatten() {
            cluster.map_anew().await?;
        }
        let mut all = Vec::new();
        let Some(listed) = self.listed.upgrade() else { return Ok(all) };
        for (member, cluster) in listed.members.nodes.iter().zip(&self.clusters) {
            match cluster {
                Some(cluster) => all.extend(cluster.primaries().iter().map(|place| cluster.address_of(place))),
                None => all.push(member.address.clone()),
            }
        }
        Ok(all)
    }
}

opaque!(Routes);

impl cluster::Follower for Routes {
    fn changed(self: Arc<Self>) {
        // Every combination of primaries that some slot has.
        let starts: BTreeSet<u16> = self.clusters.iter().flatten().flat_map(|cluster| cluster.starts()).collect();
        let named: BTreeSet<Places> = starts.into_iter().map(|slot| self.places(slot)).collect();
        let kept: Vec<_> = named.iter().filter_map(|places| self.set_of(places)).collect();
        // Dropped outside of the lock: a set that goes closes its connections.
        let mut abandoned = Vec::new();
        self.sets.lock().retain(|places, set| {
            let is_named = named.contains(places);
            if !is_named {
                abandoned.push(Arc::clone(set));
            }
            is_named
        });
        for set in kept.iter().chain(&abandoned) {
            set.look_again();
        }
    }
}

impl Router for Routes {
    fn place(&self, from: &Connections, node: usize, redirect: &Redirect) -> Place {
        let mut place = redirect.place.clone();
        // By its address, because the set of a request under way may be abandoned.
        if place.host.is_empty()
            && let Target::Tcp { host, .. } = &from.members.nodes[node].address.target
        {
            place.host.clone_from(host);
        }
        place
    }

    fn moved(&self, from: &Connections, node: usize, redirect: &Redirect) -> Place {
        let place = self.place(from, node, redirect);
        if let Some(cluster) = &self.clusters[node] {
            cluster.moved(redirect.slot, &place);
        }
        place
    }

    fn connections(&self, like: &Connections, node: usize, place: &Place, keys: &Keys) -> Option<Arc<Connections>> {
        let mut places = self.places(slot(&keys.lock));
        places[node] = Some(place.clone());
        // It may be named a moment later, or for this request alone.
        Some(self.set_of(&places)?.connections_like(like))
    }

    fn doubt(&self, from: &Connections, node: usize) {
        if let (Some(cluster), Some(place)) = (&self.clusters[node], self.place_of(from, node)) {
            cluster.doubt(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;

    use super::*;
    use crate::address::Addresses;
    use crate::node::cluster::Follower;
    use crate::process::Process;
    use crate::protocol::name::Name;
    use crate::sys::background::Background;
    use crate::sys::clock::Clock;
    use crate::sys::random::Random;

    /// Returns routes of clusters at the second and the third node, with the listed set and connections to it.
    fn routes() -> (Arc<Process>, Arc<NodeSet>, Arc<Routes>, Arc<Connections>) {
        let process = Arc::new(Process::new(None, Clock::System, Random::System, Background::thread()));
        let urls = ["redis://single", "redis+cluster://seed.a", "redis+cluster://seed.b"];
        let addresses = Addresses::parse(urls).unwrap();
        let listed = process.set(&addresses).unwrap();
        let routes = listed.routes().unwrap();
        let connections = listed.connections(&Handle::current());
        (process, listed, routes, connections)
    }

    /// Returns the server that a server at `host` means by a redirect.
    fn meant(routes: &Routes, listed: &Arc<Connections>, host: &str, redirect: &str) -> String {
        let (keys, at) = (Keys::of(&Name::parse(*b"foo").unwrap()), Place { host: host.to_owned(), port: 7000 });
        let from = routes.connections(listed, 1, &at, &keys).unwrap();
        routes.place(&from, 1, &Redirect::parse(redirect).unwrap()).to_string()
    }

    #[tokio::test]
    async fn a_redirect_without_a_host_means_that_of_the_server_that_answered() {
        let (_process, _listed, routes, connections) = routes();
        for (host, redirect, expected) in [
            ("10.0.0.1", "5 :7001", "10.0.0.1:7001"),
            ("10.0.0.1", "5 10.0.0.2:7001", "10.0.0.2:7001"),
            ("10.0.0.1", "5 ::1:7001", "[::1]:7001"),
            ("10.0.0.1", "5 [fd00::2]:7001", "[fd00::2]:7001"),
            ("fd00::1", "5 :7001", "[fd00::1]:7001"),
            ("redis.internal", "5 :7000", "redis.internal:7000"),
        ] {
            assert_eq!(meant(&routes, &connections, host, redirect), expected, "{redirect} of {host}");
        }
    }

    /// A request is under way there while the map changes.
    #[tokio::test]
    async fn a_server_that_lost_its_last_slot_still_means_its_own_host() {
        let (_process, _listed, routes, connections) = routes();
        let (keys, at) = (Keys::of(&Name::parse(*b"foo").unwrap()), Place { host: "10.0.0.1".into(), port: 7000 });
        let from = routes.connections(&connections, 2, &at, &keys).unwrap();
        Arc::clone(&routes).changed();
        assert!(routes.sets.lock().is_empty(), "it is abandoned");
        let redirect = Redirect::parse("5 :7001").unwrap();
        assert_eq!(routes.place(&from, 2, &redirect).to_string(), "10.0.0.1:7001");
    }
}
