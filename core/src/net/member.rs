//! A node as a member of a set.

use std::sync::Arc;

use crate::address::Address;
use crate::node::Node;
use crate::node::endpoint::Endpoint;
use crate::node::pace::Leave;
use crate::sys::clock::Moment;

/// One node under its address.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) address: Address,
    /// The process's knowledge of the server there.
    pub(crate) endpoint: Arc<Endpoint>,
}

impl Member {
    /// Asks for permission to connect.
    pub(super) fn ask(&self, now: Moment, urgent: bool) -> Leave {
        self.endpoint.pace.record().ask(&self.address, now, urgent)
    }
}
