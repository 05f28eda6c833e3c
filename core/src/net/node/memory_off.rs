//! Nodes in memory in a build without the feature `memory`: there are none, and no address names one.

use crate::net::failure::Failure;
use crate::net::node::event::EventSink;
use crate::net::node::identity::ServerInfo;
use crate::protocol::request::{Reply, Request};
use crate::sys::clock::Clock;

#[derive(Debug, Default)]
pub(crate) struct MemoryNodes;

#[derive(Clone, Debug)]
pub(crate) enum MemoryNode {}

#[derive(Clone, Debug)]
pub(crate) enum MemoryConnection {}

/// What there would be under keys.
pub(crate) enum Store {}

impl Store {
    pub(crate) fn keys(&mut self, _: u64, _: &[u8]) -> Vec<Vec<u8>> {
        match *self {}
    }

    pub(crate) fn text(&mut self, _: u64, _: &[u8]) -> Option<Vec<u8>> {
        match *self {}
    }
}

impl MemoryNodes {
    #[expect(clippy::unused_self, reason = "the other one has names")]
    pub(crate) fn named(&self, _: &str) -> MemoryNode {
        unreachable!("addresses in memory are refused")
    }
}

impl MemoryNode {
    pub(crate) fn connect(&self, _: &Clock, _: Option<EventSink>) -> MemoryConnection {
        match *self {}
    }

    pub(crate) fn server_info(&self) -> ServerInfo {
        match *self {}
    }
}

impl MemoryConnection {
    pub(super) fn look<T>(&self, _: impl FnOnce(&mut Store, u64) -> T) -> Result<T, Failure> {
        match *self {}
    }

    pub(crate) fn call(&self, _: &Request) -> Result<Reply, Failure> {
        match *self {}
    }

    pub(super) fn reports_to(&self) -> Option<&EventSink> {
        match *self {}
    }
}
