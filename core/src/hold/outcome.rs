//! How an attempt ended, in every protocol, and how a held lock did. `R` is the right to what it created on the nodes.

use crate::error::{LostReason, NodeAnswer};
use crate::net::ballots::{Ballots, Precheck};
use crate::protocol::quorum::NodeMask;
use crate::sys::clock::Moment;

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum Outcome<R> {
    /// A quorum granted in time.
    Won(Won<R>),
    /// It did not.
    Lost(Ballots),
    /// Bars leave no quorum before this instant; nothing was sent.
    Quarantined(Moment, Ballots),
    /// Too many addresses lead to the same server for a quorum ever to come.
    Indistinct(Ballots),
}

/// A won attempt.
#[derive(Debug)]
pub(crate) struct Won<R> {
    /// What it may have created on the nodes. Dropped, it is released.
    pub(crate) right: R,
    /// Zero, and told to nobody, in a protocol that has none.
    pub(crate) fence: u64,
    pub(crate) acquired: Moment,
    pub(crate) valid_until: Moment,
    /// Where in the spread of renewals this lock's first one falls.
    pub(crate) unit: f64,
    /// The nodes to which the acquire could not be sent.
    pub(crate) missed: NodeMask,
}

impl<R> Outcome<R> {
    /// The same with another right, which `wrap` makes of the one.
    pub(crate) fn map<S>(self, wrap: impl FnOnce(R) -> S) -> Outcome<S> {
        match self {
            Self::Won(Won { right, fence, acquired, valid_until, unit, missed }) => {
                Outcome::Won(Won { right: wrap(right), fence, acquired, valid_until, unit, missed })
            }
            Self::Lost(ballots) => Outcome::Lost(ballots),
            Self::Quarantined(until, ballots) => Outcome::Quarantined(until, ballots),
            Self::Indistinct(ballots) => Outcome::Indistinct(ballots),
        }
    }
}

impl<R> From<Precheck> for Outcome<R> {
    fn from(precheck: Precheck) -> Self {
        match precheck {
            Precheck::Lost(ballots) => Self::Lost(ballots),
            Precheck::Quarantined(until, ballots) => Self::Quarantined(until, ballots),
            Precheck::Indistinct(ballots) => Self::Indistinct(ballots),
        }
    }
}

/// Why a lock was lost, and what each node said in the round that tells; nothing where no round does.
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
