//! A distributed lock for Redis.
#[allow(dead_code)]
mod address;
#[allow(dead_code)]
mod backoff;
#[allow(dead_code)]
mod error;
#[allow(dead_code)]
mod name;
#[allow(dead_code)]
mod options;
pub use error::{Error, ErrorKind, LostReason, NodeAnswer};
