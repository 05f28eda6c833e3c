//! What one process of a simulation can reach.

use std::future::Future;
use std::sync::Arc;

use super::server::Node;
use super::wire::Wire;
use crate::address::Target;
use crate::net::node::Failure;
use crate::net::node::cluster::servers::{Servers, Standing};
use crate::net::node::simulated::{Answer, SimulatedNode, SimulatedServers, SimulatedSockets};
use crate::protocol::cluster::Told;
use crate::protocol::place::Place;

/// The ways from a process to all servers.
#[derive(Clone)]
pub(super) struct Sockets {
    pub(super) process: usize,
    pub(super) nodes: Vec<Node>,
}

impl Sockets {
    fn wire(&self, name: &str) -> Option<Wire> {
        let number: usize = name.strip_prefix("server-")?.parse().ok()?;
        let node = self.nodes.get(number.checked_sub(1)?)?.clone();
        Some(Wire { process: self.process, node })
    }

    /// Asks the server at a place.
    fn ask<T, F>(&self, place: &Place, question: impl FnOnce(Wire) -> F) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        match self.wire(&place.host) {
            Some(wire) => Box::pin(question(wire)),
            None => Box::pin(async { Err(Failure::Unreachable("no such server".into())) }),
        }
    }
}

impl SimulatedSockets for Sockets {
    fn node(&self, target: &Target) -> Option<SimulatedNode> {
        let (Target::Memory { name } | Target::Tcp { host: name, .. }) = target else { return None };
        Some(SimulatedNode(Arc::new(self.wire(name)?)))
    }

    fn servers(&self, target: &Target) -> Option<Servers> {
        matches!(target, Target::Cluster { .. }).then(|| Servers::Simulated(Arc::new(self.clone())))
    }
}

impl SimulatedServers for Sockets {
    fn slots(&self, place: &Place) -> Answer<Vec<Told>> {
        self.ask(place, Wire::slots)
    }

    fn standing(&self, place: &Place) -> Answer<Standing> {
        self.ask(place, Wire::standing)
    }
}
