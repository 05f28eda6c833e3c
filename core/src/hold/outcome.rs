//! The end of an attempt or a held lock, in every protocol.

use std::time::Duration;

use crate::error::{LostReason, NodeAnswer};
use crate::net::ballots::NoQuorum;
use crate::protocol::quorum::NodeMask;
use crate::sys::clock::Moment;

/// An attempt's end: a quorum granted in time, or not. `R` is the right to its keys. Dropping it releases them.
pub(crate) type Outcome<R> = Result<(R, Won), NoQuorum>;

/// A won attempt.
#[derive(Debug, Default)]
pub(crate) struct Won {
    /// The fence; zero, and never shown, in protocols without one.
    pub(crate) fence: u64,
    /// What it counts as on the nodes: the fence, or a larger one if it was handed over (see `extend`).
    pub(crate) level: u64,
    pub(crate) acquired: Moment,
    /// When the nodes were asked: as it was acquired, or attached later.
    pub(crate) asked: Moment,
    /// For how long the nodes that were asked then keep it.
    pub(crate) kept: Duration,
    pub(crate) valid_until: Moment,
    /// A number in [0, 1) that spreads this lock's first renewal.
    pub(crate) unit: f64,
    /// The nodes to which the acquire could not be sent.
    pub(crate) missed: NodeMask,
    /// The slot of a semaphore.
    pub(crate) slot: Option<u32>,
}

/// The reason for a loss, and the nodes' answers in the round that showed it, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) reason: LostReason,
    pub(crate) nodes: Vec<NodeAnswer>,
}

impl From<LostReason> for Loss {
    fn from(reason: LostReason) -> Self {
        Self { reason, nodes: Vec::new() }
    }
}
