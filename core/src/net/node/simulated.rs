//! What stands for sockets in a simulation: the nodes, the questions to a cluster's servers, and their answers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::cluster::servers::{Servers, Standing};
use super::sentinels::{Sentinels, Ways};
use super::{Eval, EventSink, Failure, OpenSlot, Role, ServerInfo};
use crate::address::Target;
use crate::protocol::cluster::Told;
use crate::protocol::place::Place;
use crate::protocol::request::{Reply, Request};
use crate::protocol::sentinel::Told as NamedBy;

/// An answer on its way.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Everything that a process of a simulation can reach.
pub(crate) trait SimulatedSockets: Send + Sync {
    /// Returns the server at `target`, or the one that `sentinels` name; `None` if it is none of the simulation.
    fn node(&self, target: &Target, sentinels: Option<&Arc<Sentinels>>) -> Option<SimulatedNode>;

    /// Returns the servers of the cluster at `target`; `None` if that is not one.
    fn servers(&self, target: &Target) -> Option<Servers>;

    /// Returns the ways to the sentinels at `target`; `None` if those are none.
    fn sentinels(&self, target: &Target) -> Option<Ways>;

    /// Returns the server at `place`.
    fn wire(&self, place: &Place) -> Option<Arc<dyn SimulatedWire>>;
}

/// A server of a simulation.
#[derive(Clone)]
pub(crate) enum SimulatedNode {
    /// Always the same.
    Server(Arc<dyn SimulatedWire>),
    /// The one that sentinels name.
    Primary(Arc<Sentinels>, Arc<dyn SimulatedSockets>),
}

impl SimulatedNode {
    pub(super) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match self {
            Self::Server(_) => None,
            Self::Primary(sentinels, _) => Some(sentinels),
        }
    }

    /// Connects as to a server, see [`RedisNode`](super::redis::RedisNode).
    pub(super) async fn connect(
        &self,
        events: Option<EventSink>,
    ) -> Result<(Arc<dyn SimulatedLink>, ServerInfo), Failure> {
        let (sentinels, sockets) = match self {
            Self::Server(wire) => return wire.connect(events).await,
            Self::Primary(sentinels, sockets) => (sentinels, sockets),
        };
        let place = sentinels.primary().await?;
        let wire = sockets.wire(&place).ok_or_else(|| Failure::Unreachable("no such server".into()))?;
        let (link, server_info) = wire.connect(events).await?;
        if server_info.identity.role == Role::Replica {
            sentinels.doubt();
            return Err(Failure::Unreachable("the server that its sentinels name as primary is a replica".into()));
        }
        Ok((link, server_info))
    }
}

impl fmt::Debug for SimulatedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedNode")
    }
}

/// The connector of a simulated server.
pub(crate) trait SimulatedWire: Send + Sync {
    fn connect(&self, events: Option<EventSink>) -> Answer<(Arc<dyn SimulatedLink>, ServerInfo)>;
}

/// One connection to a simulated server.
pub(crate) trait SimulatedLink: Send + Sync {
    fn call(&self, request: Request, by: Eval, open: OpenSlot) -> Answer<Reply>;

    /// As [`Connection::reports_to`](super::Connection::reports_to).
    fn reports_to(&self) -> Option<&EventSink>;
}

/// Answers the questions to sentinels.
pub(crate) trait SimulatedSentinels: Send + Sync {
    /// Returns what the sentinel of this index tells.
    fn told(&self, index: usize) -> Answer<NamedBy>;
}

/// Answers the questions to a cluster's servers.
pub(crate) trait SimulatedServers: Send + Sync {
    /// As [`Servers::slots`].
    fn slots(&self, place: &Place) -> Answer<Vec<Told>>;

    /// As [`Servers::standing`].
    fn standing(&self, place: &Place) -> Answer<Standing>;
}
