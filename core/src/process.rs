//! What exists once per process: background, node sets with their health, renewal, the blocking face's runtimes, clock
//! and randomness. Production has one value, stamped with the process id; a simulation makes many in one program.
//!
//! Fork is handled here and nowhere else. In a forked child the parent's value must not be touched: its mutexes may be
//! locked by threads that do not exist any more, and dropping its sockets would deregister the parent's. So a child
//! gets a new value, the old one is leaked, and whoever holds something of the old one asks [`Process::is_foreign`]
//! first.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use once_cell::race::OnceBox;
use tokio::runtime::Handle;

use crate::address::Addresses;
use crate::background::Background;
use crate::clock::Clock;
use crate::error::Error;
use crate::lane::{Lane, Member, Members};
use crate::node::health::Health;
use crate::node::{MemoryNodes, Node};
use crate::pool::Pool;
use crate::random::Random;
use crate::renew::Renewal;

/// The one value per process.
pub(crate) struct Process {
    pid: u32,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) background: Background,
    pub(crate) renewal: Renewal,
    pub(crate) pool: Pool,
    /// `host:pid`, the label beside the token.
    pub(crate) owner: Arc<str>,
    sets: Mutex<HashMap<Addresses, Weak<NodeSet>>>,
    memory: MemoryNodes,
}

/// A process value and the one of a forked child of that process.
struct Link {
    process: Arc<Process>,
    child: OnceBox<Link>,
}

static FIRST: OnceBox<Link> = OnceBox::new();

impl Process {
    /// The value of this process. Takes no lock: a fork may happen at any time in another thread.
    pub(crate) fn current() -> Arc<Self> {
        let pid = std::process::id();
        let mut place = &FIRST;
        loop {
            let link = place.get_or_init(|| {
                let process = Arc::new(Self::new(pid, Clock::System, Random::System, Background::thread()));
                Box::new(Link { process, child: OnceBox::new() })
            });
            if link.process.pid == pid {
                return Arc::clone(&link.process);
            }
            place = &link.child;
        }
    }

    pub(crate) fn new(pid: u32, clock: Clock, random: Random, background: Background) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            pid,
            clock,
            random,
            background,
            renewal: Renewal::default(),
            pool: Pool::default(),
            owner: owner(&host, pid).into(),
            sets: Mutex::default(),
            memory: MemoryNodes::default(),
        }
    }

    /// Whether this is the value of another process: we are in a forked child and must not touch it.
    pub(crate) fn is_foreign(&self) -> bool {
        // A simulated process has no pid of its own.
        self.pid != 0 && self.pid != std::process::id()
    }

    /// The set of nodes at `addresses`, one per process, so that all clients of it share what is known of its nodes.
    pub(crate) fn set(&self, addresses: &Addresses) -> Result<Arc<NodeSet>, Error> {
        let mut sets = self.sets.lock().expect("no panic while holding this");
        if let Some(set) = sets.get(addresses).and_then(Weak::upgrade) {
            return Ok(set);
        }
        sets.retain(|_, set| set.strong_count() > 0);
        let member =
            |address: &_| Ok(Member { node: Node::new(address, &self.memory)?, address: Clone::clone(address) });
        let nodes = addresses.iter().map(member).collect::<Result<Vec<_>, Error>>()?;
        let set = Arc::new(NodeSet::new(nodes, self.clock.clone(), self.random.clone()));
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
    clock: Clock,
    random: Random,
    lanes: Mutex<Vec<Arc<Lane>>>,
}

impl NodeSet {
    pub(crate) fn new(nodes: Vec<Member>, clock: Clock, random: Random) -> Self {
        let health = Health::new(nodes.iter().map(|member| member.address.to_string()).collect());
        Self { members: Arc::new(Members { nodes, health }), clock, random, lanes: Mutex::default() }
    }

    /// The lane of `runtime`, made at first use and again when an earlier runtime with the same id has ended.
    pub(crate) fn lane(&self, runtime: &Handle) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().expect("no panic while holding this");
        if let Some(lane) = lanes.iter().find(|lane| lane.is_of(runtime)) {
            return Arc::clone(lane);
        }
        lanes.retain(|lane| lane.is_alive());
        let lane = Lane::new(Arc::clone(&self.members), self.clock.clone(), self.random.clone(), runtime.clone());
        let lane = Arc::new(lane);
        lanes.push(Arc::clone(&lane));
        lane
    }
}
