//! The seams of the engine, for a simulation: the real client in many simulated processes, on nodes in memory, under
//! tokio's paused time.
//!
//! A [`World`] is made inside a current-thread runtime whose time is paused. It owns the servers ([`Node`]), which are the
//! nodes or belong to clusters ([`Shards`]), and makes the processes ([`World::process`]), each with its own clock and
//! random source. The [`Network`] decides the [`Fate`] of
//! every message between the two: that is where a seed comes in. This module uses no randomness, real time or threads,
//! so that the same answers repeat the same run.
//!
//! One connection behaves as TCP does: messages arrive in order in both directions, or not at all from some point on.
//! Several connections have no order among each other. A request whose future is dropped before it was written is taken
//! back. Dropped later, it is executed and its reply discarded, even if the client has long given up the connection.

#![allow(clippy::disallowed_methods, reason = "this file is what the clock and the timers of a simulation are")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::address::Addresses;
use crate::api::client::Redlock;
use crate::api::guard::Guard;
use crate::error::Error;
use crate::node::simulated::SimulatedSockets;
use crate::options::Options;
use crate::process::Process;
use crate::process::nodes::NodeSet;
use crate::sys::background::Background;
use crate::sys::clock::{Clock, SimulatedClock};
use crate::sys::random::{Random, SimulatedRandom};

mod link;
mod membership;
mod program;
mod server;
mod shards;
mod sockets;
mod time;
mod wire;

use shards::SHARDS;
use sockets::Sockets;
use time::Time;

pub use crate::node::memory::tampering::{Fault, plant};
pub use program::{Program, Runtime};
pub use server::Node;
pub use shards::Shards;
pub use time::{Machine, Pace};

/// The part of a message's way that a [`Fate`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// A connection is being made.
    Connect,
    /// A request waits to be written; until it is, it can be taken back.
    Write,
    /// A request is on its way to the node.
    Request,
    /// A reply, or the end of the connection, is on its way to the client.
    Reply,
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after this time, and never before what was sent earlier on the same connection.
    Deliver(Duration),
    /// It is lost, with everything that follows in this direction of its connection. Neither end is notified.
    Drop,
    /// It is lost and its connection ends, which the client sees.
    Break,
}

/// The network of a simulation, and the sink of its events.
pub trait Network: Send + Sync {
    /// Decides what becomes of the next message between a process and a node, both by index.
    fn fate(&self, process: usize, node: usize, leg: Leg) -> Fate;

    /// Returns how much later the request being written arrives once more, if it does; in no order with others.
    fn echo(&self, _process: usize, _node: usize) -> Option<Duration> {
        None
    }

    /// Receives that a node, which is down or hangs up, has refused a connection at this virtual time.
    fn refused(&self, _process: usize, _node: usize, _now: Duration) {}

    /// Receives that a node granted or confirmed a `fence` for the key `name`, one of its lock. One attempt has one `token`.
    fn granted(&self, _node: usize, _name: &str, _token: &str, _fence: u64) {}

    /// Receives that the key `name`, which a node left for the rest of its least time, lives longer than that, or than
    /// before.
    fn lengthened(&self, _node: usize, _name: &str) {}

    /// Receives an event for a trace. `line` need not be called.
    fn note(&self, _line: &dyn Fn() -> String) {}
}

/// A simulation: its nodes, and the processes that it makes.
#[derive(Clone)]
pub struct World {
    time: Time,
    network: Arc<dyn Network>,
    nodes: Vec<Node>,
    clusters: Vec<Shards>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl World {
    /// Makes a world with one node for each of `nodes`, all up. Must be called in the runtime that will run it.
    pub fn new(network: Arc<dyn Network>, nodes: &[Pace]) -> Self {
        let time = Time::here();
        let node = |(index, pace): (usize, &Pace)| Node::new(index, index, *pace, time.clone(), Arc::clone(&network));
        let nodes = nodes.iter().enumerate().map(node).collect();
        Self { time, network, nodes, clusters: Vec::new() }
    }

    /// Makes a world in which each of `nodes` is a cluster, whose servers have the same clock. Must be called in the
    /// runtime that will run it.
    pub fn of_clusters(network: Arc<dyn Network>, nodes: &[Pace]) -> Self {
        Self::of_groups(network, nodes, 2 * SHARDS, Shards::new)
    }

    /// Makes a world in which each of `nodes` is a primary that sentinels name. Its replica has the same clock. Must be
    /// called in the runtime that will run it.
    pub fn of_sentinels(network: Arc<dyn Network>, nodes: &[Pace]) -> Self {
        Self::of_groups(network, nodes, 2, Shards::watched)
    }

    fn of_groups(network: Arc<dyn Network>, nodes: &[Pace], size: usize, group: fn(Vec<Node>) -> Shards) -> Self {
        let time = Time::here();
        let server = |index: usize| {
            let vote = index / size;
            Node::new(index, vote, nodes[vote], time.clone(), Arc::clone(&network))
        };
        let servers: Vec<_> = (0..nodes.len() * size).map(server).collect();
        let clusters = servers.chunks_exact(size).map(|servers| group(servers.to_vec())).collect();
        Self { time, network, nodes: servers, clusters }
    }

    /// Returns the virtual time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.time.passed()
    }

    /// Returns the nodes, by index, or the servers of all clusters.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the clusters, or groups with sentinels, by index, if the nodes are such.
    #[must_use]
    pub fn clusters(&self) -> &[Shards] {
        &self.clusters
    }

    /// Returns how many nodes a client lists.
    fn votes(&self) -> usize {
        if self.clusters.is_empty() { self.nodes.len() } else { self.clusters.len() }
    }

    /// Makes a client in its own process. `index` is the process's number for the network, `random` fills slices with
    /// its bits.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for a number of nodes that no client may have.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn process(
        &self,
        index: usize,
        pace: Pace,
        random: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Result<Redlock, Error> {
        self.machine(index, pace, random).map(|(client, _)| client)
    }

    /// Does the same as [`World::process`], and returns the process's machine.
    ///
    /// # Errors
    ///
    /// As [`World::process`].
    ///
    /// # Panics
    ///
    /// As [`World::process`].
    pub fn machine(
        &self,
        index: usize,
        pace: Pace,
        random: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Result<(Redlock, Machine), Error> {
        let machine = Machine::new(self.time.clone(), pace);
        let process = self.process_on(index, &machine, Box::new(random), Background::on(Handle::current()));
        let order: Vec<usize> = (0..self.votes()).collect();
        let set = self.set(&order, &process)?;
        Ok((client(index, process, set, Options::default()), machine))
    }

    /// Makes a process that can be stopped and killed, with clients and runtimes as needed.
    pub fn program(&self, index: usize, pace: Pace, random: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Program {
        Program::new(self, index, pace, Box::new(random))
    }

    /// Sleeps for this much virtual time, on any runtime.
    pub async fn sleep(&self, duration: Duration) {
        self.time.sleep(duration).await;
    }

    /// Returns the nodes in this `order`, as a process sees them.
    fn set(&self, order: &[usize], process: &Arc<Process>) -> Result<Arc<NodeSet>, Error> {
        let address = |node: &usize| match self.clusters.get(*node) {
            Some(group) if group.sentinels() > 0 => {
                let listed = |sentinel: usize| format!("sentinel-{}-{}:1", node + 1, sentinel + 1);
                let listed: Vec<_> = (0..group.sentinels()).map(listed).collect();
                format!("redis+sentinel://{}/primary", listed.join(","))
            }
            Some(cluster) => {
                let place = |server: &Node| membership::place(server.0.index).to_string();
                let places: Vec<_> = cluster.servers().iter().map(place).collect();
                format!("redis+cluster://{}", places.join(","))
            }
            None => format!("memory://server-{}", node + 1),
        };
        process.set(&Addresses::parse(order.iter().map(address))?)
    }

    /// Makes the process of this index, which reaches all servers.
    fn process_on(&self, index: usize, machine: &Machine, random: Fill, background: Background) -> Arc<Process> {
        let clock = Clock::Simulated(SimulatedClock(machine.clocks()));
        let random = Random::Simulated(SimulatedRandom(random.into()));
        let sockets: Arc<dyn SimulatedSockets> = Arc::new(Sockets {
            process: index,
            nodes: self.nodes.clone(),
            groups: self.clusters.clone(),
            time: self.time.clone(),
            network: Arc::clone(&self.network),
        });
        Arc::new(Process::new(None, clock, random, background).with_sockets(sockets))
    }

    /// Adds a line to the trace.
    pub fn note(&self, line: impl Fn() -> String) {
        self.network.note(&line);
    }
}

/// Returns how much of a lock's validity is left, by its process' clock, or as an error for how long it has been over. What
/// its holder was told does not matter: after a loss, this tells until when the lock could have been relied on.
///
/// # Errors
///
/// The validity is over.
pub fn validity(guard: &Guard) -> Result<Duration, Duration> {
    let lease = guard.lease();
    let (now, valid_until) = (lease.context.process.clock.now(), lease.valid_until());
    if now < valid_until { Ok(valid_until.since(now)) } else { Err(now.since(valid_until)) }
}

/// Fills slices with random bits.
type Fill = Box<dyn Fn(&mut [u8]) + Send + Sync>;

fn client(index: usize, process: Arc<Process>, set: Arc<NodeSet>, options: Options) -> Redlock {
    // Not the host's name: a run must not depend on the machine.
    let label = options.label.or_else(|| Some(format!("process-{}", index + 1).into()));
    Redlock::simulated(process, set, Options { label, ..options })
}
