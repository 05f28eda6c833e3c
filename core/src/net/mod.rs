//! The network: nodes, connections to them, and requests to many at once.
//!
//! May import `protocol` and what lies below it.

#[cfg(not(all(feature = "cluster", feature = "sentinel", feature = "memory")))]
pub(crate) mod absent;
pub(crate) mod ballots;
pub(crate) mod connections;
pub(crate) mod dial;
pub(crate) mod failure;
pub(crate) mod footprint;
pub(crate) mod logins;
pub(crate) mod member;
pub(crate) mod node;
pub(crate) mod progress;
pub(crate) mod redirect;
pub(crate) mod round;
pub(crate) mod slot;
pub(crate) mod socket;
pub(crate) mod timers;
#[cfg_attr(not(feature = "__tls"), path = "tls_off.rs")]
pub(crate) mod tls;
pub(crate) mod tracking;
