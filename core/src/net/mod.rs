//! The network: connections to many nodes, and requests to all of them at once.
//!
//! May import `node` and what lies below it.

pub(crate) mod ballots;
pub(crate) mod connections;
pub(crate) mod footprint;
pub(crate) mod member;
pub(crate) mod redirect;
pub(crate) mod round;
pub(crate) mod slot;
pub(crate) mod timers;
pub(crate) mod tracking;
