//! What exists once per process: background, node sets with their health, what is known of endpoints and of node lists,
//! renewal, the blocking face's runtimes, clock and randomness. Production has one value, stamped with the process id; a
//! simulation makes many in one program.
//!
//! Node sets come and go with their clients. What is known of a server stays, for a day after its last use, and so do the
//! last node lists: both are bounded in number.
//!
//! Fork is handled here and nowhere else. In a forked child the parent's value must not be touched: its mutexes may be
//! locked by threads that do not exist any more, and dropping its sockets would deregister the parent's. So a child
//! gets a new value, the old one is leaked, and whoever holds something of the old one asks [`Process::is_foreign`]
//! first. Whatever else has to begin anew in a child is a [`PerProcess`].
//!
//! May import `net` and what lies below it.

pub(crate) mod pending_releases;
pub(crate) mod shutdown;
pub(crate) mod waiters;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use std::{fmt, mem};

use once_cell::race::OnceBox;
use tokio::runtime::Handle;

use crate::address::{Address, Addresses};
use crate::error::Error;
use crate::hold::renew::Renewal;
use crate::net::connections::{Audience, Lane, Member, Members, News};
use crate::net::node::endpoint::Endpoints;
use crate::net::node::health::Health;
use crate::net::node::list::{NodeList, NodeLists};
use crate::net::node::{Connection, MemoryNodes, Node};
use crate::net::tracking::Watch;
use crate::process::pending_releases::Owed;
use crate::process::shutdown::Farewell;
use crate::process::waiters::Gates;
use crate::sys::background::Background;
use crate::sys::clock::Clock;
use crate::sys::random::Random;
use crate::sys::runtimes::{self, Pool};

/// The one value per process.
pub(crate) struct Process {
    /// `None` for a simulated process, which has no pid of its own.
    pid: Option<Pid>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) background: Background,
    pub(crate) renewal: Renewal,
    pub(crate) pool: Pool,
    pub(crate) farewell: Farewell,
    /// `host:pid`, the label beside the token.
    pub(crate) owner: Arc<str>,
    sets: Mutex<HashMap<Addresses, Weak<NodeSet>>>,
    endpoints: Endpoints,
    pub(crate) lists: NodeLists,
    memory: MemoryNodes,
}

/// The process that a call runs in. A call asks the operating system once, when it begins, and hands the answer down:
/// each time is a system call. Not kept any longer, and not while anything else may run: it may fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pid(u32);

impl Pid {
    pub(crate) fn now() -> Self {
        Self(std::process::id())
    }
}

/// A value that every process has of its own: made at first use, and anew in a forked child. Takes no lock: a fork may
/// happen at any time in another thread. The values of other processes are never touched, not even dropped.
pub(crate) struct PerProcess<T>(OnceBox<Link<T>>);

struct Link<T> {
    pid: Pid,
    /// `None` only while it is dropped.
    value: Option<T>,
    child: PerProcess<T>,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(OnceBox::new())
    }

    /// With a value for this process.
    pub(crate) fn with(value: T) -> Self {
        let first = OnceBox::new();
        let link = Link { pid: Pid::now(), value: Some(value), child: Self::new() };
        drop(first.set(Box::new(link)));
        Self(first)
    }

    /// The value of the process `pid`, which is this one, made by `make` if there is none yet. Where threads race to make
    /// it, one wins.
    pub(crate) fn of(&self, pid: Pid, make: impl Fn() -> T) -> &T {
        let result: Result<&T, Infallible> = self.try_of(pid, || Ok(make()));
        let Ok(value) = result;
        value
    }

    /// As [`PerProcess::of`], where it may fail.
    pub(crate) fn try_of<E>(&self, pid: Pid, make: impl Fn() -> Result<T, E>) -> Result<&T, E> {
        let mut place = self;
        loop {
            let link = place.0.get_or_try_init(|| {
                make().map(|value| Box::new(Link { pid, value: Some(value), child: Self::new() }))
            })?;
            if link.pid == pid {
                return Ok(link.value.as_ref().expect("taken only by drop"));
            }
            place = &link.child;
        }
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PerProcess")
    }
}

impl<T> Drop for Link<T> {
    fn drop(&mut self) {
        if self.pid != Pid::now() {
            mem::forget(self.value.take());
        }
    }
}

static CURRENT: PerProcess<Arc<Process>> = PerProcess::new();

impl Process {
    /// The value of this process.
    pub(crate) fn current() -> Arc<Self> {
        let pid = Pid::now();
        let make = || Arc::new(Self::new(Some(pid), Clock::System, Random::System, Background::thread()));
        Arc::clone(CURRENT.of(pid, make))
    }

    pub(crate) fn new(pid: Option<Pid>, clock: Clock, random: Random, background: Background) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            pid,
            clock,
            random,
            background,
            renewal: Renewal::default(),
            pool: Pool::default(),
            farewell: Farewell::default(),
            owner: owner(&host, pid.map_or(0, |pid| pid.0)).into(),
            sets: Mutex::default(),
            endpoints: Endpoints::default(),
            lists: NodeLists::default(),
            memory: MemoryNodes::default(),
        }
    }

    /// Whether this is the value of another process: we are in a forked child and must not touch it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.is_foreign_to(Pid::now())
    }

    /// Whether this is not the value of the process `pid`, which is this one.
    pub(crate) fn is_foreign_to(&self, pid: Pid) -> bool {
        self.pid.is_some_and(|own| own != pid)
    }

    /// The set of nodes at `addresses`, one per process, so that all clients of it share lanes, gates and watch. Sets
    /// that differ share what is known of the endpoints that they have in common.
    pub(crate) fn set(self: &Arc<Self>, addresses: &Addresses) -> Result<Arc<NodeSet>, Error> {
        let mut sets = self.sets.lock().expect("no panic while holding this");
        if let Some(set) = sets.get(addresses).and_then(Weak::upgrade) {
            return Ok(set);
        }
        sets.retain(|_, set| set.strong_count() > 0);
        let node = |address: &Address| Ok((Node::new(address, &self.memory)?, address.clone()));
        let nodes = addresses.iter().map(node).collect::<Result<Vec<_>, Error>>()?;
        let set = Arc::new(NodeSet::new(self.members(nodes), addresses.connect_timeout(), self));
        sets.insert(addresses.clone(), Arc::downgrade(&set));
        Ok(set)
    }

    /// These nodes, each with what this process knows of its endpoint.
    pub(crate) fn members(&self, nodes: impl IntoIterator<Item = (Node, Address)>) -> Vec<Member> {
        let now = self.clock.now();
        self.endpoints.forget(now);
        let member = |(node, address): (Node, Address)| {
            let endpoint = self.endpoints.at(address.target(), node.is_lasting(), now);
            Member { node, address, endpoint }
        };
        nodes.into_iter().map(member).collect()
    }
}

impl fmt::Debug for Process {
    /// What hangs on it is everybody's, and of no use to who looks at a client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// The host's name, cut so that label and pid keep within a label's limit.
fn owner(host: &str, pid: u32) -> String {
    let host: String = host.chars().filter(|character| !character.is_control()).take(24).collect();
    format!("{host}:{pid}")
}

/// A set of nodes with the lanes that lead to it.
#[derive(Debug)]
pub(crate) struct NodeSet {
    pub(crate) members: Arc<Members>,
    /// For those who look out for lists that differ.
    pub(crate) list: Arc<NodeList>,
    process: Weak<Process>,
    clock: Clock,
    random: Random,
    lanes: Mutex<Vec<Arc<Lane>>>,
    pub(crate) gates: Arc<Gates>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) owed: Owed,
}

impl NodeSet {
    pub(crate) fn new(nodes: Vec<Member>, connect_timeout: Duration, process: &Arc<Process>) -> Self {
        let known = nodes.iter().map(|member| (Arc::clone(&member.endpoint), member.address.to_string()));
        let health = Health::new(known, process.clock.clone());
        let list = process.lists.of(nodes.iter().map(|member| &member.address));
        let owed = Owed::new(nodes.len());
        Self {
            members: Arc::new(Members { nodes, health, connect_timeout }),
            list,
            process: Arc::downgrade(process),
            clock: process.clock.clone(),
            random: process.random.clone(),
            lanes: Mutex::default(),
            gates: Arc::default(),
            watch: Arc::default(),
            owed,
        }
    }

    /// For the background's lane, which is always driven: locks held on these nodes are looked after.
    fn holders(&self, runtime: &Handle) -> Option<Audience> {
        let background = self.process.upgrade()?.background.started()?;
        let (process, members) = (Weak::clone(&self.process), Arc::downgrade(&self.members));
        background.is(runtime).then(|| {
            Audience::new(false, move |node, news| {
                let Some((process, members)) = process.upgrade().zip(members.upgrade()) else { return };
                match news {
                    News::Upset => process.renewal.hasten(&members, node),
                    News::Reached => process.renewal.reached(&members, node),
                    News::Changed(_) | News::AllChanged => {}
                }
            })
        })
    }

    /// For the lane of those who wait.
    fn waiters(&self) -> Audience {
        let watch = Arc::downgrade(&self.watch);
        Audience::new(true, move |node, news| {
            if let Some(watch) = watch.upgrade() {
                watch.heard(node, news);
            }
        })
    }

    /// The lane whose connection to `node` this is, if that has not been given up and its runtime still runs.
    pub(crate) fn lane_over(&self, node: usize, connection: &Connection) -> Option<Arc<Lane>> {
        let lanes = self.lanes.lock().expect("no panic while holding this");
        lanes.iter().find(|lane| lane.is_alive() && lane.is_over(node, connection)).cloned()
    }

    /// The lane of `runtime`, made at first use and again when an earlier runtime with the same id has ended.
    pub(crate) fn lane(&self, runtime: &Handle) -> Arc<Lane> {
        self.lane_with(runtime, false, || self.holders(runtime))
    }

    /// The lane on which the background waits: its nodes tell of every key that was read on it when that changes. Apart
    /// from the other one, because what is told of a key that nobody waits for is work for nothing.
    pub(crate) fn waiting_lane(&self, background: &Handle) -> Arc<Lane> {
        self.lane_with(background, true, || Some(self.waiters()))
    }

    fn lane_with(&self, runtime: &Handle, watches: bool, audience: impl FnOnce() -> Option<Audience>) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().expect("no panic while holding this");
        if let Some(lane) = lanes.iter().find(|lane| lane.is_of(runtime) && lane.watches() == watches) {
            return Arc::clone(lane);
        }
        lanes.retain(|lane| lane.is_alive());
        let members = Arc::clone(&self.members);
        let lane = Lane::new(members, self.clock.clone(), self.random.clone(), runtime.clone(), audience());
        let lane = Arc::new(lane);
        lanes.push(Arc::clone(&lane));
        if let Some(process) = self.process.upgrade() {
            process.pool.join(runtime.id());
        }
        lane
    }
}

impl Drop for NodeSet {
    /// Closes the connections that this set has on the runtimes of blocking calls.
    fn drop(&mut self) {
        let lanes = mem::take(self.lanes.get_mut().unwrap_or_else(PoisonError::into_inner));
        let Some(process) = self.process.upgrade() else { return };
        if process.is_foreign() {
            // The parent's connections.
            mem::forget(lanes);
            return;
        }
        let runtimes: Vec<_> = lanes.iter().map(|lane| lane.runtime_id()).collect();
        drop(lanes);
        let undriven: Vec<_> = runtimes.into_iter().filter(|runtime| process.pool.has_made(*runtime)).collect();
        if !undriven.is_empty() {
            runtimes::close(&process, &undriven);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::net::node::{Identity, Introduction};
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
        let introduction = Introduction {
            identity,
            uptime: Duration::ZERO,
            evicts: None,
            silent: false,
            watched: false,
            again: Moment::NEVER,
        };
        let now = set.clock.now();
        drop(set.members.health.introduced(0, &introduction, now));
        set.members.health.objection(0, DELAY, now).is_some()
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

    #[cfg(feature = "simulation")]
    mod virtual_time {
        use std::future::{Future, pending};
        use std::pin::Pin;
        use std::sync::atomic::{AtomicU64, Ordering};

        use super::*;
        use crate::sys::clock::{SimulatedClock, SimulatedTime};

        /// Goes on only when it is set.
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
