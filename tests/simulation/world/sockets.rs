//! What one process of a simulation can reach.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::server::Node;
use super::shards::Shards;
use super::time::Time;
use super::wire::{Wire, travel};
use super::{Leg, Network};
use crate::address::Target;
use crate::node::cluster::servers::ServerAccess;
use crate::node::event::EventSink;
use crate::node::identity::{Role, ServerInfo};
use crate::node::sentinels::{SentinelAccess, Sentinels};
use crate::node::simulated::answers::{Answer, SimulatedLink, SimulatedSentinels, SimulatedServers};
use crate::node::simulated::{SimulatedNode, SimulatedSockets};
use crate::protocol::cluster::{Standing, Told};
use crate::protocol::place::Place;
use crate::protocol::sentinel;
use crate::transport::failure::Failure;

/// The ways from a process to all servers.
#[derive(Clone)]
pub(super) struct Sockets {
    pub(super) process: usize,
    pub(super) nodes: Vec<Node>,
    pub(super) groups: Vec<Shards>,
    pub(super) time: Time,
    pub(super) network: Arc<dyn Network>,
}

impl Sockets {
    fn server(&self, name: &str) -> Option<Wire> {
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
        match self.server(&place.host) {
            Some(wire) => Box::pin(question(wire)),
            None => Box::pin(async { Err(Failure::Unreachable("no such server".into())) }),
        }
    }
}

impl SimulatedSockets for Sockets {
    fn node(&self, target: &Target, sentinels: Option<&Arc<Sentinels>>) -> Option<Arc<dyn SimulatedNode>> {
        match target {
            Target::Memory { name } | Target::Tcp { host: name, .. } => Some(Arc::new(self.server(name)?)),
            _ => Some(Arc::new(Primary { sentinels: Arc::clone(sentinels?), sockets: self.clone() })),
        }
    }

    fn servers(&self, target: &Target) -> Option<ServerAccess> {
        matches!(target, Target::Cluster { .. }).then(|| ServerAccess::Simulated(Arc::new(self.clone())))
    }

    fn sentinels(&self, target: &Target) -> Option<SentinelAccess> {
        let Target::Sentinel { sentinels, .. } = target else { return None };
        let number: usize = sentinels.first()?.0.split('-').nth(1)?.parse().ok()?;
        let group = number.checked_sub(1).filter(|group| *group < self.groups.len())?;
        Some(SentinelAccess::Simulated(Arc::new(Group { sockets: self.clone(), group })))
    }
}

/// The server that sentinels name.
struct Primary {
    sentinels: Arc<Sentinels>,
    sockets: Sockets,
}

impl fmt::Debug for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Primary")
    }
}

impl SimulatedNode for Primary {
    fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        Some(&self.sentinels)
    }

    /// Connects as the node of a server does.
    fn connect(&self, events: Option<EventSink>) -> Answer<(Arc<dyn SimulatedLink>, ServerInfo)> {
        let (sentinels, sockets) = (Arc::clone(&self.sentinels), self.sockets.clone());
        Box::pin(async move {
            let place = sentinels.primary().await?;
            let wire = sockets.server(&place.host).ok_or_else(|| Failure::Unreachable("no such server".into()))?;
            let (link, server_info) = wire.connect(events).await?;
            if server_info.identity.role == Role::Replica {
                sentinels.doubt();
                return Err(Failure::Unreachable("the server that its sentinels name as primary is a replica".into()));
            }
            Ok((link, server_info))
        })
    }
}

/// The ways from a process to the sentinels of a group.
struct Group {
    sockets: Sockets,
    group: usize,
}

impl SimulatedSentinels for Group {
    fn told(&self, index: usize) -> Answer<sentinel::Told> {
        let Sockets { process, time, network, .. } = self.sockets.clone();
        let group = self.sockets.groups[self.group].clone();
        // They are as far as the servers.
        let near = group.servers()[0].0.index;
        Box::pin(async move {
            travel(network.fate(process, near, Leg::Connect), &time).await?;
            let (place, epoch) = group.named_by(index);
            travel(network.fate(process, near, Leg::Reply), &time).await?;
            Ok(sentinel::Told::Primary { place, epoch: Some(epoch) })
        })
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
