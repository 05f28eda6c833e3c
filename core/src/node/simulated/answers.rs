//! What simulated servers and sentinels answer.

use std::future::Future;
use std::pin::Pin;

use crate::node::event::EventSink;
use crate::node::way::{Eval, OpenSlot};
use crate::protocol::cluster::{Standing, Told};
use crate::protocol::place::Place;
use crate::protocol::request::{Reply, Request};
use crate::protocol::sentinel;
use crate::transport::failure::Failure;

/// An answer on its way.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// One connection to a simulated server.
pub(crate) trait SimulatedLink: Send + Sync {
    fn call(&self, request: Request, by: Eval, open: OpenSlot) -> Answer<Reply>;

    /// As [`Connection::reports_to`](crate::node::Connection::reports_to).
    fn reports_to(&self) -> Option<&EventSink>;
}

/// Answers the questions to sentinels.
pub(crate) trait SimulatedSentinels: Send + Sync {
    /// Returns what the sentinel of this index tells.
    fn told(&self, index: usize) -> Answer<sentinel::Told>;
}

/// Answers the questions to a cluster's servers.
pub(crate) trait SimulatedServers: Send + Sync {
    /// As [`ServerAccess::slots`](crate::node::cluster::servers::ServerAccess::slots).
    fn slots(&self, place: &Place) -> Answer<Vec<Told>>;

    /// As [`ServerAccess::standing`](crate::node::cluster::servers::ServerAccess::standing).
    fn standing(&self, place: &Place) -> Answer<Standing>;
}
