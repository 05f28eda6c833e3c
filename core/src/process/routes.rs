//! Routes: the sets of servers that stand for a client's nodes, where clusters are among them.
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

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::address::{Address, Target};
use crate::error::Error;
use crate::net::connections::{Connections, Router};
use crate::net::failure::Failure;
use crate::net::node::Cluster;
use crate::net::node::cluster::Follower;
use crate::process::nodes::{Directory, NodeSet};
use crate::protocol::cluster::Redirect;
use crate::protocol::name::slot;
use crate::protocol::place::Place;
use crate::protocol::request::Keys;

/// For each node, the server that stands for it; `None` for a node that stands for itself.
type Places = Vec<Option<Place>>;

/// The address of each node, and the cluster that it is, or that its server belongs to.
pub(crate) type Servers = Vec<(Address, Option<Arc<Cluster>>)>;

/// Makes sets.
pub(crate) trait Maker: Send + Sync {
    /// Makes the set of `servers`, which stands for the `listed` set of `routes` for some slots.
    fn routed_set(&self, servers: Servers, listed: &NodeSet, routes: &Arc<Routes>) -> Result<Arc<NodeSet>, Error>;
}

/// The sets of one client's nodes.
pub(crate) struct Routes {
    me: Weak<Self>,
    maker: Weak<dyn Maker>,
    /// The cluster at each node, if it is one.
    clusters: Vec<Option<Arc<Cluster>>>,
    listed: Weak<NodeSet>,
    sets: Mutex<BTreeMap<Places, Arc<NodeSet>>>,
}

impl Routes {
    pub(crate) fn new(
        maker: Weak<dyn Maker>,
        clusters: Vec<Option<Arc<Cluster>>>,
        listed: &Weak<NodeSet>,
    ) -> Arc<Self> {
        let routes = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            maker,
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

    fn sets(&self) -> MutexGuard<'_, BTreeMap<Places, Arc<NodeSet>>> {
        self.sets.lock().expect("no panic while holding this")
    }

    fn places(&self, slot: u16) -> Places {
        self.clusters.iter().map(|cluster| cluster.as_ref().and_then(|cluster| cluster.primary(slot))).collect()
    }

    /// Returns the set of these servers; `None` if that is the listed set, or the client has gone.
    fn set_of(&self, places: &Places) -> Option<Arc<NodeSet>> {
        if places.iter().all(Option::is_none) {
            return None;
        }
        let mut sets = self.sets();
        if let Some(set) = sets.get(places) {
            return Some(Arc::clone(set));
        }
        let (maker, listed, routes) = (self.maker.upgrade()?, self.listed.upgrade()?, self.me.upgrade()?);
        let server = |(node, place): (usize, &Option<Place>)| match (&self.clusters[node], place) {
            (Some(cluster), Some(place)) => (cluster.address_of(place), Some(Arc::clone(cluster))),
            (cluster, _) => (listed.members.nodes[node].address.clone(), cluster.clone()),
        };
        let servers: Vec<_> = places.iter().enumerate().map(server).collect();
        // It fails if a plain node's files of TLS became unreadable, or a server's name is not one for TLS.
        let set = maker.routed_set(servers, &listed, &routes).ok()?;
        sets.insert(places.clone(), Arc::clone(&set));
        Some(set)
    }

    /// Returns the server that stands for `node` in the set of `connections`.
    fn place_of(&self, connections: &Connections, node: usize) -> Option<Place> {
        let sets = self.sets();
        let is_meant = |(_, set): &(&Places, &Arc<NodeSet>)| Arc::ptr_eq(&set.members, &connections.members);
        sets.iter().find(is_meant).and_then(|(places, _)| places[node].clone())
    }

    /// Returns the addresses of all servers that have slots, with those of the other nodes.
    fn all_addresses(&self) -> Vec<Address> {
        let Some(listed) = self.listed.upgrade() else { return Vec::new() };
        let mut all = Vec::new();
        for (member, cluster) in listed.members.nodes.iter().zip(&self.clusters) {
            match cluster {
                Some(cluster) => all.extend(cluster.primaries().iter().map(|place| cluster.address_of(place))),
                None => all.push(member.address.clone()),
            }
        }
        all
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").field("clusters", &self.clusters).finish_non_exhaustive()
    }
}

impl Directory for Routes {
    fn set(&self, lock_key: &[u8]) -> Option<Arc<NodeSet>> {
        self.set_of(&self.places(slot(lock_key)))
    }

    fn names(&self, set: &NodeSet) -> bool {
        self.sets().values().any(|named| std::ptr::eq(&raw const **named, set))
    }

    fn all_servers(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<Vec<Address>, Failure>> + Send>> {
        Box::pin(async move {
            for cluster in self.clusters.iter().flatten() {
                cluster.map_anew().await?;
            }
            Ok(self.all_addresses())
        })
    }
}

impl Follower for Routes {
    fn changed(self: Arc<Self>) {
        // Every combination of primaries that some slot has.
        let starts: BTreeSet<u16> = self.clusters.iter().flatten().flat_map(|cluster| cluster.starts()).collect();
        let named: BTreeSet<Places> = starts.into_iter().map(|slot| self.places(slot)).collect();
        let kept: Vec<_> = named.iter().filter_map(|places| self.set_of(places)).collect();
        // Dropped outside of the lock: a set that goes closes its connections.
        let mut abandoned = Vec::new();
        self.sets().retain(|places, set| {
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
            && let Target::Tcp { host, .. } = from.members.nodes[node].address.target()
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
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use tokio::runtime::Handle;

    use super::*;
    use crate::address::Addresses;
    use crate::process::Process;
    use crate::protocol::name::Name;
    use crate::sys::background::Background;
    use crate::sys::clock::Clock;
    use crate::sys::random::Random;

    /// Returns routes of clusters at the second and the third node, with connections to the listed set.
    fn routes() -> (Arc<Process>, Arc<NodeSet>, Arc<Routes>, Arc<Connections>) {
        let process = Arc::new(Process::new(None, Clock::System, Random::System, Background::thread()));
        let urls = ["redis://single", "redis+cluster://seed.a", "redis+cluster://seed.b"];
        let addresses = Addresses::parse(urls).unwrap();
        let listed = process.set(&addresses).unwrap();
        let clusters = addresses.iter().map(|address| process.cluster(address, None).unwrap()).collect();
        let maker: Weak<Process> = Arc::downgrade(&process);
        let routes = Routes::new(maker, clusters, &Arc::downgrade(&listed));
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
        assert!(routes.sets().is_empty(), "it is abandoned");
        let redirect = Redirect::parse("5 :7001").unwrap();
        assert_eq!(routes.place(&from, 2, &redirect).to_string(), "10.0.0.1:7001");
    }
}
