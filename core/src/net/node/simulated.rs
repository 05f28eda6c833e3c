//! What stands for sockets in a simulation: the nodes, the questions to a cluster's servers, and their answers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::cluster::servers::{Servers, Standing};
use super::{Eval, EventSink, Failure, OpenSlot, ServerInfo};
use crate::address::Target;
use crate::protocol::cluster::Told;
use crate::protocol::place::Place;
use crate::protocol::request::{Reply, Request};

/// An answer on its way.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Everything that a process of a simulation can reach.
pub(crate) trait SimulatedSockets: Send + Sync {
    /// Returns the server at `target`; `None` if it is none of the simulation.
    fn node(&self, target: &Target) -> Option<SimulatedNode>;

    /// Returns the servers of the cluster at `target`; `None` if that is not one.
    fn servers(&self, target: &Target) -> Option<Servers>;
}

/// A server of a simulation.
#[derive(Clone)]
pub(crate) struct SimulatedNode(pub(crate) Arc<dyn SimulatedWire>);

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

/// Answers the questions to a cluster's servers.
pub(crate) trait SimulatedServers: Send + Sync {
    /// As [`Servers::slots`].
    fn slots(&self, place: &Place) -> Answer<Vec<Told>>;

    /// As [`Servers::standing`].
    fn standing(&self, place: &Place) -> Answer<Standing>;
}
