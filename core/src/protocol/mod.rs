//! The protocol: requests, votes, verdicts and pauses, without a clock, a socket or randomness.
//!
//! May import `sys` and what lies below it.

pub(crate) mod backoff;
pub(crate) mod certificate;
pub(crate) mod cluster;
pub(crate) mod detached;
pub(crate) mod diagnosis;
pub(crate) mod glob;
pub(crate) mod name;
pub(crate) mod outage;
pub(crate) mod place;
pub(crate) mod positions;
pub(crate) mod quorum;
pub(crate) mod request;
pub(crate) mod sentinel;
pub(crate) mod shape;
pub(crate) mod token;
pub(crate) mod value;
