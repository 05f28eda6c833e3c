//! The values that exist once per process: its environment, node sets with their health, the schedule of its locks, and
//! the knowledge of endpoints and node lists.
//!
//! Production has one value, stamped with the process id. A simulation makes many in one program.
//!
//! Node sets live as long as their clients. Knowledge of a server stays for a day after its last use. The last node
//! lists stay too. Both are bounded in number.
//!
//! A forked child must not touch the parent's value: its mutexes may be locked by threads that no longer exist, and
//! dropping its sockets would deregister the parent's. So the child gets a new value, and the old one is leaked. Code
//! that holds a part of the old one first asks [`Environment::is_foreign`]. Anything else that must begin anew in a
//! child is a [`PerProcess`].
//!
//! May import `net` and what lies below it.

pub(crate) mod context;
pub(crate) mod environment;
#[cfg(feature = "__bindings")]
pub(crate) mod events;
pub(crate) mod metrics;
pub(crate) mod nodes;
pub(crate) mod pending_releases;
pub(crate) mod schedule;
pub(crate) mod shutdown;
pub(crate) mod waiters;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::address::{Address, Addresses};
use crate::credentials::Provider;
use crate::error::Error;
use crate::net::connections::Members;
use crate::net::member::Member;
use crate::node::cluster::servers::ServerAccess;
use crate::node::endpoint::Endpoints;
use crate::node::list::NodeLists;
use crate::node::sentinels::SentinelAccess;
use crate::node::simulated::SimulatedSockets;
use crate::node::{Cluster, MemoryNodes, Node, Sentinels};
use crate::process::environment::Environment;
use crate::process::metrics::Metrics;
use crate::process::nodes::{NodeSet, Registration, Routes, Servers};
use crate::process::schedule::Schedule;
use crate::sys::background::Background;
use crate::sys::clock::Clock;
use crate::sys::fork::{PerProcess, Pid};
use crate::sys::host;
use crate::sys::mutex::Mutex;
use crate::sys::random::Random;
use crate::sys::runtimes::Seats;
use crate::sys::task::Task;
use crate::texts::opaque;
use crate::transport::logins::Logins;

/// The one value per process.
pub(crate) struct Process {
    pub(crate) environment: Arc<Environment>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) metrics: Metrics,
    /// `host:pid`, the label beside the token.
    pub(crate) label: Arc<str>,
    /// Those in use, by addresses that have their logins.
    sets: Arc<Mutex<HashMap<Addresses, Weak<NodeSet>>>>,
    pub(crate) endpoints: Endpoints,
    pub(crate) lists: NodeLists,
    pub(crate) memory: MemoryNodes,
    sentinels: Mutex<HashMap<Address, Arc<Sentinels>>>,
    clusters: Mutex<HashMap<Address, Arc<Cluster>>>,
    sockets: Option<Arc<dyn SimulatedSockets>>,
}

/// How many groups of sentinels are remembered, and how many clusters. Only those that clients use may be more.
const MOST_GROUPS: usize = 64;

impl Deref for Process {
    type Target = Environment;

    fn deref(&self) -> &Environment {
        &self.environment
    }
}

static CURRENT: PerProcess<Arc<Process>> = PerProcess::new();

impl Process {
    /// Returns this process's value.
    pub(crate) fn current() -> Arc<Self> {
        let pid = Pid::now();
        let make = || Arc::new(Self::new(Some(pid), Clock::System, Random::System, Background::thread()));
        Arc::clone(CURRENT.of(pid, make))
    }

    pub(crate) fn new(pid: Option<Pid>, clock: Clock, random: Random, background: Background) -> Self {
        let label = label(&host::name(), pid.map_or(0, |pid| pid.0)).into();
        let environment = Arc::new(Environment::new(pid, clock, random, background));
        Self {
            schedule: Arc::new(Schedule::new(&environment)),
            metrics: Metrics::default(),
            environment,
            label,
            sets: Arc::default(),
            endpoints: Endpoints::default(),
            lists: NodeLists::default(),
            memory: MemoryNodes::default(),
            sentinels: Mutex::default(),
            clusters: Mutex::default(),
            sockets: None,
        }
    }

    /// Makes it reach the servers of a simulation.
    pub(crate) fn with_sockets(self, sockets: Arc<dyn SimulatedSockets>) -> Self {
        Self { sockets: Some(sockets), ..self }
    }

    /// Returns the set of nodes at `addresses`, one per process, so that its clients share connections, waiters and
    /// tracking. Different sets share the knowledge of common endpoints.
    pub(crate) fn set(self: &Arc<Self>, addresses: &Addresses) -> Result<Arc<NodeSet>, Error> {
        let mut sets = self.sets.lock();
        if let Some(set) = sets.get(addresses).and_then(Weak::upgrade) {
            return Ok(set);
        }
        let logins =
            addresses.iter().find_map(|address| address.provider.as_ref()).map(|provider| self.logins(provider));
        let clusters = addresses.iter().map(|address| self.cluster(address, logins.as_ref()));
        let clusters = clusters.collect::<Result<Vec<_>, Error>>()?;
        let servers = addresses.iter().cloned().zip(clusters.iter().cloned()).collect();
        let members = self.members(servers, addresses.connect_timeout, logins)?;
        let mut set = NodeSet::new(members, self.lists.of(addresses.iter()), &self.environment, &self.schedule);
        set.seats = Seats::new(addresses.max_connections);
        set.registration = Some(self.registration(addresses.clone()));
        let set = if clusters.iter().any(Option::is_some) {
            let process = Arc::downgrade(self);
            // It fails if a plain node's files of TLS became unreadable, or a server's name is not one for TLS.
            let make = move |servers, listed: &NodeSet| process.upgrade()?.members_like(servers, listed).ok();
            Arc::new_cyclic(|listed| set.with_routes(Routes::new(make, clusters, listed)))
        } else {
            Arc::new(set)
        };
        set.follow_nodes();
        sets.insert(addresses.clone(), Arc::downgrade(&set));
        Ok(set)
    }

    fn registration(&self, addresses: Addresses) -> Registration {
        let sets = Arc::clone(&self.sets);
        Registration::new(move || {
            let mut sets = sets.lock();
            // Another set with these addresses may have been made meanwhile.
            let is_over = sets.get(&addresses).is_some_and(|set| set.strong_count() == 0);
            let forgotten = if is_over { sets.remove_entry(&addresses) } else { None };
            // With a provider's last clone, the program's own code is dropped.
            drop(sets);
            drop(forgotten);
        })
    }

    /// Makes the set of all servers that the clusters among the nodes of `listed` have, with its other nodes, apart from
    /// all other sets. `None` if no node is a cluster, or the map of one is not known.
    pub(crate) async fn servers_of(&self, listed: &NodeSet) -> Result<Option<Arc<NodeSet>>, Error> {
        let Some(routes) = listed.routes() else { return Ok(None) };
        let Ok(addresses) = routes.all_servers().await else { return Ok(None) };
        let servers = addresses.into_iter().map(|address| (address, None)).collect();
        let members = self.members_like(servers, listed)?;
        Ok(Some(Arc::new(NodeSet::new(members, Arc::clone(&listed.list), &self.environment, &self.schedule))))
    }

    fn members_like(&self, servers: Servers, listed: &NodeSet) -> Result<Members, Error> {
        self.members(servers, listed.members.connect_timeout, listed.members.logins.clone())
    }

    /// Makes nodes of these servers, each with the process's knowledge of its endpoint.
    fn members(
        &self,
        servers: Servers,
        connect_timeout: Duration,
        logins: Option<Arc<Logins>>,
    ) -> Result<Members, Error> {
        let now = self.clock.now();
        self.endpoints.forget(now);
        let member = |(address, cluster): (Address, Option<Arc<Cluster>>)| {
            let node = self.node(&address, logins.as_ref(), cluster)?;
            let endpoint = self.endpoints.at(&address.target, node.is_lasting(), now);
            Ok(Member { node, address, endpoint })
        };
        let nodes = servers.into_iter().map(member).collect::<Result<Vec<_>, Error>>()?;
        Ok(Members::new(nodes, connect_timeout, logins, &self.clock))
    }

    fn node(
        &self,
        address: &Address,
        logins: Option<&Arc<Logins>>,
        cluster: Option<Arc<Cluster>>,
    ) -> Result<Node, Error> {
        let sentinels = self.sentinels(address)?;
        if let Some(node) = self.sockets.as_ref().and_then(|sockets| sockets.node(&address.target, sentinels.as_ref()))
        {
            return Ok(Node::Simulated(node));
        }
        Node::new(address, &self.memory, logins, sentinels, cluster)
    }

    /// Returns the cluster at an address, if that is one. All clients with this address and login share it.
    fn cluster(
        self: &Arc<Self>,
        address: &Address,
        logins: Option<&Arc<Logins>>,
    ) -> Result<Option<Arc<Cluster>>, Error> {
        let make = || {
            let servers = match &self.sockets {
                Some(sockets) => sockets.servers(&address.target),
                None => ServerAccess::dialed(address, logins)?,
            };
            let Some(servers) = servers else { return Ok(None) };
            let process = Arc::downgrade(self);
            let quarantine = move |address: &Address| {
                if let Some(process) = process.upgrade() {
                    let now = process.clock.now();
                    process.endpoints.at(&address.target, true, now).moved(now);
                }
            };
            Ok(Cluster::new(address, servers, self.clock.clone(), self.spawn(), quarantine))
        };
        // The logins of a provider end with its client.
        if address.provider.is_some() { make() } else { remembered(&self.clusters, address.clone(), make) }
    }

    fn logins(&self, provider: &Provider) -> Arc<Logins> {
        Logins::new(provider.clone(), self.clock.clone(), self.random.clone(), self.spawn())
    }

    /// Returns what runs a task in the background.
    fn spawn(&self) -> impl Fn(Task) + Send + Sync + use<> {
        let environment = Arc::clone(&self.environment);
        move |task| environment.background.spawn(task)
    }

    /// Returns the sentinels of an address, if it lists any. All clients share them, and what they told is remembered.
    fn sentinels(&self, address: &Address) -> Result<Option<Arc<Sentinels>>, Error> {
        remembered(&self.sentinels, address.sentinel_key(), || {
            let access = match &self.sockets {
                Some(sockets) => sockets.sentinels(&address.target),
                None => SentinelAccess::dialed(address)?,
            };
            Ok(access.and_then(|access| Sentinels::new(address, access, self.clock.clone(), self.spawn())))
        })
    }
}

// Omits the shared rest, which does not help with debugging a client.
opaque!(Process);

/// Returns the group at an address, made and remembered at first use. Forgets those that nobody uses if there are too many.
fn remembered<T>(
    all: &Mutex<HashMap<Address, Arc<T>>>,
    address: Address,
    make: impl FnOnce() -> Result<Option<Arc<T>>, Error>,
) -> Result<Option<Arc<T>>, Error> {
    let mut all = all.lock();
    if let Some(group) = all.get(&address) {
        return Ok(Some(Arc::clone(group)));
    }
    let group = make()?;
    if let Some(group) = &group {
        if all.len() >= MOST_GROUPS {
            all.retain(|_, group| Arc::strong_count(group) > 1);
        }
        all.insert(address, Arc::clone(group));
    }
    Ok(group)
}

/// Returns `host:pid`, with the host cut to keep within a label's limit.
fn label(host: &str, pid: u32) -> String {
    let host: String = host.chars().filter(|character| !character.is_control()).take(24).collect();
    format!("{host}:{pid}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::identity::{Identity, Lacks, ServerInfo};
    use crate::sys::clock::Moment;

    const DELAY: Duration = Duration::from_secs(60);

    fn process() -> Arc<Process> {
        Arc::new(Process::new(None, Clock::System, Random::System, Background::thread()))
    }

    fn set(process: &Arc<Process>, url: &str) -> Arc<NodeSet> {
        process.set(&Addresses::parse([url]).unwrap()).unwrap()
    }

    fn is_barred_by(set: &NodeSet, run_id: &str) -> bool {
        let identity = Identity { run_id: run_id.to_owned(), ..Identity::default() };
        let server_info = ServerInfo {
            identity,
            uptime: Duration::ZERO,
            evicts: None,
            lacks: Lacks::default(),
            watched: false,
            again: Moment::NEVER,
        };
        let now = Clock::System.now();
        drop(set.members.health.record_info(0, &server_info, now));
        set.members.health.why_not_counted(0, DELAY, now).is_some()
    }

    #[test]
    fn what_is_known_of_an_endpoint_belongs_to_its_process() {
        let (process, other) = (process(), process());
        assert!(!is_barred_by(&set(&process, "redis://a"), "1"));
        assert!(is_barred_by(&set(&process, "redis://user:pass@a/2?protocol=2"), "2"), "the first client has gone");
        assert!(!is_barred_by(&set(&process, "redis://a:6380"), "3"), "another port");
        assert!(!is_barred_by(&set(&process, "rediss://a"), "4"), "with TLS");
        assert!(!is_barred_by(&set(&other, "redis://a"), "5"), "another process, as a forked child is");
    }

    mod virtual_time {
        use std::future::{Future, pending};
        use std::pin::Pin;
        use std::sync::atomic::{AtomicU64, Ordering};

        use super::*;
        use crate::sys::clock::{SimulatedClock, SimulatedTime};

        /// A clock that advances only when set.
        struct Hands(AtomicU64);

        impl SimulatedTime for Hands {
            fn monotonic_nanos(&self) -> u64 {
                self.0.load(Ordering::Relaxed)
            }

            fn wall_micros(&self) -> u64 {
                0
            }

            fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
                Box::pin(pending())
            }
        }

        #[test]
        fn what_is_known_of_an_endpoint_is_forgotten_after_a_day_without_use() {
            let hands = Arc::new(Hands(AtomicU64::new(1)));
            let clock = Clock::Simulated(SimulatedClock(Arc::clone(&hands) as Arc<dyn SimulatedTime>));
            let process = Arc::new(Process::new(None, clock, Random::System, Background::thread()));
            let hour = |number: u64| hands.0.store(1 + number * 3_600_000_000_000, Ordering::Relaxed);
            let first = set(&process, "redis://a");
            assert!(!is_barred_by(&first, "1"));
            hour(30);
            drop(first);
            hour(53);
            assert!(is_barred_by(&set(&process, "redis://a"), "2"), "a client named it until 23 hours ago");
            hour(77);
            assert!(!is_barred_by(&set(&process, "redis://a"), "3"), "24 hours ago");
        }
    }
}
