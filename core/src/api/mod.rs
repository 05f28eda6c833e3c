//! The interface for Rust programs: clients, locks and guards, async and blocking.
//!
//! May import `acquire` and what lies below it.

pub mod blocking;
pub(crate) mod client;
pub(crate) mod diagnose;
pub(crate) mod election;
pub(crate) mod guard;
pub(crate) mod inspect;
pub(crate) mod listing;
pub(crate) mod lock;
pub(crate) mod openmetrics;
pub(crate) mod operator;
#[cfg(feature = "metrics-0_24")]
pub(crate) mod publish;
#[cfg(feature = "redis-1")]
pub(crate) mod redis_1;
#[cfg(feature = "serde")]
mod serialize;
pub(crate) mod session;
pub(crate) mod setnx;
pub(crate) mod setters;
pub(crate) mod shutdown;
pub(crate) mod stats;
pub(crate) mod wait_free;
