//! What exists once per process: background, node sets with their health, renewal, the blocking face's runtimes, clock
//! and randomness. Production has one value, stamped with the process id; a simulation makes many in one program.
//!
//! Fork is handled here and nowhere else. In a forked child the parent's value must not be touched: its mutexes may be
//! locked by threads that do not exist any more, and dropping its sockets would deregister the parent's. So a child
//! gets a new value, the old one is leaked, and whoever holds something of the old one asks [`Process::is_foreign`]
//! first. Whatever else has to begin anew in a child is a [`PerProcess`].

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use once_cell::race::OnceBox;
use tokio::runtime::Handle;

use crate::address::Addresses;
use crate::background::Background;
use crate::clock::Clock;
use crate::error::Error;
use crate::farewell::Farewell;
use crate::gate::Gates;
use crate::lane::{Audience, Lane, Member, Members, News};
use crate::node::health::Health;
use crate::node::{Connection, MemoryNodes, Node};
use crate::pool::Pool;
use crate::random::Random;
use crate::renew::Renewal;
use crate::watch::Watch;

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
            std::mem::forget(self.value.take());
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

    /// The set of nodes at `addresses`, one per process, so that all clients of it share what is known of its nodes.
    pub(crate) fn set(self: &Arc<Self>, addresses: &Addresses) -> Result<Arc<NodeSet>, Error> {
        let mut sets = self.sets.lock().expect("no panic while holding this");
        if let Some(set) = sets.get(addresses).and_then(Weak::upgrade) {
            return Ok(set);
        }
        sets.retain(|_, set| set.strong_count() > 0);
        let member =
            |address: &_| Ok(Member { node: Node::new(address, &self.memory)?, address: Clone::clone(address) });
        let nodes = addresses.iter().map(member).collect::<Result<Vec<_>, Error>>()?;
        let set = Arc::new(NodeSet::new(nodes, self));
        sets.insert(addresses.clone(), Arc::downgrade(&set));
        Ok(set)
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
    process: Weak<Process>,
    clock: Clock,
    random: Random,
    lanes: Mutex<Vec<Arc<Lane>>>,
    pub(crate) gates: Arc<Gates>,
    pub(crate) watch: Arc<Watch>,
}

impl NodeSet {
    pub(crate) fn new(nodes: Vec<Member>, process: &Arc<Process>) -> Self {
        let health = Health::new(nodes.iter().map(|member| member.address.to_string()).collect());
        Self {
            members: Arc::new(Members { nodes, health }),
            process: Arc::downgrade(process),
            clock: process.clock.clone(),
            random: process.random.clone(),
            lanes: Mutex::default(),
            gates: Arc::default(),
            watch: Arc::default(),
        }
    }

    /// For the background's lane, which is always driven: locks held on these nodes are looked after.
    fn holders(&self, runtime: &Handle) -> Option<Audience> {
        let background = self.process.upgrade()?.background.started()?;
        let (process, members) = (Weak::clone(&self.process), Arc::downgrade(&self.members));
        background.is(runtime).then(|| {
            Audience::new(false, move |_, news| {
                if let (News::Upset, Some((process, members))) = (news, process.upgrade().zip(members.upgrade())) {
                    process.renewal.hasten(&members);
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
        lane
    }
}
