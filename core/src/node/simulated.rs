//! What stands for sockets in a simulation.

pub(crate) mod answers;

use std::fmt;
use std::sync::Arc;

use self::answers::{Answer, SimulatedLink};
use super::cluster::servers::ServerAccess;
use super::sentinels::{SentinelAccess, Sentinels};
use crate::address::Target;
use crate::node::event::EventSink;
use crate::node::identity::ServerInfo;

/// Everything that a process of a simulation can reach.
pub(crate) trait SimulatedSockets: Send + Sync {
    /// Returns the server at `target`, or the one that `sentinels` name; `None` if it is none of the simulation.
    fn node(&self, target: &Target, sentinels: Option<&Arc<Sentinels>>) -> Option<Arc<dyn SimulatedNode>>;

    /// Returns the servers of the cluster at `target`; `None` if that is not one.
    fn servers(&self, target: &Target) -> Option<ServerAccess>;

    /// Returns the ways to the sentinels at `target`; `None` if those are none.
    fn sentinels(&self, target: &Target) -> Option<SentinelAccess>;
}

/// A server of a simulation.
pub(crate) trait SimulatedNode: fmt::Debug + Send + Sync {
    /// As [`Node::sentinels`](super::Node::sentinels).
    fn sentinels(&self) -> Option<&Arc<Sentinels>>;

    /// As [`Node::connect`](super::Node::connect).
    fn connect(&self, events: Option<EventSink>) -> Answer<(Arc<dyn SimulatedLink>, ServerInfo)>;
}
