//! A distributed lock for Redis.
mod error;
pub use error::{Error, ErrorKind, LostReason, NodeAnswer};
