//! One node: one endpoint, one vote. Defines how a node is connected to and asked. The kinds of nodes are in the files
//! beside this one.
//!
//! May import `transport` and what lies below it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::address::{Address, Target};
use crate::error::Error;
use crate::protocol::request::{Action, Reply, Request};
use crate::sys::clock::Clock;
use crate::sys::future::begun;
use crate::texts::opaque;
use crate::transport::failure::Failure;
use crate::transport::logins::Logins;
use crate::transport::progress::{Phase, Progress};
use crate::transport::tls::Tls;

#[cfg_attr(not(feature = "cluster"), path = "cluster_off.rs")]
pub(crate) mod cluster;
pub(crate) mod endpoint;
#[cfg(test)]
#[path = "../../tests/unit/equality.rs"]
mod equality;
pub(crate) mod event;
pub(crate) mod health;
pub(crate) mod identity;
mod info;
pub(crate) mod keys;
pub(crate) mod list;
#[cfg_attr(not(feature = "memory"), path = "memory_off.rs")]
pub(crate) mod memory;
mod native_delete;
pub(crate) mod pace;
mod pipeline;
pub(crate) mod probe;
mod redis;
mod refusal;
mod replies;
mod scripts;
#[cfg_attr(not(feature = "sentinel"), path = "sentinels_off.rs")]
pub(crate) mod sentinels;
mod setup;
#[cfg(test)]
#[path = "../../tests/unit/sharing.rs"]
mod sharing;
pub(crate) mod simulated;
#[cfg(test)]
#[path = "../../tests/unit/node.rs"]
pub(crate) mod testing;
pub(crate) mod traffic;
pub(crate) mod way;

use self::redis::How;
pub(crate) use cluster::Cluster;
use event::{EventSink, NodeEvent};
use identity::{Identity, ServerInfo};
pub(crate) use memory::MemoryNodes;
pub(crate) use sentinels::Sentinels;
use simulated::{SimulatedNode, answers::SimulatedLink};
use way::{Eval, OpenSlot};

/// One node of a set.
#[derive(Debug)]
pub(crate) enum Node {
    /// A Redis or Valkey server.
    Redis(Box<redis::RedisNode>),
    /// A cluster, before it is known which of its servers is meant.
    Cluster(Arc<Cluster>),
    /// A store in this process.
    Memory(memory::MemoryNode),
    /// A node of a simulation.
    Simulated(Arc<dyn SimulatedNode>),
}

impl Node {
    /// Makes a node. `logins` serve the addresses that have no login of their own.
    /// `sentinels` name its server, if the address lists them; `cluster` is what the
    /// address names, or the cluster of its server.
    pub(crate) fn new(
        address: &Address,
        memory: &MemoryNodes,
        logins: Option<&Arc<Logins>>,
        sentinels: Option<Arc<Sentinels>>,
        cluster: Option<Arc<Cluster>>,
    ) -> Result<Self, Error> {
        Ok(match (&address.target, cluster) {
            (Target::Cluster { .. }, Some(cluster)) => Self::Cluster(cluster),
            (Target::Memory { name }, _) => Self::Memory(memory.named(name)),
            (target, cluster) => {
                let tls = match (address.tls(), target, cluster) {
                    (_, Target::Tcp { host, .. }, Some(cluster)) => cluster.tls_to(host)?,
                    (Some(options), Target::Tcp { host, .. }, None) => Some(Arc::new(Tls::new(options, host)?)),
                    (Some(options), Target::Sentinel { sentinels, .. }, _) => {
                        Some(Arc::new(Tls::new(options, &sentinels[0].0)?))
                    }
                    _ => None,
                };
                Self::Redis(Box::new(redis::RedisNode::new(address, logins, sentinels, tls)))
            }
        })
    }

    /// Returns the sentinels that name its server, if there are any.
    pub(crate) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match self {
            Self::Redis(node) => node.sentinels.as_ref(),
            Self::Memory(_) | Self::Cluster(_) => None,
            Self::Simulated(node) => node.sentinels(),
        }
    }

    /// Returns whether a server may outlive its clients here. A store in memory does not.
    pub(crate) fn is_lasting(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// Makes a connection and fetches the server info, without fail if the node reported it before (`is_known`). Sets
    /// no time limit: the caller does. `events` receives the node's reports, where available. Cancel safe: it sends
    /// nothing that needs undoing.
    pub(crate) async fn connect(
        &self,
        clock: &Clock,
        events: Option<EventSink>,
        is_known: bool,
        progress: &Progress,
    ) -> Result<(Connection, ServerInfo), Failure> {
        match self {
            Self::Redis(node) => {
                let (connection, server_info) = node.connect(&How { clock, progress, events, is_known }).await?;
                Ok((Connection::Redis(connection), server_info))
            }
            // Then a request begins again, at the server that the map names.
            Self::Cluster(cluster) => {
                progress.enter(Phase::Map);
                cluster.map_anew().await.and(Err(Failure::Unassigned))
            }
            Self::Memory(node) => Ok((Connection::Memory(node.connect(clock, events)), node.server_info())),
            Self::Simulated(node) => {
                progress.enter(Phase::SetUp);
                let (link, server_info) = node.connect(events).await?;
                Ok((Connection::Simulated(link), server_info))
            }
        }
    }
}

/// A connection to a node. Requests are executed in the order in which [`Connection::call`]'s futures are first polled.
#[derive(Clone)]
pub(crate) enum Connection {
    Redis(redis::RedisConnection),
    Memory(memory::MemoryConnection),
    Simulated(Arc<dyn SimulatedLink>),
}

impl Connection {
    /// Asks the node. The future's first poll fixes the request's position in the connection's order. Dropping the
    /// future soon after withdraws the request. Once it is written, or about to be in a batch with others, it is
    /// executed and its reply discarded.
    pub(crate) async fn call(&self, request: &Request, by: Eval) -> Result<Reply, Failure> {
        let answer = match self {
            Self::Redis(connection) => connection.call(request, by, OpenSlot::default()).await,
            Self::Memory(connection) => connection.call(request),
            Self::Simulated(link) => link.call(request.clone(), by, OpenSlot::default()).await,
        };
        // A node does not report a change over the connection that made it, and a release behind an unanswered create
        // may take the connection on which this process's waiters asked.
        let is_told = match (&answer, &request.action) {
            (Ok(Reply::Deleted { .. }), Action::Release { asks, .. } | Action::Leave { asks, .. }) => *asks,
            (Ok(Reply::Withdrawn { waiting }), _) => *waiting == 0,
            _ => false,
        };
        if is_told && let Some(events) = self.reports_to() {
            for key in request.keys.each().map(|keys| &*keys.lock).chain(request.keys.bell()) {
                events.emit(NodeEvent::Changed(key));
            }
        }
        // Nor does it remember then that this connection has read the key for those who wait for others with it. A lost
        // attempt changes the key twice.
        let is_own_change = match (&answer, &request.action) {
            (Ok(Reply::Granted(_)), _) => true,
            (Ok(Reply::Deleted { .. }), Action::Release { asks, .. } | Action::Leave { asks, .. }) => !asks,
            _ => false,
        };
        if is_own_change && let Some(events) = self.reports_to() {
            let line = request.keys.line();
            request.keys.each().for_each(|keys| events.emit(NodeEvent::ChangedFor { key: &keys.lock, line }));
        }
        answer
    }

    /// Asks once more in the way that an open slot needs, by the script's text. As [`Connection::call`] otherwise.
    pub(crate) async fn call_in_open_slot(&self, request: &Request, way: OpenSlot) -> Result<Reply, Failure> {
        match self {
            Self::Redis(connection) => connection.call(request, Eval::Text, way).await,
            Self::Memory(_) => self.call(request, Eval::Text).await,
            Self::Simulated(link) => link.call(request.clone(), Eval::Text, way).await,
        }
    }

    /// Takes what the node told of itself with the last extension, if it was asked.
    pub(crate) fn take_told(&self) -> Option<Identity> {
        self.to_server()?.take_told()
    }

    /// Returns the receiver of the changes that the node reports on this connection, if it reports any.
    fn reports_to(&self) -> Option<&EventSink> {
        match self {
            Self::Redis(connection) => connection.reports_to.as_ref(),
            Self::Memory(connection) => connection.reports_to(),
            Self::Simulated(link) => link.reports_to(),
        }
    }

    /// Returns the connection to a server, for a diagnosis; `None` for a node in this process.
    pub(crate) fn to_server(&self) -> Option<&redis::RedisConnection> {
        if let Self::Redis(connection) = self { Some(connection) } else { None }
    }

    /// Sends a provider's newest login, if there is one; see [`redis::RedisConnection::log_in`].
    pub(crate) fn log_in(&self) {
        if let Some(connection) = self.to_server() {
            connection.log_in();
        }
    }

    /// Calls, and once more with the script's text if the node does not know the script. Not for requests that create a
    /// key: those must not be sent after their round's verdict.
    pub(crate) async fn call_known(&self, request: &Request) -> Result<Reply, Failure> {
        match self.call(request, Eval::Sha).await {
            Err(Failure::NoScript) => self.call(request, Eval::Text).await,
            result => result,
        }
    }

    /// Queues a request as by [`call_known`](Self::call_known) now, and returns the future of its answer.
    pub(crate) fn queue(self, request: Request) -> Answering {
        begun(Box::pin(async move { self.call_known(&request).await }))
    }

    /// Returns whether `other` is a handle to the same connection.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Redis(one), Self::Redis(two)) => one.same(two),
            (Self::Memory(_), Self::Memory(_)) => true,
            (Self::Simulated(one), Self::Simulated(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

/// A queued request.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

opaque!(Connection);
