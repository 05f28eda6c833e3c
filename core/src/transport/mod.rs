//! The way to one server: a stream to its address, TLS on it, the login for it, and why it failed.
//!
//! May import `protocol` and what lies below it.

#[cfg(not(all(feature = "cluster", feature = "sentinel", feature = "memory")))]
pub(crate) mod absent;
pub(crate) mod dial;
pub(crate) mod failure;
pub(crate) mod logins;
pub(crate) mod progress;
pub(crate) mod socket;
#[cfg_attr(not(feature = "__tls"), path = "tls_off.rs")]
pub(crate) mod tls;
