//! What stands for sockets in a simulation.

pub(crate) mod answers;

use std::fmt;
use std::sync::Arc;

use self::answers::{SimulatedLink, SimulatedWire};
use super::cluster::servers::ServerAccess;
use super::sentinels::{SentinelAccess, Sentinels};
use crate::address::Target;
use crate::net::failure::Failure;
use crate::net::node::event::EventSink;
use crate::net::node::identity::{Role, ServerInfo};
use crate::protocol::place::Place;

/// Everything that a process of a simulation can reach.
pub(crate) trait SimulatedSockets: Send + Sync {
    /// Returns the server at `target`, or the one that `sentinels` name; `None` if it is none of the simulation.
    fn node(&self, target: &Target, sentinels: Option<&Arc<Sentinels>>) -> Option<SimulatedNode>;

    /// Returns the servers of the cluster at `target`; `None` if that is not one.
    fn servers(&self, target: &Target) -> Option<ServerAccess>;

    /// Returns the ways to the sentinels at `target`; `None` if those are none.
    fn sentinels(&self, target: &Target) -> Option<SentinelAccess>;

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
