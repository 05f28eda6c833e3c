//! Nodes in memory in a build without the feature `memory`: there are none, and no address names one.

use crate::node::event::EventSink;
use crate::node::identity::ServerInfo;
use crate::protocol::request::{Reply, Request};
use crate::sys::clock::Clock;
use crate::transport::absent::absent;
use crate::transport::failure::Failure;

#[derive(Debug, Default)]
pub(crate) struct MemoryNodes;

#[derive(Clone, Debug)]
pub(crate) enum MemoryNode {}

#[derive(Clone, Debug)]
pub(crate) enum MemoryConnection {}

/// What there would be under keys.
pub(crate) enum Store {}

impl Store {
    absent! {
        pub(crate) fn keys(u64, &[u8]) -> Vec<Vec<u8>>;
    }
}

impl MemoryNodes {
    #[expect(clippy::unused_self, reason = "the other one has names")]
    pub(crate) fn named(&self, _: &str) -> MemoryNode {
        unreachable!("addresses in memory are refused")
    }
}

impl MemoryNode {
    absent! {
        pub(crate) fn connect(&Clock, Option<EventSink>) -> MemoryConnection;
        pub(crate) fn server_info() -> ServerInfo;
    }
}

impl MemoryConnection {
    pub(super) fn look<T>(&self, _: impl FnOnce(&mut Store, u64) -> T) -> Result<T, Failure> {
        match *self {}
    }

    absent! {
        pub(crate) fn call(&Request) -> Result<Reply, Failure>;
        pub(super) fn reports_to() -> Option<&EventSink>;
    }
}
